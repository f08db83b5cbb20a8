/** The clock of a session. Tests pass their own. */
import { performance } from 'node:perf_hooks'
import type { Failing } from '../../base/guard.ts'

export interface Clock {
  /** Monotonic time, in ms. */
  now(): number
  /** `guarded` must catch what it throws, and end its owner. */
  setTimeout(guarded: () => void, ms: number): unknown
  clearTimeout(handle: unknown): void
  /** Restarts a timer that has fired, for the same time. A new timer each time would be garbage. */
  refresh(handle: unknown): void
}

export const systemClock: Clock = {
  now: () => performance.now(),
  setTimeout: (guarded, ms) => setTimeout(guarded, ms).unref(),
  clearTimeout: handle => clearTimeout(handle as NodeJS.Timeout),
  refresh(handle) {
    ;(handle as NodeJS.Timeout).refresh()
  },
}

/** Owner of a timer. It ends if its callback throws. */
export interface TimerOwner extends Failing {
  due(now: number, lateMs: number): void
}

/** One timer for many deadlines. It fires at the earliest time that was asked for, and then its owner asks again. */
export class DeadlineTimer {
  readonly #clock: Clock
  readonly #owner: TimerOwner
  #at = Number.POSITIVE_INFINITY
  #handle: unknown

  constructor(clock: Clock, owner: TimerOwner) {
    this.#clock = clock
    this.#owner = owner
  }

  readonly #fire = (): void => {
    try {
      const at = this.#at
      this.#at = Number.POSITIVE_INFINITY
      const now = this.#clock.now()
      this.#owner.due(now, Math.max(0, now - at))
    } catch (error) {
      this.#owner.threw(error)
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

/** A wait of fixed length that is started again and again. */
export class Delay {
  readonly #clock: Clock
  readonly #ms: number
  readonly #over: () => void
  readonly #owner: Failing
  #handle: unknown
  #waits = false

  /** If `over` throws, `owner` ends. */
  constructor(clock: Clock, ms: number, over: () => void, owner: Failing) {
    this.#clock = clock
    this.#ms = ms
    this.#over = over
    this.#owner = owner
  }

  readonly #fireOver = (): void => {
    try {
      this.#waits = false
      this.#over()
    } catch (error) {
      this.#owner.threw(error)
    }
  }

  /** Starts the wait, unless it is running. */
  start(): void {
    if (this.#waits) return
    this.#waits = true
    if (this.#handle === undefined) this.#handle = this.#clock.setTimeout(this.#fireOver, this.#ms)
    else this.#clock.refresh(this.#handle)
  }

  /** Stops for good. */
  stop(): void {
    this.#clock.clearTimeout(this.#handle)
    this.#waits = true
  }
}

/**
 * Zero for fields that will hold fractions or more than 2^31. V8 then lays the field out as a double from the start. A field
 * that begins as a small integer changes the layout of its object later, which discards all code compiled for it.
 */
export const ZERO = -0
