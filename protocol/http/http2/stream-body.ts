/** The two directions of one HTTP/2 stream as bodies with credit, at either end of a session. */
import type { Http2Stream } from 'node:http2'
import { toSallyportError } from '../../base/errors.ts'
import { Gathered, GatheredChunks, SMALL_PIECE_BYTES } from '../../base/gathered.ts'
import type { Failing } from '../../base/guard.ts'
import { ownBytes } from '../../base/own-bytes.ts'
import type { HeldPieces } from './held-pieces.ts'

/** Size of a DATA frame. Progress is seen piece by piece, so a slow receiver is not mistaken for one that has stopped. */
const PIECE_BYTES = 16 * 1024
/** How much one stream hands to its session at a time, so that a hundred slow streams stay within the session's memory. */
const GIVEN_BYTES = 2 * PIECE_BYTES
/** The most pieces at a time, since each costs Node some hundred bytes. Later small pieces are gathered. */
const GIVEN_PIECES = 16

/** Writes chunks to a stream, and reports each piece once it has left for the session. */
export class StreamWriter {
  /** Bytes that have not left yet. */
  waiting = 0
  /** When bytes last left, or when the first of the waiting ones was written. */
  progressAt = 0
  ended = false
  /** Bytes that Node holds, or held when the stream ended. */
  givenBytes = 0
  /** The most that the session goes on counting since the stream ended before they left. */
  lostBytes = 0
  readonly #stream: Http2Stream
  readonly #sent: (bytes: number) => void
  readonly #owner: Failing
  readonly #queue: (Uint8Array | Gathered)[] = []
  readonly #held: HeldPieces
  readonly #startedAt: number
  #given: Uint8Array[] = []

  /** An error that is thrown outside of the owner's own calls ends `owner`. */
  constructor(stream: Http2Stream, sent: (bytes: number) => void, owner: Failing, held: HeldPieces) {
    this.#stream = stream
    this.#sent = sent
    this.#owner = owner
    this.#held = held
    this.#startedAt = held.written
    const destroy = stream.destroy.bind(stream)
    stream.destroy = error => {
      try {
        this.#lose()
        return destroy(error)
      } catch (thrown) {
        return destroy(toSallyportError(thrown))
      }
    }
  }

  /** While nghttp2 closes a stream, and only then, Node still tells whether its END_STREAM has left. */
  #lose(): void {
    const { destroyed, session } = this.#stream
    if (this.givenBytes === 0 || destroyed || session?.destroyed !== false) return
    if (this.#stream.state.localClose !== 1) this.lostBytes = this.givenBytes
  }

  write(given: Uint8Array): void {
    if (this.ended || this.#stream.closed) {
      this.#sent(given.length)
      return
    }
    if (this.#queue.length > 0 && given.length < SMALL_PIECE_BYTES) {
      this.#gather(given)
      return
    }
    // Even the first may wait: the receiver may have granted no window.
    const chunk = ownBytes(given)
    if (this.waiting === 0) this.progressAt = performance.now()
    this.waiting += chunk.length
    const last = this.#queue.at(-1)
    if (last instanceof Gathered) last.close()
    let start = 0
    for (; chunk.length - start > PIECE_BYTES; start += PIECE_BYTES) {
      this.#queue.push(chunk.subarray(start, start + PIECE_BYTES))
    }
    this.#queue.push(start === 0 ? chunk : chunk.subarray(start))
    this.#give()
  }

