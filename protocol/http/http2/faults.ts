/**
 * Which breach of the rules ends a session. If a message is malformed, nghttp2 resets its stream and goes on (RFC 9113, section
 * 8.1.1); if the connection is, nghttp2 says go-away and reads nothing more. Node ends the session at both, with the same error.
 */
import type { Http2Session } from 'node:http2'

const NGHTTP2_ERR_PROTO = -505

export class Faults {
  readonly #session: Http2Session
  readonly #most: number
  #spared = 0

  /** Node counts what is malformed and ends the session behind `most`. Half of it is enough to take no more streams. */
  constructor(session: Http2Session, most: number) {
    this.#session = session
    this.#most = most
  }

  /** Whether the session goes on, although Node ends it with `error`. */
  spares(error: Error | undefined): boolean {
    if ((error as NodeJS.ErrnoException | undefined)?.errno !== NGHTTP2_ERR_PROTO) return false
    // The reset of a stream is on its way by now. Behind its go-away, nghttp2 has nothing on its way, and Node then tells again.
    const { outboundQueueSize = 0 } = this.#session.state
    if (outboundQueueSize === 0 || this.#spared === this.#most) return false
    if (++this.#spared === Math.ceil(this.#most / 2)) this.#session.close()
    return true
  }
}
