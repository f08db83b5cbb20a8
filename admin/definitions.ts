/** All metrics: name, meaning, and where the value comes from. `docs/metrics.md` is generated from this. */
import type { ExchangeCounts, Sample } from './exchange-counts.ts'
import { MAX_ROUTES, STATUS_CLASSES } from './exchange-counts.ts'
import type { LoopDelays } from './loop-delay.ts'
import { MAX_RUNTIMES, type RuntimeCounts } from './runtime-counts.ts'
import type { Snapshot } from './snapshot.ts'

const COMPONENTS = ['server', 'client', 'router'] as const
export type Component = (typeof COMPONENTS)[number]

/** What is read at a scrape. */
interface Reading {
  readonly snapshot: Snapshot
  readonly exchanges: ExchangeCounts
  readonly loop: LoopDelays
  readonly build: Sample['labels']
}

/** A number, one number for each value of the label, or samples with their own labels. `undefined` if there is nothing to report. */
type Values = number | Readonly<Record<string, number>> | Iterable<Sample> | undefined

export interface Definition<From> {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  /** In OpenTelemetry's notation: `s`, `By`, `1`, or what is counted, in braces. */
  readonly unit: string
  readonly help: string
  /** The question that it answers. */
  readonly answers: string
  readonly on: readonly Component[]
  /** All values of each label, or a description of what bounds them. */
  readonly labels: Readonly<Record<string, readonly string[] | string>>
  readonly read: (from: From) => Values
}

type Metric = Definition<Reading>
type Kind = Pick<Metric, 'type' | 'unit'>

const counts = (unit: string): Kind => ({ type: 'counter', unit })
const shows = (unit: string): Kind => ({ type: 'gauge', unit })

const STATUS = '100 to 599; 0 if none was sent'
const CODE = 'a code of [errors.md](errors.md), or `other`; empty if the answer is not ours'
const ROUTE = `on client and router: the first ${MAX_ROUTES} routes that were used, and \`other\`; empty if no route matched`

/** Makes rows of the tables below, for metrics of these components. */
const metricOn =
  (...on: Component[]) =>
  (
    name: string,
    kind: Kind,
    help: string,
    answers: string,
    read: Metric['read'],
    labels: Metric['labels'] = {},
  ): Metric => ({ name, ...kind, help, answers, on, labels, read })

const onAll = metricOn(...COMPONENTS)
const onTunnel = metricOn('server', 'client')
const onServer = metricOn('server')
const onClient = metricOn('client')

const EXCHANGES: readonly Metric[] = [
  onAll(
    'sallyport_exchanges_total',
    counts('{exchange}'),
    'Completed exchanges, by status and, if Sallyport itself failed, by its code.',
    'How many requests are there, what share fails, is it us or the application, and on which route?',
    ({ exchanges }) => exchanges.totals(),
    { http_response_status_code: STATUS, error_type: CODE, route: ROUTE },
  ),
  onAll(
    'http_server_request_duration_seconds',
    { type: 'histogram', unit: 's' },
    'From the request head to the end of the response, without upgraded exchanges.',
    'How long do requests take, both failing and successful ones?',
    ({ exchanges }) => exchanges.durations(),
    { status_class: STATUS_CLASSES, route: ROUTE },
  ),
  onAll(
    'sallyport_exchanges_cut_total',
    counts('{exchange}'),
    'Responses that Sallyport or the upstream cut off after they had begun. A caller that leaves is not counted.',
    'Do callers see broken connections?',
    ({ exchanges }) => exchanges.cut,
  ),
  onAll(
    'sallyport_upgrades_total',
    counts('{exchange}'),
    'Completed WebSocket exchanges.',
    'How many WebSockets were there?',
    ({ exchanges }) => exchanges.upgrades,
  ),
  onAll(
    'sallyport_request_bytes_total',
    counts('By'),
    'Bytes of request bodies, as they pass.',
    'How much comes in?',
    ({ snapshot }) => snapshot.bodyBytesIn ?? 0,
  ),
  onAll(
    'sallyport_response_bytes_total',
    counts('By'),
    'Bytes of response bodies, as they pass.',
    'How much goes out?',
    ({ snapshot }) => snapshot.bodyBytesOut ?? 0,
  ),
]

