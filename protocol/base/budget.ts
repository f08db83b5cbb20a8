/** A member of a budget: a session, or a group of sessions. */
export interface BudgetMember {
  readonly usedBytes: number
  /** Frees at least this many bytes, if it can, by resetting its greediest streams. Returns how many it freed. */
  shed(bytes: number): number
}

/** Above this share of a ceiling, no window grows and stalled streams get no credit. */
export const PRESSURE = 0.75
/** The least share of a ceiling to shed at a time, since searching for the greediest member for each chunk would cost too much. */
export const SHED_SHARE = 1 / 16

/**
 * The ceiling on bytes that all sessions of a process, or of a group, hold for receivers that have not consumed them yet. At
 * the ceiling, the greediest session or group sheds.
 */
export interface BufferBudget extends BudgetMember {
  readonly limitBytes: number
  /** Whether three quarters of this ceiling, or of one above it, are used. */
  readonly pressed: boolean
  join(member: BudgetMember): void
  /** Removes a member that holds nothing and never will again. */
  leave(member: BudgetMember): void
  release(bytes: number): void
  take(bytes: number): void
  /** Sheds until this ceiling and those above it are kept. */
  enforce(): void
}

/**
 * Creates a ceiling of `limitBytes`, 256 MiB by default, for the sessions that share it.
 *
 * @param parent the ceiling that this group shares with others
 * @param onEmpty called when the last member has left
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

export class SharedBudget implements BufferBudget {
  readonly limitBytes: number
  readonly #parent: BufferBudget | undefined
  readonly #onEmpty: (() => void) | undefined
  readonly #members = new Set<BudgetMember>()
  #usedBytes = 0

  constructor(limitBytes: number, parent?: BufferBudget, onEmpty?: () => void) {
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

  /** The greediest members shed until none of them holds more than the others. */
  shed(bytes: number): number {
    const before = this.#usedBytes
    for (let left = bytes; left > 0 && this.#level(left); ) left = bytes - (before - this.#usedBytes)
    return before - this.#usedBytes
  }

  /**
   * Looks at all members once, however many have to shed. Returns false if one of them could not, whose bytes may be about to leave: the
   * others do not pay for it.
   */
  #level(bytes: number): boolean {
    const before = this.#usedBytes
    const greediest = [...this.#members].sort((a, b) => b.usedBytes - a.usedBytes)
    let level = Number.NEGATIVE_INFINITY
    let sum = 0
    for (const [i, { usedBytes }] of greediest.entries()) {
      if (usedBytes <= level) break
      sum += usedBytes
      level = Math.max(0, sum - bytes) / (i + 1)
    }
    for (const member of greediest) {
      if (before - this.#usedBytes >= bytes || member.usedBytes <= level) break
      if (member.shed(Math.max(1, Math.ceil(member.usedBytes - level))) === 0) return false
    }
    return this.#usedBytes < before
  }
}
