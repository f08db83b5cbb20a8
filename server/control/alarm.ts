const MAX_TIMER_MS = 2 ** 31 - 1

/** Rings once at a time of an injected clock, however far away that is. */
export class Alarm {
  readonly #now: () => number
  readonly #ring: () => void
  #timer: NodeJS.Timeout | undefined

  constructor(now: () => number, ring: () => void) {
    this.#now = now
    this.#ring = ring
  }

  /** Sets it to `timeMs`, in place of what it was set to. */
  at(timeMs: number): void {
    clearTimeout(this.#timer)
    const due = () => {
      if (this.#now() < timeMs) this.at(timeMs)
      else this.#ring()
    }
    this.#timer = setTimeout(due, Math.min(Math.max(0, timeMs - this.#now()), MAX_TIMER_MS)).unref()
  }

  stop(): void {
    clearTimeout(this.#timer)
  }
}
