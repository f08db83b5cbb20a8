import { performance } from 'node:perf_hooks'

/** A token bucket that refills over time. `now` must come from a monotonic clock, by default that of the process. */
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

  /** Returns false, and takes nothing, if the bucket does not have enough tokens. */
  take(now = performance.now(), tokens = 1): boolean {
    if (!this.has(tokens, now)) return false
    this.#tokens -= tokens
    return true
  }

  /** Gives back tokens that were taken. */
  give(tokens: number): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + tokens)
  }

  has(tokens: number, now = performance.now()): boolean {
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#at) * this.#perMs)
    this.#at = now
    return this.#tokens >= tokens
  }
}
