import { Buffer } from 'node:buffer'
import { writeLatin1 } from './latin1.ts'
import { ownBytes } from './own-bytes.ts'

/** Pieces from here on are kept as they are: they cost little more than their bytes. */
export const SMALL_PIECE_BYTES = 1024
const LEAST_ROOM_BYTES = 256
const MOST_ROOM_BYTES = 4 * 1024

/** Small pieces, bytes or latin1 text, one behind the other in one buffer: an object for each would cost far more than its bytes. */
export class Gathered {
  /** Bytes of the pieces. */
  length: number
  #buffer: Buffer

  /** Begins with `piece`. The room for others is about as much as waits already, `waitingBytes`. */
  constructor(piece: Uint8Array | string, waitingBytes: number) {
    const room = Math.min(Math.max(waitingBytes, LEAST_ROOM_BYTES), MOST_ROOM_BYTES)
    this.#buffer = Buffer.allocUnsafeSlow(Math.max(room, piece.length))
    this.length = 0
    this.add(piece)
  }

  /** False: there is no room for it. */
  add(piece: Uint8Array | string): boolean {
    if (this.#buffer.length - this.length < piece.length) return false
    if (typeof piece === 'string') writeLatin1(this.#buffer, piece, this.length)
    else this.#buffer.set(piece, this.length)
    this.length += piece.length
    return true
  }

  /** Nothing is added any more: gives back the room if most of it is empty. */
  close(): void {
    if (this.length < this.#buffer.length / 2) {
      const buffer = Buffer.allocUnsafeSlow(this.length)
      buffer.set(this.#buffer.subarray(0, this.length))
      this.#buffer = buffer
    }
  }

  /** All of it, without copying; nothing is added any more. */
  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.length)
  }

  /** Copies the bytes from `begin` to `end` into `target` at `at`. */
  copy(target: Uint8Array, at: number, begin: number, end: number): void {
    target.set(this.#buffer.subarray(begin, end), at)
  }
}

/** Chunks that wait, in their order: small ones are gathered, and none keeps much more memory than its own. */
export class GatheredChunks implements Iterable<Uint8Array> {
  readonly #chunks: (Uint8Array | Gathered)[] = []
  /** The last of them, if it takes more small ones. */
  #open: Gathered | undefined
  /** Of all that was added, and not taken by `shift`. */
  bytes = 0

  add(chunk: Uint8Array): void {
    if (chunk.length >= SMALL_PIECE_BYTES) {
      this.#close()
      this.#chunks.push(ownBytes(chunk))
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

  /** Takes the oldest bytes; undefined if fewer than `least` would be left, or there are none. */
  shift(least = 0): Uint8Array | undefined {
    const first = this.#chunks[0]
    if (first === undefined || this.bytes - first.length < least) return undefined
    if (first === this.#open) this.#open = undefined
    this.#chunks.shift()
    this.bytes -= first.length
    return first instanceof Gathered ? first.bytes : first
  }

  /** What is added meanwhile comes as well. */
  *[Symbol.iterator](): Generator<Uint8Array, void> {
    for (const chunk of this.#chunks) {
      // What was handed over takes no more.
      this.#open = undefined
      yield chunk instanceof Gathered ? chunk.bytes : chunk
    }
  }
}
