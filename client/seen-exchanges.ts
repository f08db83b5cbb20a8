/**
 * The exchanges that this instance has begun to forward, over all its connections, so that none runs twice. Only those with an
 * unsafe method are remembered; a safe one may always be forwarded again.
 */
import { IdSet } from './id-set.ts'

/** Least time that an exchange is remembered after its end. */
const KEEP_MS = 60_000
/** Enough for 14,000 exchanges per second, more than one process can forward, in at most 21 MiB. */
const MAX_ENDED = 1024 * 1024
/** Exchanges that ended within this time form a group that is forgotten together, so that forgetting costs no time per exchange. */
const GROUP_MS = 15_000
/** A group holds at most this share of all, so that no more is lost at once when there are too many. */
const GROUP_SHARE = 1 / 8

interface EndedGroup {
  readonly ids: IdSet
  readonly sinceMs: number
}

export class SeenExchanges {
  readonly #maxEnded: number
  readonly #now: () => number
  /** Bounded by the sessions' limit of streams. */
  readonly #live = new Set<string>()
  /** Oldest first. There are only a few. */
  readonly #ended: EndedGroup[] = []
  #endedSize = 0
  /** Until then, ids may be missing because they were dropped early. */
  #incompleteUntilMs = Number.NEGATIVE_INFINITY

  constructor(maxEnded = MAX_ENDED, now: () => number = () => performance.now()) {
    this.#maxEnded = maxEnded
    this.#now = now
  }

  /** Records the start of `id`, or returns why it may not start: it was begun before, or it is a retry and we can no longer tell. */
  begin(id: string, attempt: number): 'already-begun' | 'too-late' | undefined {
    const nowMs = this.#now()
    this.#forget(nowMs)
    if (this.#live.has(id) || this.#ended.some(({ ids }) => ids.has(id))) return 'already-begun'
    if (attempt > 0 && nowMs < this.#incompleteUntilMs) return 'too-late'
    this.#live.add(id)
    return undefined
  }

  end(id: string): void {
    if (!this.#live.delete(id)) return
    const nowMs = this.#now()
    let last = this.#ended.at(-1)
    if (last === undefined || nowMs - last.sinceMs >= GROUP_MS || last.ids.size >= this.#maxEnded * GROUP_SHARE) {
      last = { ids: new IdSet(), sinceMs: nowMs }
      this.#ended.push(last)
    }
    if (last.ids.add(id)) this.#endedSize++
    if (this.#endedSize > this.#maxEnded)
      this.#incompleteUntilMs = Math.max(this.#incompleteUntilMs, this.#shift() + KEEP_MS)
  }

  get size(): number {
    return this.#live.size + this.#endedSize
  }

  #forget(nowMs: number): void {
    while (this.#ended.length > 0 && this.#untilMs() + KEEP_MS <= nowMs) this.#shift()
  }

  /** The latest time at which an exchange of the oldest group may have ended. */
  #untilMs(): number {
    const [oldest, next] = this.#ended
    return next?.sinceMs ?? oldest!.sinceMs + GROUP_MS
  }

  /** Forgets the oldest group, and returns when its last exchange may have ended. */
  #shift(): number {
    const untilMs = this.#untilMs()
    this.#endedSize -= this.#ended.shift()!.ids.size
    return untilMs
  }
}
