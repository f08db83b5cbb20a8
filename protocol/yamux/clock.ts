/** Time, as a session sees it; tests pass their own. */
import { performance } from 'node:perf_hooks'
export interface Clock {
  /** Milliseconds of a clock that never goes back. */
  now(): number
  setTimeout(callback: () => void, ms: number): unknown
  clearTimeout(handle: unknown): void
  /** Starts a timer that has fired once more, for as long as before: a new one would be garbage, and often. */
  refresh(handle: unknown): void
}

export const systemClock: Clock = {
  now: () => performance.now(),
  setTimeout: (callback, ms) => setTimeout(callback, ms).unref(),
  clearTimeout: handle => clearTimeout(handle as NodeJS.Timeout),
  refresh: handle => void (handle as NodeJS.Timeout).refresh(),
}

/** One timer for many deadlines: it fires at the earliest time asked for, and its owner then asks again. */
export class DeadlineTimer {
  readonly #clock: Clock
  readonly #fire: () => void
  #at = Number.POSITIVE_INFINITY
  #handle: unknown

  constructor(clock: Clock, due: (now: number, lateMs: number) => void) {
    this.#clock = clock
    this.#fire = () => {
      const at = this.#at
      this.#at = Number.POSITIVE_INFINITY
      const now = clock.now()
      due(now, Math.max(0, now - at))
    }
  }

  /** Makes sure that the timer fires at `at` or earlier. */
  by(at: number): void {
    if (at >= this.#at) return
    this.#clock.clearTimeout(this.#handle)
    this.#at = at
    this.#handle = this.#clock.setTimeout(this.#fire, Math.max(0, Math.ceil(at - this.#clock.now())))
  }

  stop(): void {
    this.#clock.clearTimeout(this.#handle)
    this.#at = Number.NEGATIVE_INFINITY
  }
}

/** A wait that is always as long, and begun again and again. */
export class Delay {
  readonly #clock: Clock
  readonly #ms: number
  readonly #fire: () => void
  #handle: unknown
  #waits = false

  constructor(clock: Clock, ms: number, over: () => void) {
    this.#clock = clock
    this.#ms = ms
    this.#fire = () => {
      this.#waits = false
      over()
    }
  }

  /** Begins to wait, unless it does. */
  start(): void {
    if (this.#waits) return
    this.#waits = true
    if (this.#handle === undefined) this.#handle = this.#clock.setTimeout(this.#fire, this.#ms)
    else this.#clock.refresh(this.#handle)
  }

  /** For good. */
  stop(): void {
    this.#clock.clearTimeout(this.#handle)
    this.#waits = true
  }
}

/**
 * Zero, for fields that come to hold fractions or more than 2^31. V8 lays such a field out as a double from the start; one
 * that began as a small integer changes the layout of its object on the way, and with it all compiled code that knew it goes.
 */
export const ZERO = -0
