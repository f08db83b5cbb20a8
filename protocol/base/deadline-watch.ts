/**
 * One timer for all deadlines of a connection. `within(ms)` makes sure that `check` is called within that time. `check` acts on
 * what is really due and returns when to look again. Setting a later deadline costs no timer call.
 */
import { performance } from 'node:perf_hooks'
import { type Failing, stepOf } from './guard.ts'
import { heardFirst } from './socket-turns.ts'

/** How often a connection is checked for things that no event reports, such as the end of a caller that we do not read from. */
export const LOOK_MS = 2000

export class DeadlineWatch implements Failing {
  static readonly #onDue = heardFirst(stepOf<DeadlineWatch>(watch => watch.#due()))
  readonly #check: (now: number) => number
  readonly #owner: Failing
  #timer: NodeJS.Timeout | undefined
  #dueAt = Number.POSITIVE_INFINITY

  /** `check` returns the time in ms until the nearest deadline, or Infinity if there is none. If it throws, `owner` ends. */
  constructor(check: (now: number) => number, owner: Failing) {
    this.#check = check
    this.#owner = owner
  }

  within(ms: number, now = performance.now()): void {
    const dueAt = now + ms
    if (dueAt < this.#dueAt) this.#arm(dueAt, ms)
  }

  #arm(dueAt: number, ms: number): void {
    if (this.#timer !== undefined) clearTimeout(this.#timer)
    this.#dueAt = dueAt
    this.#timer = setTimeout(DeadlineWatch.#onDue, Math.max(1, Math.ceil(ms)), this)
    this.#timer.unref()
  }

  #due(): void {
    if (this.#dueAt === Number.NEGATIVE_INFINITY) return
    this.#timer = undefined
    this.#dueAt = Number.POSITIVE_INFINITY
    const ms = this.#check(performance.now())
    if (ms !== Number.POSITIVE_INFINITY) this.within(ms)
  }

  threw(error: unknown): void {
    this.#owner.threw(error)
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#dueAt = Number.NEGATIVE_INFINITY
  }
}

/** Time until `ms` have passed since `since`; 0 once they have. `ms` 0 means never. */
export function timeLeft(since: number, ms: number, now: number): number {
  return ms === 0 ? Number.POSITIVE_INFINITY : timeUntil(since + ms, now)
}

/** Time until `at`; 0 once it has come. */
export function timeUntil(at: number, now: number): number {
  const left = at - now
  // A timer may fire a fraction of a millisecond early.
  return left > 0.5 ? left : 0
}

/** Calls `act` if `ms` have passed since `since`; else returns the remaining time. `ms` 0 means never. */
export function due(since: number, ms: number, now: number, act: () => void): number {
  const left = timeLeft(since, ms, now)
  if (left > 0) return left
  act()
  return Number.POSITIVE_INFINITY
}
