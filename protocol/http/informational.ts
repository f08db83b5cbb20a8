import type { HeaderList } from '../exchange.ts'
import { textBytes } from './headers.ts'
import type { HttpLimits } from './limits.ts'

/** The informational responses that an exchange may still send. No credit bounds them, even if their caller reads nothing. */
export class Informational {
  #left: number
  #bytesLeft: number

  constructor({ informational, headBytes }: HttpLimits) {
    this.#left = informational
    this.#bytesLeft = headBytes
  }

  /** Whether another one may be sent. Together they are no longer than a head may be. */
  admits(headers: HeaderList): boolean {
    this.#bytesLeft -= textBytes(headers)
    return --this.#left >= 0 && this.#bytesLeft >= 0
  }
}
