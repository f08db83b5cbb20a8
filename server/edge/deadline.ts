import { performance } from 'node:perf_hooks'

/** A time by which something must have happened. */
export class Deadline {
  readonly #at: number
  readonly #timer: NodeJS.Timeout

  constructor(now: number, afterMs: number, late: () => void) {
    this.#at = now + afterMs
    this.#timer = setTimeout(late, afterMs)
  }

  /** At least 1: 0 would mean that there is no deadline. */
  get leftMs(): number {
    return Math.max(1, this.#at - performance.now())
  }

  stop(): void {
    clearTimeout(this.#timer)
  }
}
