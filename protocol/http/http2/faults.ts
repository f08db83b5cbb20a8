/**
 * Decides which protocol violations end a session. After a malformed message, nghttp2 resets its stream and continues (RFC 9113,
 * section 8.1.1). After a connection error, it sends a go-away and reads nothing more. Node ends both with the same error.
 */
import type { Http2Session } from 'node:http2'

const NGHTTP2_ERR_PROTO = -505

/** Whether `error` is nghttp2's, so that we end the session. Node reports a go-away of the peer with another code. */
export function isViolation(error: Error | undefined): boolean {
  const { code } = (error ?? {}) as NodeJS.ErrnoException
  return code === 'ERR_HTTP2_ERROR' || code === 'ERR_HTTP2_TOO_MANY_INVALID_FRAMES'
}

export class Faults {
  readonly #session: Http2Session
  readonly #most: number
  #spared = 0

  /** Node counts malformed messages, and ends the session after `most` of them. From half of `most` on, we accept no more streams. */
  constructor(session: Http2Session, most: number) {
    this.#session = session
    this.#most = most
  }

  /** Whether the session continues although Node ends it with `error`. */
  spares(error: Error | undefined): boolean {
    if ((error as NodeJS.ErrnoException | undefined)?.errno !== NGHTTP2_ERR_PROTO) return false
    // After a malformed message, the reset is queued by now. After a go-away, the queue is empty, and Node reports the error again.
    const { outboundQueueSize = 0 } = this.#session.state
    if (outboundQueueSize === 0 || this.#spared === this.#most) return false
    if (++this.#spared === Math.ceil(this.#most / 2)) this.#session.close()
    return true
  }
}
