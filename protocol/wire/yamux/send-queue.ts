import type { Buffer } from 'node:buffer'
import { Gathered, SMALL_PIECE_BYTES } from '../../base/gathered.ts'
import { latin1, writeLatin1 } from '../../base/latin1.ts'
import { ownBytes } from '../../base/own-bytes.ts'

/** Chunks of this size or more are sent as they are. Smaller ones are copied into the outgoing buffer. */
export const LARGE_CHUNK_BYTES = 16 * 1024
/** Chunks up to this size are kept as strings, which cost less than a view plus the bytes that it keeps alive. */
const TINY_CHUNK_BYTES = 64

/**
 * A head and a small body (length, bytes, terminator) are sent in the turn in which they were queued. Chunks beyond that are
 * likely to wait.
 */
const PASSING_CHUNKS = 5

type Given = Uint8Array | string
type Chunk = Given | Gathered

const EMPTY = ''
const COMPACT_AT = 64

/** Chunks of one stream that wait to be sent. Heads and framing are latin1 strings until they are copied into the outgoing buffer. */
export class SendQueue {
  bytes = 0
  /** Room for a small message. An empty array that grows by `push` would allocate room for seventeen elements, per stream. */
  readonly #chunks: Chunk[] = [EMPTY, EMPTY, EMPTY, EMPTY, EMPTY]
  #first = 0
  #end = 0
  #offset = 0

  push(chunk: Given): void {
    this.bytes += chunk.length
    const waiting = this.#end - this.#first
    const last = waiting > 0 ? this.#chunks[this.#end - 1] : undefined
    if (last instanceof Gathered) {
      if (chunk.length < SMALL_PIECE_BYTES && last.add(chunk)) return
      last.close()
    }
    this.#chunks[this.#end++] = waiting < PASSING_CHUNKS ? passing(chunk) : this.#kept(chunk)
  }

  #kept(chunk: Given): Chunk {
    if (chunk.length < SMALL_PIECE_BYTES) return new Gathered(chunk, this.bytes)
    return typeof chunk === 'string' ? chunk : ownBytes(chunk)
  }

  /** Call it when what is queued will wait: from now on, no chunk keeps much more memory than its own bytes. */
  waits(): void {
    const end = Math.min(this.#end, this.#first + PASSING_CHUNKS)
    for (let i = this.#first; i < end; i++) {
      const chunk = this.#chunks[i]!
      if (chunk instanceof Uint8Array) this.#chunks[i] = ownBytes(chunk)
    }
  }

  clear(): void {
    this.#chunks.length = 0
    this.#first = 0
    this.#end = 0
    this.#offset = 0
    this.bytes = 0
  }

  /** Bytes that can go into the next frame of at most `maxBytes`: of one large chunk, or of consecutive small ones. */
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

  /** Takes `bytes` of the first chunk without copying. `run` must have returned them, and more than a small chunk has. */
  slice(bytes: number): Uint8Array {
    const chunk = this.#chunks[this.#first] as Uint8Array
    const begin = this.#offset
    this.#skip(bytes)
    return begin === 0 && bytes === chunk.length ? chunk : chunk.subarray(begin, begin + bytes)
  }

  /** Copies `bytes` into `target` at `at`. `run` must have returned them. */
  copy(target: Buffer, at: number, bytes: number): void {
    let left = bytes
    while (left > 0) {
      const chunk = this.#chunks[this.#first]!
      const begin = this.#offset
      const part = Math.min(left, chunk.length - begin)
      const whole = part === chunk.length
      if (typeof chunk === 'string') {
        writeLatin1(target, whole ? chunk : chunk.slice(begin, begin + part), at + bytes - left)
      } else if (chunk instanceof Gathered) chunk.copy(target, at + bytes - left, begin, begin + part)
      else target.set(whole ? chunk : chunk.subarray(begin, begin + part), at + bytes - left)
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

function passing(chunk: Given): Given {
  return typeof chunk !== 'string' && chunk.length <= TINY_CHUNK_BYTES ? latin1(chunk) : chunk
}

function isLarge(chunk: Chunk, bytes: number): boolean {
  return bytes > LARGE_CHUNK_BYTES && typeof chunk !== 'string'
}
