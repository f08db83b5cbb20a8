/** The share of the client's time that the inspector may use, so that no caller can slow down the answers to others. */
const SHARE = 0.25
/** Unused time is saved, up to this much. */
const BURST_MS = 1000

/** Work is charged after it was measured. The balance may go below zero, and no more work is done until it is positive again. */
export class Budget {
  readonly #now: () => number
  #leftMs = BURST_MS
  #at: number

  /** `now`: a monotonic clock, in ms. */
  constructor(now: () => number) {
    this.#now = now
    this.#at = now()
  }

  /** Returns the result of `work`, or undefined if there is no time for it. */
  spend<Result extends object>(work: () => Result): Result | undefined {
    const begun = this.#now()
    this.#leftMs = Math.min(BURST_MS, this.#leftMs + (begun - this.#at) * SHARE)
    this.#at = begun
    if (this.#leftMs <= 0) return undefined
    try {
      return work()
    } finally {
      this.#leftMs -= this.#now() - begun
    }
  }
}
