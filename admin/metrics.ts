import { monitorEventLoopDelay } from 'node:perf_hooks'
import { Counter, Gauge, type Metric, Registry } from 'prom-client'
import { ERRORS } from '../protocol/base/errors.ts'
import type { ExchangeRecord } from '../protocol/exchange.ts'

/** What a component reports at each scrape. A field it leaves out is not shown. */
export interface Snapshot {
  sessions?: number
  streams?: number
  bufferedBytes?: number
  /** Sessions that were opened again after one was lost. Only grows. */
  reconnects?: number
  /** Only grow; reasons are a fixed set of the component. */
  handshakesRefused?: Readonly<Record<string, number>>
  /** Requests that wait for a session of their runtime now, and what became of those that waited, which only grows. */
  held?: number
  heldOutcomes?: Readonly<Record<string, number>>
  /** The directory of a server, and its connections to other replicas. */
  directory?: { readonly state: string; readonly known: number; readonly operations: number; readonly failures: number }
  peers?: { readonly connected: number; readonly sent: number; readonly taken: number } | undefined
  /** The webhook inbox of a server. */
  inbox?: InboxSnapshot | undefined
  /** Changes of state since the start, by a fixed set of names. */
  stateChanges?: Readonly<Record<string, number>>
  /** Last round trip of each live session. */
  roundTripsMs?: readonly number[]
  /** 1 if this client gets the traffic of its runtime, 0 if it stands by. */
  active?: number
  /** When the client's token ends, in ms since 1970. */
  tokenExpiresAt?: number
  /** Bytes that crossed all sessions; only grow. */
  sessionBytesIn?: number
  sessionBytesOut?: number
}

interface InboxSnapshot {
  readonly store: {
    readonly open: boolean
    readonly commits: number
    readonly commitSeconds: number
    readonly commitMaxSeconds: number
  }
  readonly messages: Readonly<Record<string, number>>
  readonly bytes: number
  readonly oldestSeconds: number
  /** Only grow; each by a fixed set of names. */
  readonly accepted: Readonly<Record<string, number>>
  readonly attempts: Readonly<Record<string, number>>
  readonly dead: Readonly<Record<string, number>>
  readonly refused: Readonly<Record<string, number>>
}

export interface MetricsOptions {
  component: 'server' | 'client' | 'router'
  version: string
  snapshot: () => Snapshot
  clock?: () => number
}

export interface Metrics {
  /** Give it to the component as `onExchange`. */
  record(exchange: ExchangeRecord): void
  expose(): Promise<{ contentType: string; text: string }>
  close(): void
}

const DURATION_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
const MAX_VALUES = 32
/** Each sample wakes the process, so not too often. */
const SAMPLE_MS = 50

/** Metrics of one component, in a registry of its own. No label value is chosen by a tenant or a caller. */
export function createMetrics(options: MetricsOptions): Metrics {
  const { component, version, snapshot, clock = Date.now } = options
  const registry = new Registry()
  const record = exchangeMetrics(registry)
  const loopDelay = monitorEventLoopDelay({ resolution: SAMPLE_MS })
  loopDelay.enable()
  let now: Snapshot = {}
  gauge(registry, 'sallyport_info', 'What runs here; always 1.', ['component', 'version']).set(
    { component, version },
    1,
  )
  if (component !== 'router') sessionMetrics(registry, () => now)
  if (component === 'server') serverMetrics(registry, () => now)
  if (component === 'client') clientMetrics(registry, () => now, clock)
  processMetrics(registry, loopDelay)
  return {
    record,
    async expose() {
      now = snapshot()
      return { contentType: registry.contentType, text: await registry.metrics() }
    },
    close: () => loopDelay.disable(),
  }
}

/** Counts in plain numbers, once per exchange. Labels are made when Prometheus scrapes. */
function exchangeMetrics(registry: Registry): (exchange: ExchangeRecord) => void {
  const sum = { cut: 0, upgrades: 0, bytesIn: 0, bytesOut: 0 }
  const total = exchangeCounts(registry)
  const duration = histogramOf(
    registry,
    'sallyport_exchange_duration_seconds',
    'From the request head to the end of the response; upgraded exchanges are left out.',
    DURATION_BUCKETS,
  )
  counterOf(registry, 'sallyport_exchanges_cut_total', 'Responses that had begun and were cut.', () => sum.cut)
  counterOf(registry, 'sallyport_upgrades_total', 'WebSocket exchanges that are over.', () => sum.upgrades)
  counterOf(registry, 'sallyport_request_bytes_total', 'Bytes of request bodies.', () => sum.bytesIn)
  counterOf(registry, 'sallyport_response_bytes_total', 'Bytes of response bodies.', () => sum.bytesOut)
  return exchange => {
    total(exchange)
    if (exchange.upgrade) sum.upgrades++
    else duration(exchange.durationMs / 1000)
    if (exchange.cut) sum.cut++
    sum.bytesIn += exchange.bytesIn
    sum.bytesOut += exchange.bytesOut
  }
}

