/** Chunks from here on are sent as they are; smaller ones are copied into the outgoing buffer. */
export const LARGE_CHUNK_BYTES = 16 * 1024

/** Chunks of one stream that wait to be sent. */
export class SendQueue {
  bytes = 0
  readonly #chunks: Uint8Array[] = []
  #first = 0
  #offset = 0

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk)
    this.bytes += chunk.length
  }

  clear(): void {
    this.#chunks.length = 0
    this.#first = 0
    this.#offset = 0
    this.bytes = 0
  }

  /** Bytes that can go into the next frame of at most `maxBytes`: of one large chunk, or of small ones in a row. */
  run(maxBytes: number): number {
    let run = this.#chunks[this.#first]!.length - this.#offset
    if (run > LARGE_CHUNK_BYTES) return Math.min(run, maxBytes)
    const most = Math.min(maxBytes, LARGE_CHUNK_BYTES)
    for (let i = this.#first + 1; run < most && i < this.#chunks.length; i++) {
      const length = this.#chunks[i]!.length
      if (length > LARGE_CHUNK_BYTES) break
      run += length
    }
    return Math.min(run, most)
  }

  /** Takes `bytes` of the first chunk without copying; `run` said that they are there. */
  slice(bytes: number): Uint8Array {
    const chunk = this.#chunks[this.#first]!
    const begin = this.#offset
    this.#skip(bytes)
    return begin === 0 && bytes === chunk.length ? chunk : chunk.subarray(begin, begin + bytes)
  }

  /** Copies `bytes` into `target` at `at`; `run` said that they are there. */
  copy(target: Uint8Array, at: number, bytes: number): void {
    let left = bytes
    while (left > 0) {
      const chunk = this.#chunks[this.#first]!
      const part = Math.min(left, chunk.length - this.#offset)
      const whole = part === chunk.length
      target.set(whole ? chunk : chunk.subarray(this.#offset, this.#offset + part), at + bytes - left)
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
    if (this.#first === this.#chunks.length) {
      this.#chunks.length = 0
      this.#first = 0
    } else if (this.#first === COMPACT_AT) {
      this.#chunks.splice(0, COMPACT_AT)
      this.#first = 0
    }
  }
}

const EMPTY = new Uint8Array(0)
const COMPACT_AT = 64
