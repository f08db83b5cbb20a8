/** Size of every buffer of a pool: the largest frame that we send, with its header and frames of control beside it. */
import { Buffer } from 'node:buffer'
export const POOL_BUFFER_BYTES = 65 * 1024

/** Outgoing buffers that are used again: a fresh one per write keeps the garbage collector busy. */
export class BufferPool {
  readonly #free: Buffer[] = []
  readonly #maxFree: number

  /** @param maxFree buffers kept while nobody uses them; more are left to the collector. Default 16 (1 MiB). */
  constructor(maxFree = 16) {
    this.#maxFree = maxFree
  }

  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(POOL_BUFFER_BYTES)
  }

  give(buffer: Buffer): void {
    if (this.#free.length < this.#maxFree) this.#free.push(buffer)
  }

  /** Forgets all but `keep` of the free buffers. */
  trim(keep = 0): void {
    if (this.#free.length > keep) this.#free.length = keep
  }
}
