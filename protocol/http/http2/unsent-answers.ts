/** What Node keeps of a session's answers, after their streams have ended, too, until the peer's kernel takes it. */
import type { Http2Session } from 'node:http2'
import type { Socket } from 'node:net'
import { textBytes } from '../headers.ts'
import { queuedInHandle } from '../http1/write-progress.ts'
import type { HeldPieces } from './held-pieces.ts'

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
  readonly #held: HeldPieces
  /** Sizes of heads, in order. The last of them may wait in nghttp2. */
  readonly #heads: number[] = []
  /** What the session had written to the socket at the last look. */
  #end = 0
  /** The most that its last write can be. It begins one when the one before has ended, and Node keeps all of it until then. */
  #writeBytes = 0
  /** Heads that the last write may contain. */
  #writtenBytes = 0
  #freshBytes = 0

  constructor(session: Http2Session, socket: Socket, held: HeldPieces) {
    this.#session = session
    this.#socket = socket
    this.#held = held
  }

  /** A head or trailers were given to the session. Returns whether a look is due. */
  head(fields: readonly string[]): boolean {
    const bytes = HEAD_BYTES + fields.length * TEXT_OVERHEAD_BYTES + textBytes(fields)
    this.#heads.push(bytes)
    return this.more(bytes)
  }

  /** This much more may wait. Returns whether a look is due, once until the next look. */
  more(bytes: number): boolean {
    const before = this.#freshBytes
    this.#freshBytes += bytes
    return before <= FRESH_BYTES && this.#freshBytes > FRESH_BYTES
  }

  /** Returns how much more waits than at the last look. One that is due waits for the end of the turn: Node ends streams before it writes. */
  look(): number {
    this.#freshBytes = 0
    const end = this.#socket.bytesWritten
    if (end !== this.#end) {
      this.#writeBytes = end - this.#end
      this.#writtenBytes = 0
      this.#end = end
    }
    if (this.#heads.length + this.#writtenBytes + this.#held.bytes + this.bytes === 0) return 0
    // A session that has ended keeps what waits until the socket has taken its last write.
    const inSession = this.#session.state.outboundQueueSize ?? this.#heads.length
    this.#writtenBytes += sum(this.#heads.splice(0, Math.max(0, this.#heads.length - inSession)))
    const before = this.bytes
    const queued = queuedInHandle(this.#socket)
    const written = Math.min(this.#writeBytes, this.#writtenBytes) + this.#held.bytes
    // TLS keeps an encrypted copy of what the kernel has not taken.
    const copied = 'encrypted' in this.#socket ? Math.min(queued, written) : 0
    // If nothing waits in the socket, what waits in nghttp2 leaves within this turn.
    this.bytes = queued === 0 ? 0 : sum(this.#heads) + written + copied
    return this.bytes - before
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
