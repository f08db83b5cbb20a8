/** The metrics of one component, in the formats of Prometheus and OpenMetrics. */
import { Registry, type RegistryContentType } from '@prometheus-io/client'
import type { ExchangeRecord } from '../protocol/exchange.ts'
import { type Component, type Definition, METRICS, RUNTIME_METRICS } from './definitions.ts'
import { ExchangeCounts, OTHER, type Sample } from './exchange-counts.ts'
import { LoopDelay } from './loop-delay.ts'
import { RuntimeCounts, type SessionLoad } from './runtime-counts.ts'
import { Scrapes } from './scrapes.ts'
import type { Snapshot } from './snapshot.ts'

export interface MetricsOptions {
  component: Component
  version: string
  snapshot: () => Snapshot
  /** Live sessions, for the metrics of each runtime. */
  sessions?: () => Iterable<SessionLoad>
  /** Monotonic time in ms. */
  now?: () => number
}

export interface Exposition {
  readonly contentType: string
  readonly text: string
}

export interface Metrics {
  /** Pass it to the component as `onExchange`. */
  record(exchange: ExchangeRecord): void
  /** No label value is chosen by a tenant or a caller. `accept` is the request's `Accept` field, which may ask for OpenMetrics. */
  expose(accept?: string): Promise<Exposition>
  /** The same for each runtime. It names tenants, so it is for operators only. */
  exposeRuntimes(accept?: string): Promise<Exposition>
  close(): void
}

export function createMetrics(options: MetricsOptions): Metrics {
  const { component, version, snapshot, sessions = () => [], now } = options
  const exchanges = new ExchangeCounts(component !== 'server')
  const runtimes = component === 'server' ? new RuntimeCounts(now) : undefined
  const loop = new LoopDelay()
  const build = { component, version, node: process.versions.node }
  const own = METRICS.filter(({ on }) => on.includes(component))
  const scrapes = new Scrapes()
  return {
    record(exchange) {
      exchanges.record(exchange)
      runtimes?.record(exchange)
    },
    expose(accept) {
      const format = formatOf(accept)
      return scrapes.of(format, () => write(own, { snapshot: snapshot(), exchanges, loop: loop.read(), build }, format))
    },
    exposeRuntimes(accept) {
      const format = formatOf(accept)
      return scrapes.of(`runtimes as ${format}`, () => {
        const from = runtimes ?? new RuntimeCounts(now)
        from.refresh(sessions())
        return write(RUNTIME_METRICS, from, format)
      })
    },
    close: () => loop.close(),
  }
}

/** Makes a registry for each scrape, since values in the library would be a second copy of our counters. */
async function write<From>(definitions: readonly Definition<From>[], from: From, format: Format): Promise<Exposition> {
  const registry = new Registry<RegistryContentType>()
  if (format === 'openmetrics') registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE)
  for (const definition of definitions) {
    const rows = [...rowsOf(definition, from)]
    const { name, help, type } = definition
    const written = {
      name,
      help,
      type,
      get: () => ({ name: written.name, help, type, values: valuesOf(written.name, rows) }),
    }
    registry.registerMetric(written as never)
  }
  return { contentType: registry.contentType, text: await registry.metrics() }
}

/** In the library's format. */
function valuesOf(name: string, rows: readonly Sample[]) {
  return rows.map(({ suffix = '', labels, value, exemplar }) => ({
    metricName: `${name}${suffix}`,
    labels,
    value,
    exemplar: exemplar && { labelSet: { trace_id: exemplar.traceId }, value: exemplar.value, timestamp: exemplar.at },
  }))
}

function rowsOf<From>({ read, labels }: Definition<From>, from: From): Iterable<Sample> {
  const values = read(from)
  if (values === undefined) return []
  if (typeof values === 'number') return [{ labels: {}, value: values }]
  if (Symbol.iterator in values) return values
  const [label, known] = Object.entries(labels)[0]!
  return eachOf(label, known as readonly string[], values)
}

/** A row for each known value, even at 0. Otherwise an alert would miss the first increase. */
function eachOf(label: string, known: readonly string[], counts: Readonly<Record<string, number>>): Sample[] {
  const rows = known.map(value => ({ labels: { [label]: value }, value: counts[value] ?? 0 }))
  const unknown = Object.keys(counts).filter(value => !known.includes(value))
  if (unknown.length === 0) return rows
  return [...rows, { labels: { [label]: OTHER }, value: unknown.reduce((sum, value) => sum + counts[value]!, 0) }]
}

type Format = 'text' | 'openmetrics'

/** OpenMetrics if `Accept` prefers it at least as much as plain text. */
function formatOf(accept = ''): Format {
  const least = Math.max(weight(accept, 'text/plain'), Number.MIN_VALUE)
  return weight(accept, 'application/openmetrics-text') >= least ? 'openmetrics' : 'text'
}

function weight(accept: string, type: string): number {
  const ranges = accept
    .toLowerCase()
    .split(',')
    .map(range => range.split(';').map(part => part.trim()))
  const found = ranges.filter(([name]) => name === type)
  const weights = found.map(([, ...rest]) => Number(rest.find(part => part.startsWith('q='))?.slice(2) ?? 1))
  return Math.max(0, ...weights.filter(q => q >= 0 && q <= 1))
}
