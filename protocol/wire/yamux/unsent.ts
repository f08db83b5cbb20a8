import type { Buffer } from 'node:buffer'
import { type Clock, ZERO } from './clock.ts'
import type { BufferPool } from './pool.ts'

/** Buffers that were given to the transport and not taken yet, oldest first. Those of the pool return to it once taken. */
export class Unsent {
  bytes = 0
  readonly #pool: BufferPool
  readonly #clock: Clock
  /** `undefined` stands for a buffer that does not belong to the pool. */
  readonly #buffers: (Buffer | undefined)[] = []
  readonly #sizes: number[] = []
  #progressAt = ZERO

  constructor(pool: BufferPool, clock: Clock) {
    this.#pool = pool
    this.#clock = clock
  }

  /** Since when the transport has taken nothing although something waits; undefined if nothing waits. */
  get stalledSince(): number | undefined {
    return this.bytes > 0 ? this.#progressAt : undefined
  }

  add(buffer: Buffer | undefined, bytes: number): void {
    if (this.bytes === 0) this.#progressAt = this.#clock.now()
    this.bytes += bytes
    this.#buffers.push(buffer)
    this.#sizes.push(bytes)
  }

  /** The transport has taken the oldest buffer. Returns its size; 0 if all were forgotten. */
  taken(): number {
    const bytes = this.#sizes.shift()
    if (bytes === undefined) return 0
    const buffer = this.#buffers.shift()
    if (buffer !== undefined) this.#pool.give(buffer)
    this.bytes -= bytes
    this.#progressAt = this.#clock.now()
    return bytes
  }

  /** The transport is gone. It may still read the buffers, so they do not return to the pool. */
  forget(): void {
    this.bytes = 0
    this.#buffers.length = 0
    this.#sizes.length = 0
  }
}
