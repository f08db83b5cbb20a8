/**
 * The exchanges that this instance began to forward, over all its connections, so that none runs twice (design: "sent
 * again or not"). Only those with an unsafe method stand here: a safe one may always be forwarded anew.
 */

/** How long an exchange is remembered after its end. */
const KEEP_MS = 60_000
const MAX_ENDED = 65_536
/** Of the queue so many entries at least are dropped at a time. */
const COMPACT_AT = 1024

interface Ended {
  readonly id: string
  /** When it is forgotten. */
  readonly untilMs: number
}

export class BegunExchanges {
  readonly #maxEnded: number
  readonly #now: () => number
  /** Bounded by the sessions' limit of streams. */
  readonly #live = new Set<string>()
  readonly #ended = new Set<string>()
  /**
   * The same, from `#first` on, oldest first. A map would tell the order, too, but look for its first entry among all those that
   * were deleted before it.
   */
  #queue: Ended[] = []
  #first = 0
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
    this.#ended.add(id)
    this.#queue.push({ id, untilMs: this.#now() + KEEP_MS })
    if (this.#ended.size > this.#maxEnded) this.#holeUntilMs = Math.max(this.#holeUntilMs, this.#shift().untilMs)
  }

  get size(): number {
    return this.#live.size + this.#ended.size
  }

  #forget(nowMs: number): void {
    while (this.#ended.size > 0 && this.#queue[this.#first]!.untilMs <= nowMs) this.#shift()
  }

  #shift(): Ended {
    const oldest = this.#queue[this.#first++]!
    this.#ended.delete(oldest.id)
    if (this.#first >= COMPACT_AT && this.#first * 2 >= this.#queue.length) {
      this.#queue = this.#queue.slice(this.#first)
      this.#first = 0
    }
    return oldest
  }
}
