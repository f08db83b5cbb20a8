import { Buffer } from 'node:buffer'

/** Size of each buffer in a pool: the largest frame that we send, with its header and some control frames. */
export const POOL_BUFFER_BYTES = 65 * 1024

/** Reuses outgoing buffers, since a fresh one per write would keep the garbage collector busy. */
export class BufferPool {
  readonly #free: Buffer[] = []
  readonly #maxFree: number

  /** @param maxFree most unused buffers to keep; any more are left to the collector. Default 16 (1 MiB). */
  constructor(maxFree = 16) {
    this.#maxFree = maxFree
  }

  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(POOL_BUFFER_BYTES)
  }

  give(buffer: Buffer): void {
    if (this.#free.length < this.#maxFree) this.#free.push(buffer)
  }

  /** Drops all but `keep` of the free buffers. */
  trim(keep = 0): void {
    if (this.#free.length > keep) this.#free.length = keep
  }
}
