import { isFailure } from '../protocol/base/errors.ts'
import type { ExchangeRecord } from '../protocol/exchange.ts'
import type { Snapshot } from './snapshot.ts'

/** One step of {@link Traffic.history}, a point in the page's charts. */
interface TrafficStep {
  /** End of the step, ms since 1970. */
  readonly at: number
  /** Exchanges that ended in it, by the first digit of their status, or 0 for none. */
  readonly byClass: readonly number[]
  /** Exchanges that failed. */
  readonly failed: number
  /** Durations in ms, without upgraded exchanges. Absent if no exchange ended. Accurate to within a quarter. */
  readonly p50: number | undefined
  readonly p95: number | undefined
  /** Bytes of bodies that passed in it. */
  readonly bytesIn: number
  readonly bytesOut: number
}

/** An exchange that failed, as the page shows it. */
export type FailedExchange = Pick<
  ExchangeRecord,
  'requestId' | 'runtime' | 'route' | 'inboxId' | 'method' | 'host' | 'path' | 'status' | 'code' | 'cut' | 'durationMs'
> & {
  /** Milliseconds since 1970. */
  readonly at: number
}

const STEP_MS = 5000
const STEPS = 180
const MAX_FAILED = 50
/** Longest text of a field that callers choose. */
const MAX_TEXT = 256
const CLASSES = 6
/** Durations are counted in buckets, each a quarter longer than the one before, from 0.25 ms on. The last one has all from 6 min. */
const BUCKETS = 64
const SHORTEST_MS = 0.25
const RATIO = Math.log(1.25)

/** The counters of a step. Steps are reused in a ring. */
class Step {
  /** Number of the step since the start of the clock, to tell a new step from the old one in the same slot. */
  number = -1
  readonly byClass = new Uint32Array(CLASSES)
  readonly durations = new Uint32Array(BUCKETS)
  failed = 0
  bytesIn = 0
  bytesOut = 0

  begin(number: number): void {
    this.number = number
    this.byClass.fill(0)
    this.durations.fill(0)
    this.failed = 0
    this.bytesIn = 0
    this.bytesOut = 0
  }

  quantile(share: number): number | undefined {
    const total = this.durations.reduce((sum, count) => sum + count, 0)
    if (total === 0) return undefined
    let left = share * total
    const bucket = this.durations.findIndex(count => {
      left -= count
      return left <= 0
    })
    return SHORTEST_MS * Math.exp(RATIO * bucket)
  }
}

/** The traffic of the last 15 minutes in steps of 5 s, and the last 50 failures, kept in memory for the page: about 60 KB. */
export class Traffic {
  readonly #steps = Array.from({ length: STEPS }, () => new Step())
  readonly #failed: FailedExchange[] = []
  /** Bytes that have been counted. */
  #bytesIn = 0
  #bytesOut = 0
  readonly #now: () => number

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Counts an exchange that is over. */
  note(exchange: ExchangeRecord): void {
    const step = this.#step()
    const kind = Math.trunc(exchange.status / 100)
    step.byClass[kind < CLASSES ? kind : 0]!++
    // The lifetime of a WebSocket says nothing about speed.
    if (!exchange.upgrade) step.durations[bucketOf(exchange.durationMs)]!++
    const isFailed = isFailure(exchange.code) || exchange.status >= 500 || exchange.cut
    // A caller that leaves before an answer may have waited too long for it.
    const hasGivenUp = exchange.code === 'cancelled' && exchange.status === 0
    if (!isFailed && !hasGivenUp) return
    if (isFailed) step.failed++
    const { requestId, runtime, route, inboxId, status, code, cut, durationMs } = exchange
    const [method, host, path] = [exchange.method, exchange.host, exchange.path].map(text => text.slice(0, MAX_TEXT))
    const at = Date.now()
    this.#failed.unshift({
      ...{ at, requestId, runtime, route, inboxId, status, code, cut, durationMs },
      ...{ method: method!, host: host!, path: path! },
    })
    if (this.#failed.length <= MAX_FAILED) return
    // Strangers can cause any number of some codes, for every runtime that they know.
    const alike = largest(this.#failed, one => one.code)
    const oldest = largest(alike, one => one.runtime).at(-1)!
    this.#failed.splice(this.#failed.lastIndexOf(oldest), 1)
  }

  /** Counts the bytes that have passed since the last call. Called every second or so. */
  count({ bodyBytesIn = 0, bodyBytesOut = 0 }: Snapshot): void {
    const step = this.#step()
    step.bytesIn += bodyBytesIn - this.#bytesIn
    step.bytesOut += bodyBytesOut - this.#bytesOut
    this.#bytesIn = bodyBytesIn
    this.#bytesOut = bodyBytesOut
  }

  /** The last failures, and callers that left before an answer, newest first. */
  get failed(): readonly FailedExchange[] {
    return this.#failed
  }

  /** The last `count` completed steps, oldest first; at most 180. */
  history(count = STEPS): readonly TrafficStep[] {
    const now = this.#now()
    const current = Math.floor(now / STEP_MS)
    const first = Math.max(current - Math.min(count, STEPS - 1), 0)
    const began = Date.now() - now
    const steps: TrafficStep[] = []
    for (let number = first; number < current; number++) {
      steps.push(describe(this.#steps[number % STEPS]!, number, began + (number + 1) * STEP_MS))
    }
    return steps
  }

  #step(): Step {
    const number = Math.floor(this.#now() / STEP_MS)
    const step = this.#steps[number % STEPS]!
    if (step.number !== number) step.begin(number)
    return step
  }
}

function bucketOf(durationMs: number): number {
  const bucket = Math.ceil(Math.log(durationMs / SHORTEST_MS) / RATIO)
  return Math.min(Math.max(bucket, 0), BUCKETS - 1)
}

/** The largest group of those with the same key. Of several, the one that has been there longest. */
function largest<T>(newestFirst: readonly T[], key: (one: T) => unknown): readonly T[] {
  const groups = [...Map.groupBy(newestFirst, key).values()]
  return groups.reduce((most, group) => (group.length >= most.length ? group : most))
}

const EMPTY = new Step()

function describe(kept: Step, number: number, at: number): TrafficStep {
  const step = kept.number === number ? kept : EMPTY
  return {
    at: Math.round(at),
    byClass: [...step.byClass],
    failed: step.failed,
    p50: step.quantile(0.5),
    p95: step.quantile(0.95),
    bytesIn: step.bytesIn,
    bytesOut: step.bytesOut,
  }
}
