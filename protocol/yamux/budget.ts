/** A session, as a {@link BufferBudget} sees it. */
export interface BudgetMember {
  readonly bufferedBytes: number
  /** Resets the stream that holds the most; false if there is none. */
  shed(): boolean
}

/** Share of a ceiling from which no window grows and stalled streams get no credit. */
export const PRESSURE = 0.75

/**
 * The ceiling on bytes that all sessions of a process, or of a group of them, hold for receivers that have not taken them
 * yet. At the ceiling the greediest stream of the greediest session is reset.
 */
export class BufferBudget {
  readonly limitBytes: number
  readonly #parent: BufferBudget | undefined
  readonly #members = new Set<BudgetMember>()
  #usedBytes = 0

  /**
   * @param limitBytes default 256 MiB
   * @param parent the ceiling that this group and others are under together
   */
  constructor(limitBytes = 256 * 1024 * 1024, parent?: BufferBudget) {
    this.limitBytes = limitBytes
    this.#parent = parent
  }

  get usedBytes(): number {
    return this.#usedBytes
  }

  get pressed(): boolean {
    return this.#usedBytes >= this.limitBytes * PRESSURE || this.#parent?.pressed === true
  }

  join(member: BudgetMember): void {
    this.#members.add(member)
    this.#parent?.join(member)
  }

  leave(member: BudgetMember): void {
    this.#members.delete(member)
    this.#parent?.leave(member)
  }

  release(bytes: number): void {
    this.#usedBytes -= bytes
    this.#parent?.release(bytes)
  }

  take(bytes: number): void {
    this.#usedBytes += bytes
    this.#parent?.take(bytes)
  }

  /** Sheds streams until the ceiling holds. */
  enforce(): void {
    while (this.#usedBytes > this.limitBytes) {
      if (!this.#greediest()?.shed()) break
    }
    this.#parent?.enforce()
  }

  #greediest(): BudgetMember | undefined {
    let most: BudgetMember | undefined
    for (const member of this.#members) {
      if (most === undefined || member.bufferedBytes > most.bufferedBytes) most = member
    }
    return most
  }
}
