import type { Buffer } from 'node:buffer'
import { latin1, writeLatin1 } from '../latin1.ts'
import { ownBytes } from '../own-bytes.ts'

/** Chunks from here on are sent as they are; smaller ones are copied into the outgoing buffer. */
export const LARGE_CHUNK_BYTES = 16 * 1024
/** Chunks up to here are kept as text, joined with text before them that is as short. */
const TINY_CHUNK_BYTES = 64

/** A head and a small body leave in the turn that they came in; chunks behind them are likely to wait. */
const PASSING_CHUNKS = 4

type Chunk = Uint8Array | string

const EMPTY = ''
const COMPACT_AT = 64

/** Chunks of one stream that wait to be sent. Heads and framing are latin1 text until they stand in the outgoing buffer. */
export class SendQueue {
  bytes = 0
  /** Room for a small message: an empty array that grows by `push` has room for seventeen, once for each stream. */
  readonly #chunks: Chunk[] = [EMPTY, EMPTY, EMPTY, EMPTY, EMPTY]
  #first = 0
  #end = 0
  #offset = 0

  push(given: Chunk): void {
    const chunk = typeof given === 'string' ? given : this.#kept(given)
    this.bytes += chunk.length
    const last = this.#end - 1
    if (typeof chunk === 'string' && chunk.length <= TINY_CHUNK_BYTES && last >= this.#first) {
      const before = this.#chunks[last]
      if (typeof before === 'string' && before.length <= TINY_CHUNK_BYTES) {
        this.#chunks[last] = before + chunk
        return
      }
    }
    this.#chunks[this.#end++] = chunk
  }

  #kept(chunk: Uint8Array): Chunk {
    // A flood of tiny chunks becomes one text: an object for each would cost far more than its bytes.
    if (chunk.length <= TINY_CHUNK_BYTES) return latin1(chunk)
    return this.#end - this.#first < PASSING_CHUNKS ? chunk : ownBytes(chunk)
  }

  clear(): void {
    this.#chunks.length = 0
    this.#first = 0
    this.#end = 0
    this.#offset = 0
    this.bytes = 0
  }

  /** Bytes that can go into the next frame of at most `maxBytes`: of one large chunk, or of small ones in a row. */
  run(maxBytes: number): number {
    const first = this.#chunks[this.#first]!
    let run = first.length - this.#offset
    if (isLarge(first, run)) return Math.min(run, maxBytes)
    const most = Math.min(maxBytes, LARGE_CHUNK_BYTES)
    for (let i = this.#first + 1; run < most && i < this.#end; i++) {
      const chunk = this.#chunks[i]!
      if (isLarge(chunk, chunk.length)) break
      run += chunk.length
    }
    return Math.min(run, most)
  }

  /** Takes `bytes` of the first chunk without copying; `run` said that they are there, and more than a small chunk has. */
  slice(bytes: number): Uint8Array {
    const chunk = this.#chunks[this.#first] as Uint8Array
    const begin = this.#offset
    this.#skip(bytes)
    return begin === 0 && bytes === chunk.length ? chunk : chunk.subarray(begin, begin + bytes)
  }

  /** Copies `bytes` into `target` at `at`; `run` said that they are there. */
  copy(target: Buffer, at: number, bytes: number): void {
    let left = bytes
    while (left > 0) {
      const chunk = this.#chunks[this.#first]!
      const begin = this.#offset
      const part = Math.min(left, chunk.length - begin)
      const whole = part === chunk.length
      if (typeof chunk === 'string') {
        writeLatin1(target, whole ? chunk : chunk.slice(begin, begin + part), at + bytes - left)
      } else target.set(whole ? chunk : chunk.subarray(begin, begin + part), at + bytes - left)
      this.#skip(part)
      left -= part
    }
  }

  #skip(bytes: number): void {
    this.bytes -= bytes
    this.#offset += bytes
    const chunk = this.#chunks[this.#first]!
    if (this.#offset < chunk.length) return
    this.#offset = 0
    this.#chunks[this.#first++] = EMPTY
    if (this.#first === this.#end) {
      if (this.#end > COMPACT_AT) this.#chunks.length = 0
      this.#first = 0
      this.#end = 0
    } else if (this.#first === COMPACT_AT) {
      this.#chunks.splice(0, COMPACT_AT)
      this.#first = 0
      this.#end -= COMPACT_AT
    }
  }
}

function isLarge(chunk: Chunk, bytes: number): boolean {
  return bytes > LARGE_CHUNK_BYTES && typeof chunk !== 'string'
}
