/** A member of a ceiling: a session, or a group of them. */
export interface BudgetMember {
  readonly usedBytes: number
  /** Lets go of so many bytes, or a few more: its greediest streams are reset. Returns how many it let go. */
  shed(bytes: number): number
}

/** From this share of a ceiling on, no window grows and stalled streams get no credit. */
export const PRESSURE = 0.75
/** The least share of a ceiling to shed at a time. Searching for the greediest member for each chunk would cost too much. */
export const SHED_SHARE = 1 / 16

/**
 * The ceiling on bytes that all sessions of a process, or of a group of them, hold for receivers that have not taken them
 * yet. Whoever fills it pays: at the ceiling, the greediest session or group sheds.
 */
export interface BufferBudget extends BudgetMember {
  readonly limitBytes: number
  /** From three quarters of the ceiling on, or of one above it. */
  readonly pressed: boolean
  join(member: BudgetMember): void
  /** Removes a member that holds nothing and never will again. */
  leave(member: BudgetMember): void
  release(bytes: number): void
  take(bytes: number): void
  /** Sheds until the ceiling holds, and those above it. */
  enforce(): void
}

/**
 * A ceiling of `limitBytes`, 256 MiB by default, that is shared by the sessions it is given to.
 *
 * @param parent the ceiling that this group and others are under together
 * @param onEmpty its last member has left
 *
 * @example
 * ```ts
 * import { createBufferBudget, createSession, memoryPair } from 'sallyport/protocol'
 *
 * const processBudget = createBufferBudget(64 * 1024 * 1024)
 * const [here, there] = memoryPair()
 * const sessions = [here, there].map(transport => createSession(transport, { role: 'client', processBudget }))
 * ```
 */
export function createBufferBudget(
  limitBytes: number = 256 * 1024 * 1024,
  parent?: BufferBudget,
  onEmpty?: () => void,
): BufferBudget {
  return new SharedBudget(limitBytes, parent, onEmpty)
}

class SharedBudget implements BufferBudget {
  readonly limitBytes: number
  readonly #parent: BufferBudget | undefined
  readonly #onEmpty: (() => void) | undefined
  readonly #members = new Set<BudgetMember>()
  #usedBytes = 0

  constructor(limitBytes: number, parent: BufferBudget | undefined, onEmpty: (() => void) | undefined) {
    this.limitBytes = limitBytes
    this.#parent = parent
    this.#onEmpty = onEmpty
  }

  get usedBytes(): number {
    return this.#usedBytes
  }

  get pressed(): boolean {
    return this.#usedBytes >= this.limitBytes * PRESSURE || this.#parent?.pressed === true
  }

  join(member: BudgetMember): void {
    if (this.#members.size === 0) this.#parent?.join(this)
    this.#members.add(member)
  }

  leave(member: BudgetMember): void {
    if (!this.#members.delete(member) || this.#members.size > 0) return
    this.#parent?.leave(this)
    this.#onEmpty?.()
  }

  release(bytes: number): void {
    this.#usedBytes -= bytes
    this.#parent?.release(bytes)
  }

  take(bytes: number): void {
    this.#usedBytes += bytes
    this.#parent?.take(bytes)
  }

  enforce(): void {
    const { limitBytes } = this
    if (this.#usedBytes > limitBytes) this.shed(this.#usedBytes - limitBytes * (1 - SHED_SHARE))
    this.#parent?.enforce()
  }

  /** The greediest member sheds until it is no longer that, and then the next. */
  shed(bytes: number): number {
    const before = this.#usedBytes
    for (let left = bytes; left > 0; left = bytes - (before - this.#usedBytes)) {
      const [most, next] = this.#greediest()
      if (most === undefined || most.shed(Math.max(1, Math.min(left, most.usedBytes - next))) === 0) break
    }
    return before - this.#usedBytes
  }

  /** The greediest member, and how much the next one holds. */
  #greediest(): [most: BudgetMember | undefined, nextBytes: number] {
    let most: BudgetMember | undefined
    let nextBytes = 0
    for (const member of this.#members) {
      if (most === undefined || member.usedBytes > most.usedBytes) {
        nextBytes = most?.usedBytes ?? 0
        most = member
      } else nextBytes = Math.max(nextBytes, member.usedBytes)
    }
    return [most, nextBytes]
  }
}
