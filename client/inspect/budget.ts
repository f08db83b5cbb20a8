/** The share of the client's time that the inspector may take, so that no caller can slow down the answers of others. */
const SHARE = 0.25
/** Unused time is saved up to this. */
const BURST_MS = 1000

/** Work is booked afterwards, as it was measured: it may go below zero, and nothing more is done until it is above again. */
export class Budget {
  readonly #now: () => number
  #leftMs = BURST_MS
  #at: number

  /** `now`: ms of a clock that never goes back. */
  constructor(now: () => number) {
    this.#now = now
    this.#at = now()
  }

  /** What `work` returns, or undefined where there is no time for it. */
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
