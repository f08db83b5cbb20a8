/**
 * The exchanges that this instance began to forward, over all its connections, so that none runs twice (design: "sent
 * again or not"). Only those with an unsafe method stand here: a safe one may always be forwarded anew.
 */
import { IdSet } from './id-set.ts'

/** How long an exchange is remembered after its end, at least. */
const KEEP_MS = 60_000
/** 14,000 a second for all of that time, more than one process forwards, in at most 21 MiB. */
const MAX_ENDED = 1024 * 1024
/** Those that ended within so long are forgotten together, which costs no time for each of them. */
const TOGETHER_MS = 15_000
/** ... or this share of all, so that no more than that is lost at a time when there are too many. */
const TOGETHER_SHARE = 1 / 8

interface Ended {
  readonly ids: IdSet
  readonly sinceMs: number
}

export class SeenExchanges {
  readonly #maxEnded: number
  readonly #now: () => number
  /** Bounded by the sessions' limit of streams. */
  readonly #live = new Set<string>()
  /** Oldest first; a few. */
  readonly #ended: Ended[] = []
  #endedSize = 0
  /** Until then the memory has a hole: ids were dropped before their time. */
  #holeUntilMs = Number.NEGATIVE_INFINITY

  constructor(maxEnded = MAX_ENDED, now: () => number = () => performance.now()) {
    this.#maxEnded = maxEnded
    this.#now = now
  }

  /** Begins `id`, or says why not: it was begun before, or a later attempt comes too late to tell. */
  begin(id: string, attempt: number): 'already-begun' | 'too-late' | undefined {
    const nowMs = this.#now()
    this.#forget(nowMs)
    if (this.#live.has(id) || this.#ended.some(({ ids }) => ids.has(id))) return 'already-begun'
    if (attempt > 0 && nowMs < this.#holeUntilMs) return 'too-late'
    this.#live.add(id)
    return undefined
  }

  end(id: string): void {
    if (!this.#live.delete(id)) return
    const nowMs = this.#now()
    let last = this.#ended.at(-1)
    if (last === undefined || nowMs - last.sinceMs >= TOGETHER_MS || last.ids.size >= this.#maxEnded * TOGETHER_SHARE) {
      last = { ids: new IdSet(), sinceMs: nowMs }
      this.#ended.push(last)
    }
    if (last.ids.add(id)) this.#endedSize++
    if (this.#endedSize > this.#maxEnded) this.#holeUntilMs = Math.max(this.#holeUntilMs, this.#shift() + KEEP_MS)
  }

  get size(): number {
    return this.#live.size + this.#endedSize
  }

  #forget(nowMs: number): void {
    while (this.#ended.length > 0 && this.#untilMs() + KEEP_MS <= nowMs) this.#shift()
  }

  /** The latest time at which one of the oldest group ended. */
  #untilMs(): number {
    const [oldest, next] = this.#ended
    return next?.sinceMs ?? oldest!.sinceMs + TOGETHER_MS
  }

  /** Forgets the oldest, and says when the last of them may have ended. */
  #shift(): number {
    const untilMs = this.#untilMs()
    this.#endedSize -= this.#ended.shift()!.ids.size
    return untilMs
  }
}