const CHANGES = [
  'sallyport_state_changes_total',
  counts('{change}'),
  'State changes of sessions, by kind; the log has the reason of each.',
  'Do sessions come and go?',
  ({ snapshot }: Reading) => snapshot.stateChanges,
] as const

const SESSIONS: readonly Metric[] = [
  onServer(...CHANGES, {
    change: ['session opened', 'session ready', 'session ended', 'handshake refused'],
  }),
  onClient(...CHANGES, {
    change: ['connected', 'disconnected', 'draining', 'reconnecting', 'refused', 'active', 'standby'],
  }),
  onTunnel(
    'sallyport_sessions',
    shows('{session}'),
    'Live sessions.',
    'Is anybody connected?',
    ({ snapshot }) => snapshot.sessions,
  ),
  onTunnel(
    'sallyport_streams',
    shows('{stream}'),
    'Open streams.',
    'How many exchanges are under way?',
    ({ snapshot }) => snapshot.streams,
  ),
  onTunnel(
    'sallyport_buffered_bytes',
    shows('By'),
    'Bytes that wait in our buffers.',
    'Is somebody reading slowly?',
    ({ snapshot }) => snapshot.bufferedBytes,
  ),
  onTunnel(
    'sallyport_ping_round_trip_seconds',
    shows('s'),
    'The longest of the last round-trip times of all live sessions.',
    'How far away is the other end?',
    ({ snapshot: { roundTripsMs = [] } }) => (roundTripsMs.length === 0 ? undefined : Math.max(...roundTripsMs) / 1000),
  ),
  onServer(
    'sallyport_session_received_bytes_total',
    counts('By'),
    'Bytes received from sessions.',
    'How much do tunnels carry towards callers?',
    ({ snapshot }) => snapshot.sessionBytesIn,
  ),
  onServer(
    'sallyport_session_sent_bytes_total',
    counts('By'),
    'Bytes sent to sessions.',
    'How much do tunnels carry towards clients?',
    ({ snapshot }) => snapshot.sessionBytesOut,
  ),
  onClient(
    'sallyport_active',
    shows('1'),
    'Whether this instance gets the traffic; 0 for a standby, and without a session.',
    'Which instance of a runtime serves?',
    ({ snapshot }) => snapshot.active,
  ),
  onClient(
    'sallyport_reconnects_total',
    counts('{session}'),
    'Sessions that were reopened after a loss.',
    'Does the client lose its connections?',
    ({ snapshot }) => snapshot.reconnects,
  ),
  onClient(
    'sallyport_token_expiry_timestamp_seconds',
    shows('s'),
    'When the token in force expires, since 1970. A fresh one that the server refuses is not in force.',
    'Is the token renewed in time?',
    ({ snapshot: { tokenExpiresAt } }) => (tokenExpiresAt === undefined ? undefined : tokenExpiresAt / 1000),
  ),
]

const DIRECTORY_STATES = ['connected', 'presumed', 'lost']

