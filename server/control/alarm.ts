import type { Guard } from '../../protocol/guard.ts'

const MAX_TIMER_MS = 2 ** 31 - 1
/** Times further away are waited for in whole minutes at first: Node keeps a list for each length of a timer. */
const FAR_MS = 60_000

/** Rings once at a time of an injected clock, however far away that is. */
export class Alarm {
  readonly #now: () => number
  readonly #guard: Guard
  readonly #ring: () => void
  #timer: NodeJS.Timeout | undefined

  /** `guard`: of what it is set for. */
  constructor(now: () => number, guard: Guard, ring: () => void) {
    this.#now = now
    this.#guard = guard
    this.#ring = ring
  }

  /** Sets it to `timeMs`, in place of what it was set to. */
  at(timeMs: number): void {
    clearTimeout(this.#timer)
    const due = this.#guard(() => {
      if (this.#now() < timeMs) this.at(timeMs)
      else this.#ring()
    })
    const leftMs = Math.min(Math.max(0, timeMs - this.#now()), MAX_TIMER_MS)
    this.#timer = setTimeout(due, leftMs < FAR_MS ? leftMs : leftMs - (leftMs % FAR_MS)).unref()
  }

  stop(): void {
    clearTimeout(this.#timer)
  }
}
