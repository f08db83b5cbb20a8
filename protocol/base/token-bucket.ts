import { performance } from 'node:perf_hooks'

/** A bucket of tokens, refilled with time: that of a clock that never goes back, and by default of the process. */
export class TokenBucket {
  readonly #burst: number
  readonly #perMs: number
  #tokens: number
  #at = 0

  constructor(burst: number, perSecond: number) {
    this.#burst = burst
    this.#tokens = burst
    this.#perMs = perSecond / 1000
  }

  /** False, and nothing is taken, if the bucket does not have so many. */
  take(now = performance.now(), tokens = 1): boolean {
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#at) * this.#perMs)
    this.#at = now
    if (this.#tokens < tokens) return false
    this.#tokens -= tokens
    return true
  }
}
