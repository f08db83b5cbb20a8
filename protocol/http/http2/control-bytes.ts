/** Frames that carry nothing, less those that a reader of our bytes needs to update its windows and to measure the path. */
import { LOOK_MS, timeLeft } from '../../base/deadline-watch.ts'
import type { Http2Connection } from './connection.ts'

/** For each KB that we send, a peer may send a window update of 13 bytes for the connection and another for the stream. */
const WINDOW_SHARE = 40
/** For each piece of a body, however small, a peer may send a ping of 17 bytes and two window updates of 13. */
const PIECE_ECHO_BYTES = 17 + 2 * 13
/** And this much for each request, beside its head and body. */
const REQUEST_CONTROL_BYTES = 4 * 1024
/** What is left of that after requests is kept for as many as are usually under way at most. Frames of more are no longer on their way. */
const MOST_LEFT = 100 * REQUEST_CONTROL_BYTES

export class ControlBytes {
  /** What requests that are over account for, and the surplus at the last look. */
  #accounted = 0
  #surplus = 0
  #lookedAt = performance.now()

  /** A request is over. */
  requestOver(): void {
    this.#accounted += REQUEST_CONTROL_BYTES
  }

  /** Calls `tooMany` if there were more than `limit` a second since the last look. Returns the time until the next one. */
  check(connection: Http2Connection, written: number, limit: number, now: number, tooMany: () => void): number {
    if (limit === 0) return LOOK_MS
    const left = timeLeft(this.#lookedAt, LOOK_MS, now)
    if (left > 0) return left
    const { controlBytes, sender, streams } = connection
    const echoed = Math.floor(written / WINDOW_SHARE) + sender.pieces * PIECE_ECHO_BYTES
    const others = Math.max(0, controlBytes - echoed)
    const surplus = Math.max(0, others - this.#accounted - streams.size * REQUEST_CONTROL_BYTES)
    if (surplus - this.#surplus > (limit * (now - this.#lookedAt)) / 1000) tooMany()
    this.#surplus = surplus
    this.#accounted = Math.min(this.#accounted, others + MOST_LEFT)
    this.#lookedAt = now
    return LOOK_MS
  }
}
