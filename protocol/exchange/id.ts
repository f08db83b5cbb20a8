import { Buffer } from 'node:buffer'
import { randomFillSync } from 'node:crypto'

const ID_BYTES = 16
const BLOCK_BYTES = 4096

/** Makes exchange ids; asks the system for random bytes once in 256 ids. */
export class ExchangeIds {
  #block = Buffer.alloc(0)
  #used = 0

  next(): Uint8Array {
    if (this.#used === this.#block.length) {
      this.#block = randomFillSync(Buffer.allocUnsafeSlow(BLOCK_BYTES))
      this.#used = 0
    }
    const start = this.#used
    this.#used += ID_BYTES
    return this.#block.subarray(start, this.#used)
  }
}

/** An exchange id as text, for logs. */
export function exchangeIdText(id: Uint8Array): string {
  return Buffer.from(id.buffer, id.byteOffset, id.byteLength).toString('hex')
}

const ids = new ExchangeIds()

/** 16 random bytes. */
export function newExchangeId(): Uint8Array {
  return ids.next()
}
