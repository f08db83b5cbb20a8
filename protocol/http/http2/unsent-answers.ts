/** What Node keeps of a session's answers, after their streams have ended, too, until the peer's kernel takes it. */
import type { Http2Session } from 'node:http2'
import type { Socket } from 'node:net'
import { textBytes } from '../headers.ts'
import { queuedInHandle } from '../http1/write-progress.ts'

/** What a head takes beside its text, and each name and each value in nghttp2. */
const HEAD_BYTES = 512
const TEXT_OVERHEAD_BYTES = 20
/** The most that is given to the session before somebody must look whether it has left. */
const FRESH_BYTES = 64 * 1024

export class UnsentAnswers {
  /** How much waited at the last look. */
  bytes = 0
  readonly #session: Http2Session
  readonly #socket: Socket
  /** Sizes of heads, in order. The last of them may wait in nghttp2. */
  readonly #heads: number[] = []
  /** What was written to the socket, until it has taken everything up to `end`. */
  readonly #written: { bytes: number; end: number }[] = []
  /** The bodies of streams that ended since the last look. Node may be about to write them: it ends streams before. */
  #leftBytes = 0
  #freshBytes = 0

  constructor(session: Http2Session, socket: Socket) {
    this.#session = session
    this.#socket = socket
  }

  /** A head or trailers were given to the session. Returns whether a look is due. */
  head(fields: readonly string[]): boolean {
    const bytes = HEAD_BYTES + fields.length * TEXT_OVERHEAD_BYTES + textBytes(fields)
    this.#heads.push(bytes)
    this.#freshBytes += bytes
    return this.#freshBytes > FRESH_BYTES
  }

  /** A stream has ended, of whose body this much may wait in the socket. Returns whether a look is due, once this turn is over. */
  body(bytes: number): boolean {
    const before = this.#leftBytes
    this.#leftBytes += bytes
    return before <= FRESH_BYTES && this.#leftBytes > FRESH_BYTES
  }

  /** Returns how much more waits than at the last look. */
  look(): number {
    this.#freshBytes = 0
    if (this.#heads.length + this.#written.length + this.#leftBytes === 0) return 0
    const queued = queuedInHandle(this.#socket)
    const end = this.#socket.bytesWritten
    // A session that has ended keeps what waits until the socket has taken its last write.
    const inSession = this.#session.state.outboundQueueSize ?? this.#heads.length
    this.#leftBytes += sum(this.#heads.splice(0, Math.max(0, this.#heads.length - inSession)))
    if (this.#leftBytes > 0) this.#written.push({ bytes: this.#leftBytes, end })
    this.#leftBytes = 0
    while (this.#written.length > 0 && this.#written[0]!.end <= end - queued) this.#written.shift()
    // If nothing waits in the socket, what waits in nghttp2 leaves within this turn.
    const inSocket = Math.min(queued, sum(this.#written.map(({ bytes }) => bytes)))
    const before = this.bytes
    this.bytes = queued === 0 ? 0 : sum(this.#heads) + inSocket
    return this.bytes - before
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