  #gather(piece: Uint8Array): void {
    const last = this.#queue.at(-1)
    if (!(last instanceof Gathered && last.add(piece))) {
      if (last instanceof Gathered) last.close()
      this.#queue.push(new Gathered(piece, this.waiting))
    }
    this.waiting += piece.length
  }

  end(): void {
    this.ended = true
    this.#give()
  }

  #give(): void {
    if (this.#stream.closed) return
    while (this.givenBytes < GIVEN_BYTES && this.#given.length < GIVEN_PIECES) {
      const next = this.#queue.shift()
      if (next === undefined) break
      const piece = next instanceof Gathered ? next.bytes : next
      this.#given.push(piece)
      this.givenBytes += piece.length
      this.#stream.write(piece, this.#onWritten)
    }
    if (this.ended && this.#queue.length === 0 && !this.#stream.writableEnded) this.#stream.end()
  }

  /** The stream is over. What waits will not leave, but is still reported to `sent`. */
  drop(): void {
    const { waiting } = this
    this.ended = true
    this.waiting = 0
    this.#queue.length = 0
    this.#held.hold(this.#given, this.givenBytes, this.#startedAt)
    this.#given = []
    if (waiting > 0) this.#sent(waiting)
  }

  readonly #onWritten = (error?: Error | null): void => {
    try {
      this.#written(error)
    } catch (thrown) {
      this.#owner.threw(thrown)
    }
  }

  #written(error: Error | null | undefined): void {
    // What is destroyed reports as written what has not left.
    if (error || this.#stream.destroyed) return
    const bytes = this.#given.shift()?.length ?? 0
    this.givenBytes -= bytes
    // Nothing is reported piece by piece once the stream is over, since its end drops the rest.
    if (this.#stream.closed) return
    this.waiting -= bytes
    this.progressAt = performance.now()
    this.#give()
    this.#sent(bytes)
  }
}

/**
 * Reads chunks from a stream, and pauses it while more than `limit` bytes are unconsumed. What arrives then, at most a window of it, is
 * kept here: Node would keep a buffer of its own for each DATA frame, even of one byte, and with it all that was read in the same turn.
 */
export class StreamReader {
  /** When bytes last arrived. */
  readAt = performance.now()
  readonly #stream: Http2Stream
  readonly #limit: number
  readonly #owner: Failing
  #unconsumed = 0
  /** Nobody reads yet. */
  #isHeld = false
  readonly #push: Http2Stream['push']
  #onData: ((chunk: Buffer) => void) | undefined
  /** What arrived while the stream was paused. */
  #kept: GatheredChunks | undefined
  /** Bytes that were read, and the number of frames that carried them. One that waited may count twice. */
  bytes = 0
  frames = 0

  /** An error that is thrown outside of the owner's own calls ends `owner`. */
  constructor(stream: Http2Stream, limit: number, owner: Failing) {
    this.#stream = stream
    this.#limit = limit
    this.#owner = owner
    this.#push = stream.push
    stream.push = this.#arrived
  }

  /** Node stops reading, and gives the caller no more window, when this returns false. */
  readonly #arrived = (chunk: Buffer | null, encoding?: BufferEncoding): boolean => {
    if (chunk !== null && (this.full || this.#isHeld)) {
      this.frames++
      this.#kept ??= new GatheredChunks()
      this.#kept.add(chunk)
      return false
    }
    if (chunk === null) this.#release()
    return this.#push.call(this.#stream, chunk, encoding)
  }

  #release(): void {
    for (const chunk of this.#kept ?? []) this.#push.call(this.#stream, chunk)
    this.#kept = undefined
  }

  /** The receiver holds everything back, so silence is not the sender's fault. */
  get full(): boolean {
    return this.#unconsumed > this.#limit
  }

  /** Keeps what arrives until `start` or `discard`. */
  hold(): void {
    this.#isHeld = true
  }

  start(onData: (chunk: Buffer) => void): void {
    this.readAt = performance.now()
    this.#onData = onData
    this.#isHeld = false
    this.#release()
    this.#stream.on('data', (chunk: Buffer) => {
      try {
        this.#take(chunk)
      } catch (error) {
        this.#owner.threw(error)
      }
    })
  }

  #take(chunk: Buffer): void {
    this.readAt = performance.now()
    this.bytes += chunk.length
    this.frames++
    if (this.#onData === undefined) return
    this.#unconsumed += chunk.length
    if (this.full) this.#stream.pause()
    this.#onData(chunk)
  }

  /** Discards whatever still arrives. */
  discard(): void {
    this.#onData = undefined
    this.#unconsumed = 0
    this.#isHeld = false
    this.#release()
    this.#stream.resume()
  }

  consumed(bytes: number): void {
    const wasFull = this.full
    this.#unconsumed -= bytes
    if (!wasFull || this.full) return
    this.readAt = performance.now()
    this.#release()
    this.#stream.resume()
  }
}
