/** Counters of each runtime at a server, for operators only: the busiest ones by name, all others as one. */
import { isFailure } from '../protocol/base/errors.ts'
import type { ExchangeRecord } from '../protocol/exchange.ts'
import { OTHER, type Sample, STATUS_CLASSES, statusClass } from './exchange-counts.ts'

/** What is counted about a session. */
export interface SessionLoad {
  readonly runtime: string
  readonly streams: number
  readonly bufferedBytes: number
}

export const MAX_RUNTIMES = 200
/** Most runtimes without a row whose exchanges are counted, to find the busiest. */
const MAX_CANDIDATES = 2000
/** Rows change owners at most this often. */
const RANK_MS = 60_000

class Counts {
  readonly classes: number[] = STATUS_CLASSES.map(() => 0)
  failures = 0
  seconds = 0
  bytesIn = 0
  bytesOut = 0
  /** Recent exchanges. Halved at each ranking. */
  recent = 0

  add(exchange: ExchangeRecord): void {
    this.classes[statusClass(exchange.status)]!++
    if (isFailure(exchange.code)) this.failures++
    if (!exchange.upgrade) this.seconds += exchange.durationMs / 1000
    this.bytesIn += exchange.bytesIn
    this.bytesOut += exchange.bytesOut
    this.recent++
  }
}

type Loads = Map<string, { sessions: number; streams: number; bufferedBytes: number }>

/**
 * Counters only grow. A runtime that gets a row starts at 0, and `other` counts what came while it had none. Callers can make names
 * up, so only a runtime with a session can get a row.
 */
export class RuntimeCounts {
  readonly #rows = new Map<string, Counts>()
  readonly #other = new Counts()
  readonly #candidates = new Map<string, number>()
  readonly #now: () => number
  #rankedAt = -Infinity
  #loads: Loads = new Map()

  /** `now` must be monotonic, in ms. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  record(exchange: ExchangeRecord): void {
    const { runtime = OTHER } = exchange
    const counts = this.#rows.get(runtime) ?? this.#admit(runtime, exchange.session !== undefined)
    counts.add(exchange)
  }

  #admit(runtime: string, isReal: boolean): Counts {
    if (!isReal || runtime === OTHER) return this.#other
    if (this.#rows.size < MAX_RUNTIMES) return this.#give(runtime)
    const seen = this.#candidates.get(runtime)
    if (seen !== undefined || this.#candidates.size < MAX_CANDIDATES) this.#candidates.set(runtime, (seen ?? 0) + 1)
    return this.#other
  }

  #give(runtime: string): Counts {
    const counts = new Counts()
    this.#rows.set(runtime, counts)
    return counts
  }

  /** Call it once before reading the rows. */
  refresh(sessions: Iterable<SessionLoad>): void {
    this.#rank()
    const loads: Loads = new Map()
    for (const { runtime, streams, bufferedBytes } of sessions) {
      if (runtime !== OTHER && !this.#rows.has(runtime) && this.#rows.size < MAX_RUNTIMES) this.#give(runtime)
      const name = this.#rows.has(runtime) ? runtime : OTHER
      const load = loads.get(name) ?? { sessions: 0, streams: 0, bufferedBytes: 0 }
      loads.set(name, load)
      load.sessions++
      load.streams += streams
      load.bufferedBytes += bufferedBytes
    }
    this.#loads = loads
  }

  /** Gives the rows to the busiest runtimes. On a tie, the one that has a row keeps it. */
  #rank(): void {
    if (this.#now() - this.#rankedAt < RANK_MS) return
    this.#rankedAt = this.#now()
    const busy = [...this.#rows].map(([name, { recent }]) => [name, recent] as const)
    const ranked = [...busy, ...this.#candidates].sort(([, a], [, b]) => b - a)
    for (const [name] of ranked.slice(MAX_RUNTIMES)) this.#rows.delete(name)
    for (const [name, recent] of ranked.slice(0, MAX_RUNTIMES))
      (this.#rows.get(name) ?? this.#give(name)).recent = recent
    for (const counts of this.#rows.values()) counts.recent /= 2
    this.#candidates.clear()
  }

  *exchanges(): Iterable<Sample> {
    for (const [runtime, { classes }] of this.#all()) {
      for (const [i, value] of classes.entries()) {
        if (value > 0) yield { labels: { runtime, status_class: STATUS_CLASSES[i]! }, value }
      }
    }
  }

  *counted(of: 'failures' | 'seconds' | 'bytesIn' | 'bytesOut'): Iterable<Sample> {
    for (const [runtime, counts] of this.#all()) yield { labels: { runtime }, value: counts[of] }
  }

  *load(of: 'sessions' | 'streams' | 'bufferedBytes'): Iterable<Sample> {
    for (const [runtime] of this.#all()) yield { labels: { runtime }, value: this.#loads.get(runtime)?.[of] ?? 0 }
  }

  *#all(): Iterable<readonly [string, Counts]> {
    yield* this.#rows
    yield [OTHER, this.#other]
  }
}
