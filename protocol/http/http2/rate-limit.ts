/** A token bucket: `burst` at once, `perSecond` in the long run. */
export class RateLimit {
  readonly #burst: number
  readonly #perSecond: number
  #tokens: number
  #at: number

  constructor(burst: number, perSecond: number, now = performance.now()) {
    this.#burst = burst
    this.#perSecond = perSecond
    this.#tokens = burst
    this.#at = now
  }

  /** False if there is none left. */
  take(now = performance.now()): boolean {
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#at) / 1000) * this.#perSecond)
    this.#at = now
    if (this.#tokens < 1) return false
    this.#tokens--
    return true
  }
}