const SERVERS: readonly Metric[] = [
  onServer(
    'sallyport_handshakes_refused_total',
    counts('{handshake}'),
    'Handshakes of tunnel clients that were refused, by reason.',
    'Why can a client not connect?',
    ({ snapshot }) => snapshot.handshakesRefused,
    {
      reason: [
        'not-found',
        'not-upgrade',
        'token-in-url',
        'origin',
        'subprotocol',
        'body',
        'token',
        'certificate',
        'keys-unavailable',
        'too-many-sessions',
        'shutting-down',
        'queue-full',
        'internal',
      ],
    },
  ),
  onServer(
    'sallyport_requests_waiting',
    shows('{request}'),
    'Requests that wait for a session of their runtime.',
    'Do callers wait for a client?',
    ({ snapshot }) => snapshot.held,
  ),
  onServer(
    'sallyport_held_requests_total',
    counts('{request}'),
    'Requests that waited for a session of their runtime, by outcome.',
    'Was it worth waiting?',
    ({ snapshot }) => snapshot.heldOutcomes,
    { outcome: ['resumed', 'expired', 'refused', 'left'] },
  ),
  onServer(
    'sallyport_access_total',
    counts('{request}'),
    'Requests whose callers were checked, by outcome.',
    'Are callers turned away?',
    ({ snapshot }) => snapshot.access && { ...snapshot.access },
    { outcome: ['passed', 'refused', 'failed'] },
  ),
  onServer(
    'sallyport_hosts',
    shows('{host}'),
    "Runtimes' own hosts that are held by runtimes with sessions here.",
    'How many hosts are served besides the domain?',
    ({ snapshot }) => snapshot.hosts?.held,
  ),
  onServer(
    'sallyport_hosts_contested',
    shows('{host}'),
    'Hosts that a runtime with sessions here claims, but another runtime has.',
    'Do two tokens claim the same host?',
    ({ snapshot }) => snapshot.hosts?.contested,
  ),
  onServer(
    'sallyport_host_conflicts_total',
    counts('{claim}'),
    'Claims to a host that another runtime had and kept.',
    'Did two tokens claim the same host?',
    ({ snapshot }) => snapshot.hosts?.conflicts,
  ),
  onServer(
    'sallyport_directory_state',
    shows('1'),
    'State of the directory: 0 connected, 1 presumed (not reachable, but what was known is still valid), 2 lost.',
    'Does this replica know where sessions are?',
    ({ snapshot: { directory } }) => directory && DIRECTORY_STATES.indexOf(directory.state),
  ),
  onServer(
    'sallyport_directory_runtimes',
    shows('{runtime}'),
    'Runtimes that are known here.',
    'How many runtimes are there?',
    ({ snapshot }) => snapshot.directory?.known,
  ),
  onServer(
    'sallyport_directory_operations_total',
    counts('{operation}'),
    'Operations of the directory, including failed ones.',
    'How busy is the directory?',
    ({ snapshot }) => snapshot.directory?.operations,
  ),
  onServer(
    'sallyport_directory_failures_total',
    counts('{loss}'),
    'How often the directory was lost.',
    'Is the directory reliable?',
    ({ snapshot }) => snapshot.directory?.failures,
  ),
  onServer(
    'sallyport_replicas_connected',
    shows('{replica}'),
    'Other replicas that this one is connected to.',
    'Do the replicas see each other?',
    ({ snapshot }) => snapshot.peers?.connected,
  ),
  onServer(
    'sallyport_hops_total',
    counts('{exchange}'),
    'Exchanges handed to other replicas, and taken over from them.',
    'How much traffic goes through another replica?',
    ({ snapshot: { peers } }) => peers && { sent: peers.sent, taken: peers.taken },
    { direction: ['sent', 'taken'] },
  ),
]