function exchangeCounts(registry: Registry): (exchange: ExchangeRecord) => void {
  const byCode = new Map<string | undefined, Map<number, number>>()
  const total: Counter = new Counter({
    name: 'sallyport_exchanges_total',
    help: 'Exchanges that are over, by status (0: none went out) and row of the error table (empty: none).',
    labelNames: ['status', 'code'],
    registers: [registry],
    collect: () => {
      total.reset()
      for (const [code = '', counts] of byCode) {
        for (const [status, count] of counts) total.inc({ status: String(status), code }, count)
      }
    },
  })
  return ({ code, status }) => {
    const label = code === undefined || Object.hasOwn(ERRORS, code) ? code : 'other'
    const index = status >= 100 && status <= 599 ? status : 0
    const counts = byCode.get(label) ?? new Map<number, number>()
    if (counts.size === 0) byCode.set(label, counts)
    counts.set(index, (counts.get(index) ?? 0) + 1)
  }
}

type Now = () => Snapshot

function sessionMetrics(registry: Registry, now: Now): void {
  const changes = 'Changes of state of sessions, by what happened; the log has the reason of each.'
  countersOf(registry, 'sallyport_state_changes_total', changes, 'change', () => now().stateChanges)
  gaugeOf(registry, 'sallyport_sessions', 'Live sessions.', () => now().sessions)
  gaugeOf(registry, 'sallyport_streams', 'Open streams.', () => now().streams)
  gaugeOf(registry, 'sallyport_buffered_bytes', 'Bytes that wait in our buffers.', () => now().bufferedBytes)
  gaugeOf(registry, 'sallyport_ping_round_trip_seconds', 'Longest last round trip of the live sessions.', () => {
    const trips = now().roundTripsMs ?? []
    return trips.length === 0 ? undefined : Math.max(...trips) / 1000
  })
  const received = 'Bytes that came out of sessions.'
  counterOf(registry, 'sallyport_session_received_bytes_total', received, () => now().sessionBytesIn)
  counterOf(
    registry,
    'sallyport_session_sent_bytes_total',
    'Bytes that went into sessions.',
    () => now().sessionBytesOut,
  )
}

function serverMetrics(registry: Registry, now: Now): void {
  const refused = 'Handshakes of tunnel clients that were refused, by reason.'
  countersOf(registry, 'sallyport_handshakes_refused_total', refused, 'reason', () => now().handshakesRefused)
  gaugeOf(registry, 'sallyport_held_requests', 'Requests that wait for a session of their runtime.', () => now().held)
  const held = 'Requests that waited for a session of their runtime, by how they went on.'
  countersOf(registry, 'sallyport_held_requests_total', held, 'outcome', () => now().heldOutcomes)
  directoryMetrics(registry, now)
  inboxMetrics(registry, () => now().inbox)
}

function inboxMetrics(registry: Registry, now: () => InboxSnapshot | undefined): void {
  const rows = [
    ['sallyport_inbox_accepted_total', 'Webhooks that were stored, by why.', 'why', 'accepted'],
    ['sallyport_inbox_attempts_total', 'Deliveries of stored webhooks, by outcome.', 'outcome', 'attempts'],
    ['sallyport_inbox_dead_total', 'Webhooks that became dead letters, by reason.', 'reason', 'dead'],
    ['sallyport_inbox_refused_total', 'Webhooks that could not be stored: 503.', 'reason', 'refused'],
  ] as const
  for (const [name, help, label, of] of rows) countersOf(registry, name, help, label, () => now()?.[of])
  gaugesOf(registry, 'sallyport_inbox_messages', 'Webhooks in the inbox, by state.', 'state', () => now()?.messages)
  gaugeOf(registry, 'sallyport_inbox_bytes', 'Bytes of webhooks that wait or are dead.', () => now()?.bytes)
  const oldest = 'Age of the oldest webhook that waits; 0: none does.'
  gaugeOf(registry, 'sallyport_inbox_oldest_age_seconds', oldest, () => now()?.oldestSeconds)
  const store = () => now()?.store
  gaugeOf(
    registry,
    'sallyport_inbox_store_up',
    'Whether the store works: 0 or 1.',
    () => store() && Number(store()!.open),
  )
  counterOf(registry, 'sallyport_inbox_commits_total', 'Commits of the store.', () => store()?.commits)
  const seconds = 'Time that its commits took.'
  counterOf(registry, 'sallyport_inbox_commit_seconds_total', seconds, () => store()?.commitSeconds)
  const longest = 'Longest commit of the last minute or two.'
  gaugeOf(registry, 'sallyport_inbox_commit_max_seconds', longest, () => store()?.commitMaxSeconds)
}

const DIRECTORY_STATES = ['connected', 'presumed', 'lost']

