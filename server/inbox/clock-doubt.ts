/** Whether what seems to be old is: somebody may have set the clock forward, and may set it back. */
import { elapsedMs } from '../../protocol/base/elapsed.ts'
import type { Logger } from '../../protocol/base/log.ts'

/** For how long nothing is old that only a clock which was set forward makes so. */
const DOUBT_MS = 3_600_000
/** A smaller step is no news. */
const STEP_MS = 30_000

export class ClockDoubt {
  readonly #now: () => number
  readonly #logger: Logger
  /** How far the clock was ahead of one that nobody can set when it was last read. */
  #offsetMs: number
  /** How far it was set forward in the last hour, and when that ends. */
  #aheadMs = 0
  #endsMs = 0

  /** `now` is in ms since 1970. */
  constructor(now: () => number, logger: Logger) {
    this.#now = now
    this.#logger = logger
    this.#offsetMs = now() - elapsedMs()
  }

  /** When something that is `ageMs` old now began, at the earliest that the clock was right for. */
  before(ageMs: number): number {
    const at = this.#now()
    return at - ageMs - this.aheadMs(at)
  }

  /** How far the clock, which says `at`, may be ahead. */
  aheadMs(at: number): number {
    const nowMs = elapsedMs()
    const setMs = at - nowMs - this.#offsetMs
    this.#offsetMs += setMs
    if (nowMs >= this.#endsMs) this.#aheadMs = 0
    this.#aheadMs = Math.max(0, this.#aheadMs + Math.trunc(setMs))
    if (setMs > STEP_MS) {
      this.#endsMs = nowMs + DOUBT_MS
      this.#logger.warn(
        { seconds: Math.trunc(setMs / 1000) },
        'the clock was set forward: for an hour, the inbox deletes nothing that is old only since then',
      )
    }
    return this.#aheadMs
  }
}