const INBOX: readonly Metric[] = [
  onServer(
    'sallyport_inbox_accepted_total',
    counts('{webhook}'),
    'Webhooks that were stored, by reason.',
    'Why are webhooks not delivered at once?',
    ({ snapshot }) => snapshot.inbox?.accepted,
    { why: ['always', 'behind', 'offline', 'failed', 'slow', 'lost', 'duplicate'] },
  ),
  onServer(
    'sallyport_inbox_attempts_total',
    counts('{attempt}'),
    'Deliveries of stored webhooks, by outcome.',
    'Do receivers accept what was stored?',
    ({ snapshot }) => snapshot.inbox?.attempts,
    { outcome: ['delivered', 'refused', 'gone', 'failed', 'offline', 'damaged'] },
  ),
  onServer(
    'sallyport_inbox_dead_total',
    counts('{webhook}'),
    'Webhooks that became dead letters, by reason.',
    'Did we give up on webhooks?',
    ({ snapshot }) => snapshot.inbox?.dead,
    { reason: ['expired', 'poison', 'refused', 'damaged', 'bad-mac'] },
  ),
  onServer(
    'sallyport_inbox_evicted_total',
    counts('{webhook}'),
    'Refused dead letters that were deleted early, because others needed their room.',
    'Does somebody fill the inbox with forgeries?',
    ({ snapshot }) => snapshot.inbox?.evicted,
  ),
  onServer(
    'sallyport_inbox_refused_total',
    counts('{webhook}'),
    'Webhooks that could not be stored and got 503.',
    'Were webhooks lost?',
    ({ snapshot }) => snapshot.inbox?.refused,
    { reason: ['inbox-full', 'inbox-away'] },
  ),
  onServer(
    'sallyport_inbox_unproven_rules',
    shows('{runtime}'),
    'Runtimes whose stored rules are ignored, because they have no valid MAC.',
    'Did somebody else write to the store?',
    ({ snapshot }) => snapshot.inbox?.unprovenRules,
  ),
  onServer(
    'sallyport_inbox_messages',
    shows('{webhook}'),
    'Webhooks in the inbox, by state.',
    'How many webhooks wait?',
    ({ snapshot }) => snapshot.inbox?.messages,
    { state: ['waiting', 'dead', 'delivered'] },
  ),
  onServer(
    'sallyport_inbox_bytes',
    shows('By'),
    'Bytes of webhooks that wait or are dead.',
    'How close is the inbox to its limit?',
    ({ snapshot }) => snapshot.inbox?.bytes,
  ),
  onServer(
    'sallyport_inbox_oldest_age_seconds',
    shows('s'),
    'Age of the oldest waiting webhook; 0 if none waits.',
    'How long has a receiver been without its webhooks?',
    ({ snapshot }) => snapshot.inbox?.oldestSeconds,
  ),
  onServer(
    'sallyport_inbox_store_up',
    shows('1'),
    'Whether the store works: 0 or 1.',
    'Can webhooks be kept now?',
    ({ snapshot }) => snapshot.inbox && Number(snapshot.inbox.store.open),
  ),
  onServer(
    'sallyport_inbox_commits_total',
    counts('{commit}'),
    'Commits of the store.',
    'How busy is the store?',
    ({ snapshot }) => snapshot.inbox?.store.commits,
  ),
  onServer(
    'sallyport_inbox_commit_seconds_total',
    counts('s'),
    'Total time of commits of the store.',
    'How long does a commit take on average?',
    ({ snapshot }) => snapshot.inbox?.store.commitSeconds,
  ),
  onServer(
    'sallyport_inbox_commit_max_seconds',
    shows('s'),
    'Longest commit of the store in the last minute or two.',
    'Do senders wait for the disk?',
    ({ snapshot }) => snapshot.inbox?.store.commitMaxSeconds,
  ),
]

const SPANS: readonly Metric[] = [
  onAll(
    'sallyport_spans_exported_total',
    counts('{span}'),
    'Spans that the receiver of traces has accepted. Not shown while tracing is off.',
    'Do traces arrive?',
    ({ snapshot }) => snapshot.spans?.exported,
  ),
  onAll(
    'sallyport_spans_dropped_total',
    counts('{span}'),
    'Spans that never reached the receiver of traces.',
    'Are traces incomplete, and why?',
    ({ snapshot }) => snapshot.spans?.dropped,
    { reason: ['queue-full', 'refused', 'away', 'closed'] },
  ),
  onServer(
    'sallyport_spans_returned_total',
    counts('{span}'),
    'Spans that clients returned, and reports that were refused.',
    'Do clients return their spans? Does one report requests that are not its own?',
    ({ snapshot }) => snapshot.spansReturned,
    { outcome: ['taken', 'refused'] },
  ),
  onAll(
    'sallyport_spans_queued',
    shows('{span}'),
    'Spans that wait for the receiver of traces.',
    'Does the receiver keep up?',
    ({ snapshot }) => snapshot.spans?.queued,
  ),
]

