import { Tally } from './tally.ts'

/** The share of the total that one owner may use, so that others are left enough. */
const OWN_SHARE = 1 / 4

/** Bytes of bodies that all exchanges together keep, to send them again. Their owner is a runtime, or a network of callers. */
export class ReplayBudget {
  readonly perExchange: number
  readonly total: number
  used = 0
  readonly #byOwner = new Tally()

  constructor(perExchange: number, total: number) {
    this.perExchange = perExchange
    this.total = total
  }

  fits(owner: string, bytes: number): boolean {
    return this.used + bytes <= this.total && this.#byOwner.of(owner) + bytes <= this.total * OWN_SHARE
  }

  /** Negative numbers give bytes back. */
  add(owner: string, bytes: number): void {
    this.used += bytes
    this.#byOwner.add(owner, bytes)
  }
}
