/** The two directions of one HTTP/2 stream as bodies with credit, at either end of a session. */
import type { Http2Stream } from 'node:http2'

/** As large as a DATA frame: progress is seen piece by piece, so that a slow receiver is not taken for a stopped one. */
const PIECE_BYTES = 16 * 1024

/** Writes chunks to a stream, and tells of each when it has left for the session. */
export class StreamWriter {
  /** Bytes that have not left yet. */
  waiting = 0
  /** When bytes left last, or when the first of those waiting was written. */
  progressAt = 0
  readonly #stream: Http2Stream
  readonly #sent: (bytes: number) => void
  readonly #sizes: number[] = []

  constructor(stream: Http2Stream, sent: (bytes: number) => void) {
    this.#stream = stream
    this.#sent = sent
  }

  write(chunk: Uint8Array, last: boolean): void {
    if (this.#stream.destroyed || this.#stream.writableEnded) return
    if (this.waiting === 0) this.progressAt = performance.now()
    this.waiting += chunk.length
    let start = 0
    for (; chunk.length - start > PIECE_BYTES; start += PIECE_BYTES) {
      this.#write(chunk.subarray(start, start + PIECE_BYTES), false)
    }
    this.#write(start === 0 ? chunk : chunk.subarray(start), last)
  }

  #write(piece: Uint8Array, last: boolean): void {
    this.#sizes.push(piece.length)
    this.#stream.write(piece, this.#onWritten)
    if (last) this.#stream.end()
  }

  readonly #onWritten = (error?: Error | null): void => {
    const bytes = this.#sizes.shift() ?? 0
    this.waiting -= bytes
    if (error) return
    this.progressAt = performance.now()
    this.#sent(bytes)
  }
}

/** Reads chunks from a stream, which is paused while more than `limit` bytes are unconsumed. */
export class StreamReader {
  /** When bytes came last. */
  readAt = performance.now()
  readonly #stream: Http2Stream
  readonly #limit: number
  #unconsumed = 0

  constructor(stream: Http2Stream, limit: number) {
    this.#stream = stream
    this.#limit = limit
  }

  /** The receiver holds everything back; silence is not the sender's fault. */
  get full(): boolean {
    return this.#unconsumed > this.#limit
  }

  start(onData: (chunk: Buffer) => void): void {
    this.readAt = performance.now()
    this.#stream.on('data', (chunk: Buffer) => {
      this.readAt = performance.now()
      this.#unconsumed += chunk.length
      if (this.full) this.#stream.pause()
      onData(chunk)
    })
  }

  consumed(bytes: number): void {
    const wasFull = this.full
    this.#unconsumed -= bytes
    if (!wasFull || this.full) return
    this.readAt = performance.now()
    this.#stream.resume()
  }
}
