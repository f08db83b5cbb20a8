/**
 * The exchanges that this instance began to forward, over all its connections, so that none runs twice (design: "sent
 * again or not"). Only those with an unsafe method stand here: a safe one may always be forwarded anew.
 */

/** How long an exchange is remembered after its end. */
const KEEP_MS = 60_000
const MAX_ENDED = 65_536

export class BegunExchanges {
  readonly #maxEnded: number
  readonly #now: () => number
  /** Bounded by the sessions' limit of streams. */
  readonly #live = new Set<string>()
  /** Id to the time when it is forgotten, oldest first. */
  readonly #ended = new Map<string, number>()
  /** Until then the memory has a hole: an id was dropped before its time. */
  #holeUntilMs = Number.NEGATIVE_INFINITY

  constructor(maxEnded = MAX_ENDED, now: () => number = () => performance.now()) {
    this.#maxEnded = maxEnded
    this.#now = now
  }

  /** Begins `id`, or says why not: it was begun before, or that can no longer be told of a later attempt. */
  begin(id: string, attempt: number): 'already-begun' | 'too-late' | undefined {
    const nowMs = this.#now()
    this.#forget(nowMs)
    if (this.#live.has(id) || this.#ended.has(id)) return 'already-begun'
    if (attempt > 0 && nowMs < this.#holeUntilMs) return 'too-late'
    this.#live.add(id)
    return undefined
  }

  end(id: string): void {
    if (!this.#live.delete(id)) return
    this.#ended.set(id, this.#now() + KEEP_MS)
    if (this.#ended.size <= this.#maxEnded) return
    const [oldest, untilMs] = this.#ended.entries().next().value!
    this.#ended.delete(oldest)
    this.#holeUntilMs = Math.max(this.#holeUntilMs, untilMs)
  }

  get size(): number {
    return this.#live.size + this.#ended.size
  }

  #forget(nowMs: number): void {
    for (const [id, untilMs] of this.#ended) {
      if (untilMs > nowMs) return
      this.#ended.delete(id)
    }
  }
}
