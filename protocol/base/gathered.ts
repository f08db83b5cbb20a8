import { Buffer } from 'node:buffer'
import { writeLatin1 } from './latin1.ts'
import { ownBytes } from './own-bytes.ts'

/** Pieces of at least this size are kept as they are, since they cost little more than their bytes. */
export const SMALL_PIECE_BYTES = 1024
const LEAST_ROOM_BYTES = 256
/** The most that a buffer of gathered pieces holds. */
export const MOST_ROOM_BYTES = 4 * 1024

/** Gathers small pieces, bytes or latin1 text, in one buffer, since an object for each would cost far more than its bytes. */
export class Gathered {
  /** Bytes of the pieces. */
  length: number
  #buffer: Buffer

  /** Begins with `piece`, and leaves room for about as many bytes as already wait (`waitingBytes`). */
  constructor(piece: Uint8Array | string, waitingBytes: number) {
    const room = Math.min(Math.max(waitingBytes, LEAST_ROOM_BYTES), MOST_ROOM_BYTES)
    this.#buffer = Buffer.allocUnsafeSlow(Math.max(room, piece.length))
    this.length = 0
    this.add(piece)
  }

  /** Returns false if there is no room for the piece. */
  add(piece: Uint8Array | string): boolean {
    if (this.#buffer.length - this.length < piece.length) return false
    if (typeof piece === 'string') writeLatin1(this.#buffer, piece, this.length)
    else this.#buffer.set(piece, this.length)
    this.length += piece.length
    return true
  }

  /** Call it when nothing more will be added. Frees the unused room if that is most of it. */
  close(): void {
    if (this.length < this.#buffer.length / 2) {
      const buffer = Buffer.allocUnsafeSlow(this.length)
      buffer.set(this.#buffer.subarray(0, this.length))
      this.#buffer = buffer
    }
  }

  /** All bytes, without copying. Nothing may be added after this. */
  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.length)
  }

  /** Copies the bytes from `begin` to `end` into `target` at `at`. */
  copy(target: Uint8Array, at: number, begin: number, end: number): void {
    target.set(this.#buffer.subarray(begin, end), at)
  }
}

/** A queue of chunks. Small ones are gathered, and none keeps much more memory than its own bytes. */
export class GatheredChunks implements Iterable<Uint8Array> {
  readonly #chunks: (Uint8Array | Gathered)[] = []
  /** The last chunk, if it has room for more small ones. */
  #open: Gathered | undefined
  /** Bytes that were added and not removed by `shift`. */
  bytes = 0
  readonly #leastShare: number | undefined

  /** A large chunk is copied if it uses less than `leastShare` of its memory. */
  constructor(leastShare?: number) {
    this.#leastShare = leastShare
  }

  add(chunk: Uint8Array): void {
    if (chunk.length >= SMALL_PIECE_BYTES) {
      this.#close()
      this.#chunks.push(ownBytes(chunk, this.#leastShare))
    } else if (this.#open?.add(chunk) !== true) {
      this.#close()
      this.#open = new Gathered(chunk, this.bytes)
      this.#chunks.push(this.#open)
    }
    this.bytes += chunk.length
  }

  #close(): void {
    this.#open?.close()
    this.#open = undefined
  }

  clear(): void {
    this.#chunks.length = 0
    this.#open = undefined
    this.bytes = 0
  }

  /** Removes the oldest bytes, but leaves at least `least`. Undefined if that is nothing, or too few bytes to be worth a piece. */
  shift(least = 0): Uint8Array | undefined {
    const first = this.#chunks[0]
    const most = this.bytes - least
    if (first === undefined || most < Math.min(first.length, MOST_ROOM_BYTES)) return undefined
    if (first === this.#open) this.#open = undefined
    const bytes = first instanceof Gathered ? first.bytes : first
    if (bytes.length <= most) {
      this.#chunks.shift()
      this.bytes -= bytes.length
      return bytes
    }
    this.#chunks[0] = ownBytes(bytes.subarray(most), this.#leastShare)
    this.bytes = least
    return bytes.subarray(0, most)
  }

  /** Also yields chunks that are added during the iteration. */
  *[Symbol.iterator](): Generator<Uint8Array, void> {
    for (const chunk of this.#chunks) {
      // Nothing may be added to a chunk that was handed out.
      this.#open = undefined
      yield chunk instanceof Gathered ? chunk.bytes : chunk
    }
  }
}
