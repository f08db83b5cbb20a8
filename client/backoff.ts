/** How long to wait before the next attempt to connect: full jitter, so that a thousand clients do not return at once. */

export interface BackoffOptions {
  /** Upper end of the first wait; it doubles with each failure. Default 1000. */
  readonly firstMs?: number
  /** Upper end of any wait. Default 30000. */
  readonly capMs?: number
  /** A session that lived this long makes the next failure the first one again. Default 60000. */
  readonly resetMs?: number
  /** Waits after the server refused the token: between half of this and this, doubled up to `capMs`. Default 10000. */
  readonly refusedMs?: number
}

export interface BackoffLimits extends Required<BackoffOptions> {}

const DEFAULTS: BackoffLimits = { firstMs: 1000, capMs: 30_000, resetMs: 60_000, refusedMs: 10_000 }

/** A session that died sooner than this counts as a failed attempt: its server accepts only to drop. */
const SHORT_MS = 5000

/** The waits of one connection, in turn. Holds no timer. */
export class Backoff {
  readonly #limits: BackoffLimits
  readonly #random: () => number
  #failures = 0
  #refusals = 0

  constructor(options: BackoffOptions = {}, random: () => number = Math.random) {
    this.#limits = { ...DEFAULTS, ...options }
    this.#random = random
  }

  /** After an attempt that failed. */
  failed(): number {
    this.#refusals = 0
    return this.#random() * this.#grow(this.#limits.firstMs, this.#failures++)
  }

  /** After an answer that says no: slower, because only a person or a new token can help. */
  refused(): number {
    const upper = this.#grow(this.#limits.refusedMs, this.#refusals++)
    return upper / 2 + (this.#random() * upper) / 2
  }

  /** After a session that ended without a drain. The first attempt comes within `firstMs`, unless it lived too short. */
  lost(livedMs: number): number {
    this.#refusals = 0
    if (livedMs >= this.#limits.resetMs) this.#failures = 0
    if (livedMs < SHORT_MS) return this.failed()
    return this.#random() * Math.min(this.#limits.firstMs, this.#limits.capMs)
  }

  #grow(firstMs: number, times: number): number {
    return Math.min(this.#limits.capMs, firstMs * 2 ** Math.min(times, 20))
  }
}