function directoryMetrics(registry: Registry, now: Now): void {
  const state = 'State of the directory: 0 connected, 1 presumed (not reachable, what was known holds), 2 lost.'
  gaugeOf(registry, 'sallyport_directory_state', state, () => {
    const { directory } = now()
    return directory && DIRECTORY_STATES.indexOf(directory.state)
  })
  gaugeOf(registry, 'sallyport_directory_runtimes', 'Runtimes that are known here.', () => now().directory?.known)
  const operations = 'Operations of the directory, those that failed among them.'
  counterOf(registry, 'sallyport_directory_operations_total', operations, () => now().directory?.operations)
  const failures = 'Losses of the directory.'
  counterOf(registry, 'sallyport_directory_failures_total', failures, () => now().directory?.failures)
  const connected = 'Other replicas that this one is connected to.'
  gaugeOf(registry, 'sallyport_replicas_connected', connected, () => now().peers?.connected)
  countersOf(registry, 'sallyport_hops_total', 'Exchanges handed to other replicas, and taken.', 'direction', () => {
    const { peers } = now()
    return peers && { sent: peers.sent, taken: peers.taken }
  })
}

function clientMetrics(registry: Registry, now: Now, clock: () => number): void {
  const active = 'Whether this instance gets the traffic; 0 for a standby.'
  gaugeOf(registry, 'sallyport_active', active, () => now().active)
  counterOf(registry, 'sallyport_reconnects_total', 'Sessions opened again after a loss.', () => now().reconnects)
  gaugeOf(registry, 'sallyport_token_expires_seconds', 'Time until the token ends; negative once it has.', () => {
    const { tokenExpiresAt } = now()
    return tokenExpiresAt === undefined ? undefined : (tokenExpiresAt - clock()) / 1000
  })
}

function processMetrics(registry: Registry, loopDelay: ReturnType<typeof monitorEventLoopDelay>): void {
  const delay: Gauge = new Gauge({
    name: 'sallyport_event_loop_delay_seconds',
    help: 'Delay of the event loop since the last scrape.',
    labelNames: ['quantile'],
    registers: [registry],
    collect: () => {
      delay.set({ quantile: '0.5' }, delaySeconds(loopDelay.percentile(50)))
      delay.set({ quantile: '0.99' }, delaySeconds(loopDelay.percentile(99)))
      delay.set({ quantile: '1' }, delaySeconds(loopDelay.max))
      loopDelay.reset()
    },
  })
  gaugeOf(registry, 'process_resident_memory_bytes', 'Resident memory.', () => process.memoryUsage.rss())
  counterOf(registry, 'process_cpu_seconds_total', 'CPU time, user and system.', () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  })
}

/** Node measures the time between samples. What exceeds the interval is the delay. */
function delaySeconds(sampleNs: number): number {
  return Math.max(0, sampleNs / 1e9 - SAMPLE_MS / 1000)
}

function gauge(registry: Registry, name: string, help: string, labelNames: string[]): Gauge {
  return new Gauge({ name, help, labelNames, registers: [registry] })
}

/** `Gauge`, or `Counter` for what the component counts itself. */
type Kind = new (options: KindOptions) => Pick<Gauge, 'inc' | 'remove' | 'reset'>
type KindOptions = { name: string; help: string; labelNames?: string[]; registers: Registry[]; collect(): void }

/** A metric that is read at each scrape. It is not shown while it has no value. */
const oneOf = (kind: Kind) => (registry: Registry, name: string, help: string, value: () => number | undefined) => {
  const metric = new kind({
    name,
    help,
    registers: [registry],
    collect: () => {
      const current = value()
      metric.reset()
      if (current === undefined) metric.remove()
      else metric.inc(current)
    },
  })
}

/** The same, one for each value of a label from a fixed set. */
const eachOf =
  (kind: Kind) =>
  (
    registry: Registry,
    name: string,
    help: string,
    label: string,
    values: () => Readonly<Record<string, number>> | undefined,
  ) => {
    const metric = new kind({
      name,
      help,
      labelNames: [label],
      registers: [registry],
      collect: () => {
        metric.reset()
        const counts = Object.entries(values() ?? {}).slice(0, MAX_VALUES)
        for (const [value, count] of counts) metric.inc({ [label]: value }, count)
      },
    })
  }

const gaugeOf = oneOf(Gauge)
const counterOf = oneOf(Counter)
const gaugesOf = eachOf(Gauge)
const countersOf = eachOf(Counter)

/** A histogram without labels, counted in plain numbers: the library's own costs more per value than everything else here. */
function histogramOf(
  registry: Registry,
  name: string,
  help: string,
  bounds: readonly number[],
): (value: number) => void {
  const counts = new Float64Array(bounds.length + 1)
  let sum = 0
  const get = async () => {
    let count = 0
    const buckets = [...bounds, '+Inf'].map((le, i) => {
      count += counts[i]!
      return { metricName: `${name}_bucket`, labels: { le }, value: count }
    })
    const sumRow = { metricName: `${name}_sum`, labels: {}, value: sum }
    const countRow = { metricName: `${name}_count`, labels: {}, value: count }
    return { name, help, type: 'histogram', aggregator: 'sum', values: [...buckets, sumRow, countRow] }
  }
  registry.registerMetric({ name, help, get } as unknown as Metric)
  return value => {
    let bucket = 0
    while (bucket < bounds.length && value > bounds[bucket]!) bucket++
    counts[bucket]!++
    sum += value
  }
}
