/** Counters of exchanges: plain numbers. Labels are made only at a scrape. */
import { ERRORS } from '../protocol/base/errors.ts'
import type { ExchangeRecord } from '../protocol/exchange.ts'

/** One sample. `suffix` is appended to the name of its metric. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
  readonly suffix?: string
  readonly exemplar?: Exemplar | undefined
}

/** The last request in a bucket whose trace was sampled. */
interface Exemplar {
  readonly traceId: string
  readonly value: number
  /** Seconds since 1970. */
  readonly at: number
}

/** Most routes with rows of their own, which are the first that were used. The others share one row. */
export const MAX_ROUTES = 50
export const OTHER = 'other'

/** Classes of statuses, from 200 on. `none` if no status was sent. */
export const STATUS_CLASSES = ['none', '2xx', '3xx', '4xx', '5xx'] as const

export function statusClass(status: number): number {
  return status >= 200 && status <= 599 ? Math.trunc(status / 100) - 1 : 0
}

/** Seconds: OpenTelemetry's bounds for HTTP, and two more for streaming. */
const BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60]

class Durations {
  readonly #counts = new Float64Array(BOUNDS.length + 1)
  #exemplars: (Exemplar | undefined)[] | undefined
  #sum = 0

  add(seconds: number, traceId: string | undefined): void {
    let bucket = 0
    while (bucket < BOUNDS.length && seconds > BOUNDS[bucket]!) bucket++
    this.#counts[bucket]!++
    this.#sum += seconds
    if (traceId === undefined) return
    this.#exemplars ??= []
    this.#exemplars[bucket] = { traceId, value: seconds, at: Date.now() / 1000 }
  }

  *rows(labels: Sample['labels']): Iterable<Sample> {
    let count = 0
    for (const [i, le] of [...BOUNDS, '+Inf'].entries()) {
      count += this.#counts[i]!
      yield { suffix: '_bucket', labels: { ...labels, le: String(le) }, value: count, exemplar: this.#exemplars?.[i] }
    }
    yield { suffix: '_sum', labels, value: this.#sum }
    yield { suffix: '_count', labels, value: count }
  }
}

class RouteCounts {
  readonly totals = new Map<string | undefined, Map<number, number>>()
  readonly durations: (Durations | undefined)[] = STATUS_CLASSES.map(() => undefined)

  durationsOf(at: number): Durations {
    this.durations[at] ??= new Durations()
    return this.durations[at]
  }
}

export class ExchangeCounts {
  readonly #byRoute: boolean
  /** One for no route, one for other routes, and up to {@link MAX_ROUTES} more. */
  readonly #routes = new Map([
    ['', new RouteCounts()],
    [OTHER, new RouteCounts()],
  ])
  cut = 0
  upgrades = 0

  /** `byRoute`: whether this component has routes, so that they become a label. */
  constructor(byRoute: boolean) {
    this.#byRoute = byRoute
  }

  record(exchange: ExchangeRecord): void {
    const { code, status, upgrade } = exchange
    const counts = this.#countsOf(exchange.route)
    const label = code === undefined || Object.hasOwn(ERRORS, code) ? code : OTHER
    const totals = counts.totals.get(label) ?? new Map<number, number>()
    if (totals.size === 0) counts.totals.set(label, totals)
    const index = status >= 100 && status <= 599 ? status : 0
    totals.set(index, (totals.get(index) ?? 0) + 1)
    if (upgrade) this.upgrades++
    else counts.durationsOf(statusClass(status)).add(exchange.durationMs / 1000, exchange.traceId)
    if (exchange.cut) this.cut++
  }

  #countsOf(route: string | undefined): RouteCounts {
    const name = (this.#byRoute && route) || ''
    const counts = this.#routes.get(name)
    if (counts !== undefined) return counts
    if (this.#routes.size >= MAX_ROUTES + 2) return this.#routes.get(OTHER)!
    const fresh = new RouteCounts()
    this.#routes.set(name, fresh)
    return fresh
  }

  *totals(): Iterable<Sample> {
    for (const [route, { totals }] of this.#routes) {
      for (const [code = '', statuses] of totals) {
        for (const [status, value] of statuses) {
          const labels = { http_response_status_code: String(status), error_type: code }
          yield { labels: this.#withRoute(labels, route), value }
        }
      }
    }
  }

  *durations(): Iterable<Sample> {
    for (const [route, { durations }] of this.#routes) {
      for (const [i, of] of durations.entries()) {
        if (of !== undefined) yield* of.rows(this.#withRoute({ status_class: STATUS_CLASSES[i]! }, route))
      }
    }
  }

  #withRoute(labels: Sample['labels'], route: string): Sample['labels'] {
    return this.#byRoute ? { ...labels, route } : labels
  }
}
