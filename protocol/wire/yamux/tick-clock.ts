import { logDefect, logGuard } from '../../base/guard.ts'
import { type Logger, noLogger } from '../../base/log.ts'
import type { Clock } from './clock.ts'

const TICK_MS = 250
/** A shorter wait paces a writer rather than being a deadline, and gets its own timer. */
const EXACT_MS = 10

interface Entry {
  tick: number
  readonly ms: number
  readonly guarded: () => void
}

/**
 * A clock for many sessions whose deadlines need no precision. Callbacks run in batches every 250 ms, so up to that much later
 * than asked for. Thousands of sessions then share one timer, and their pings are sent together.
 */
export class TickClock implements Clock {
  readonly #ticks = new Map<number, Set<Entry>>()
  #next = 0
  #timer: NodeJS.Timeout | undefined
  readonly #logger: Logger

  /** `logger` logs errors of callbacks that their owners do not catch. */
  constructor(logger: Logger = noLogger) {
    this.#logger = logger
  }

  now(): number {
    return performance.now()
  }

  setTimeout(guarded: () => void, ms: number): Entry | NodeJS.Timeout {
    if (ms < EXACT_MS) return setTimeout(guarded, ms).unref()
    const entry = { tick: 0, ms, guarded }
    this.#add(entry)
    return entry
  }

  refresh(handle: unknown): void {
    const entry = handle as Entry | NodeJS.Timeout
    if ('tick' in entry) this.#add(entry)
    else entry.refresh()
  }

  #add(entry: Entry): void {
    this.#start()
    entry.tick = Math.max(tickOf(this.now() + entry.ms), this.#next)
    const batch = this.#ticks.get(entry.tick)
    if (batch === undefined) this.#ticks.set(entry.tick, new Set([entry]))
    else batch.add(entry)
  }

  clearTimeout(handle: unknown): void {
    const entry = handle as Entry | NodeJS.Timeout | undefined
    if (entry === undefined) return
    if (!('tick' in entry)) {
      clearTimeout(entry)
      return
    }
    const batch = this.#ticks.get(entry.tick)
    batch?.delete(entry)
    if (batch?.size === 0) this.#ticks.delete(entry.tick)
  }

  #start(): void {
    if (this.#timer !== undefined) return
    this.#next = tickOf(this.now())
    const guard = logGuard(this.#logger, 'the clock of the sessions failed')
    const tick = guard(() => this.#tick())
    this.#timer = setInterval(tick, TICK_MS).unref()
  }

  /** Calls whatever is due. A late tick makes up for those that were missed. */
  #tick(): void {
    const last = Math.floor(this.now() / TICK_MS)
    for (; this.#next <= last; this.#next++) {
      const batch = this.#ticks.get(this.#next)
      if (batch === undefined) continue
      this.#ticks.delete(this.#next)
      this.#call(batch)
    }
    if (this.#ticks.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** A callback that throws does not affect the others. */
  #call(batch: Set<Entry>): void {
    for (const { guarded } of batch) {
      try {
        guarded()
      } catch (error) {
        logDefect(this.#logger, 'a timer of a session failed', error)
      }
    }
  }
}

/** The first tick that is not before `at`. */
function tickOf(at: number): number {
  return Math.ceil(at / TICK_MS)
}
