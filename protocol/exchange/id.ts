import { Buffer } from 'node:buffer'
import { randomFillSync } from 'node:crypto'
import { latin1 } from '../latin1.ts'

const ID_BYTES = 16
const BLOCK_BYTES = 4096

/** Makes exchange ids; asks the system for random bytes once in 256 ids. */
export class ExchangeIds {
  #block = ''
  #used = 0

  next(): string {
    if (this.#used === this.#block.length) {
      this.#block = latin1(randomFillSync(Buffer.allocUnsafe(BLOCK_BYTES)))
      this.#used = 0
    }
    const start = this.#used
    this.#used += ID_BYTES
    return this.#block.slice(start, this.#used)
  }
}

/** An exchange id as text, for logs. */
export function exchangeIdText(id: string): string {
  return Buffer.from(id, 'latin1').toString('hex')
}

const ids = new ExchangeIds()

/** 16 random bytes, as latin1 text. */
export function newExchangeId(): string {
  return ids.next()
}