const PROCESS: readonly Metric[] = [
  onAll(
    'sallyport_build_info',
    shows('1'),
    'What is running; always 1.',
    'Which version runs where?',
    ({ build }) => [{ labels: build, value: 1 }],
    { component: COMPONENTS, version: 'one', node: 'one' },
  ),
  onAll(
    'sallyport_certificate_expiry_timestamp_seconds',
    shows('s'),
    'When the certificate in force expires, since 1970.',
    'Is each certificate renewed in time?',
    ({ snapshot: { certificates = {} } }) =>
      Object.entries(certificates).map(([use, at]) => ({ labels: { use }, value: at / 1000 })),
    { use: ['public', 'hosts', 'control', 'peer', 'router', 'client'] },
  ),
  onAll(
    'nodejs_eventloop_delay_p50_seconds',
    shows('s'),
    'Median delay of the event loop, in the last one to two minutes.',
    'Is the process overloaded?',
    ({ loop }) => loop.p50,
  ),
  onAll(
    'nodejs_eventloop_delay_p99_seconds',
    shows('s'),
    '99th percentile of the same.',
    'How long does one request in a hundred wait for the CPU?',
    ({ loop }) => loop.p99,
  ),
  onAll(
    'nodejs_eventloop_delay_max_seconds',
    shows('s'),
    'Maximum of the same.',
    'Did the process stall?',
    ({ loop }) => loop.max,
  ),
  onAll('process_memory_usage_bytes', shows('By'), 'Resident memory.', 'How much memory does it need?', residentBytes),
  onAll(
    'process_cpu_time_seconds_total',
    counts('s'),
    'CPU time.',
    'How much headroom is there?',
    () => {
      const { user, system } = process.cpuUsage()
      return { user: user / 1e6, system: system / 1e6 }
    },
    { cpu_mode: ['user', 'system'] },
  ),
]

/** Linux says it in a file, which a process that may open no more cannot read. */
function residentBytes(): number | undefined {
  try {
    return process.memoryUsage.rss()
  } catch {
    return undefined
  }
}

/** The metrics of `/metrics`. */
export const METRICS: readonly Metric[] = [...EXCHANGES, ...SESSIONS, ...SERVERS, ...INBOX, ...SPANS, ...PROCESS]

/** The metrics of `/metrics/runtimes`. */
export const RUNTIME_METRICS: readonly Definition<RuntimeCounts>[] = [
  runtimes(
    'exchanges_total',
    counts('{exchange}'),
    'Completed exchanges.',
    'Who causes the traffic?',
    from => from.exchanges(),
    { status_class: STATUS_CLASSES },
  ),
  runtimes(
    'failures_total',
    counts('{exchange}'),
    'Exchanges in which Sallyport itself failed.',
    'Who is affected by a fault?',
    from => from.counted('failures'),
  ),
  runtimes(
    'exchange_seconds_total',
    counts('s'),
    'Total duration of exchanges, without upgraded ones.',
    'Whose requests are slow?',
    from => from.counted('seconds'),
  ),
  runtimes(
    'request_bytes_total',
    counts('By'),
    'Bytes of request bodies, once their exchange is over.',
    'Who sends a lot?',
    from => from.counted('bytesIn'),
  ),
  runtimes(
    'response_bytes_total',
    counts('By'),
    'Bytes of response bodies, once their exchange is over.',
    'Who receives a lot?',
    from => from.counted('bytesOut'),
  ),
  runtimes('sessions', shows('{session}'), 'Live sessions at this replica.', 'Whose client is offline?', from =>
    from.load('sessions'),
  ),
  runtimes('streams', shows('{stream}'), 'Open streams.', 'Who has a lot under way?', from => from.load('streams')),
  runtimes('buffered_bytes', shows('By'), 'Bytes that wait in our buffers.', 'Who reads slowly?', from =>
    from.load('bufferedBytes'),
  ),
]

function runtimes(
  name: string,
  kind: Kind,
  help: string,
  answers: string,
  read: Definition<RuntimeCounts>['read'],
  labels: Metric['labels'] = {},
): Definition<RuntimeCounts> {
  const runtime = `the ${MAX_RUNTIMES} busiest, and \`other\``
  return {
    name: `sallyport_runtime_${name}`,
    ...kind,
    help,
    answers,
    on: ['server'],
    labels: { runtime, ...labels },
    read,
  }
}
