/** Every metric: what it is called, what it says, and where its value comes from. `docs/metrics.md` is made from this. */
import type { ExchangeCounts, Sample } from './exchange-counts.ts'
import { MAX_ROUTES, STATUS_CLASSES } from './exchange-counts.ts'
import type { LoopDelays } from './loop-delay.ts'
import { MAX_RUNTIMES, type RuntimeCounts } from './runtime-counts.ts'
import type { Snapshot } from './snapshot.ts'

export type Component = 'server' | 'client' | 'router'

/** What is read at a scrape. */
interface Reading {
  readonly snapshot: Snapshot
  readonly exchanges: ExchangeCounts
  readonly loop: LoopDelays
  readonly build: Sample['labels']
}

/** A number; one for each value of the label; or samples with labels of their own. `undefined`: there is nothing to say. */
type Values = number | Readonly<Record<string, number>> | Iterable<Sample> | undefined

export interface Definition<From> {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  /** As OpenTelemetry writes units: `s`, `By`, `1`, or what is counted, in braces. */
  readonly unit: string
  readonly help: string
  /** The question that it answers. */
  readonly answers: string
  readonly on: readonly Component[]
  /** Values of each label: all of them, or what bounds them. */
  readonly labels: Readonly<Record<string, readonly string[] | string>>
  readonly read: (from: From) => Values
}

type Metric = Definition<Reading>
type Kind = Pick<Metric, 'type' | 'unit'>

const ALL = ['server', 'client', 'router'] as const
const TUNNEL = ['server', 'client'] as const
const SERVER = ['server'] as const
const CLIENT = ['client'] as const

const counts = (unit: string): Kind => ({ type: 'counter', unit })
const shows = (unit: string): Kind => ({ type: 'gauge', unit })

const STATUS = '100 to 599; 0: none went out'
const CODE = 'a code of [errors.md](errors.md), or `other`; empty: the answer is not of ours'
const ROUTE = `on client and router: the first ${MAX_ROUTES} routes that were taken, and \`other\`; empty: none was`

/** Rows of the table below: name, kind, help, question, components, value, labels. */
function metric(
  name: string,
  kind: Kind,
  help: string,
  answers: string,
  on: readonly Component[],
  read: Metric['read'],
  labels: Metric['labels'] = {},
): Metric {
  return { name, ...kind, help, answers, on, labels, read }
}

const EXCHANGES: readonly Metric[] = [
  metric(
    'sallyport_exchanges_total',
    counts('{exchange}'),
    'Exchanges that are over, by status and, if Sallyport itself failed, by its code.',
    'How many requests are there, which share fails, is it us or the application, and on which route?',
    ALL,
    ({ exchanges }) => exchanges.totals(),
    { http_response_status_code: STATUS, error_type: CODE, route: ROUTE },
  ),
  metric(
    'http_server_request_duration_seconds',
    { type: 'histogram', unit: 's' },
    'From the request head to the end of the response; upgraded exchanges are left out.',
    'How long do requests take, those that fail and those that do not?',
    ALL,
    ({ exchanges }) => exchanges.durations(),
    { status_class: STATUS_CLASSES, route: ROUTE },
  ),
  metric(
    'sallyport_exchanges_cut_total',
    counts('{exchange}'),
    'Responses that had begun and were cut.',
    'Do callers see broken connections?',
    ALL,
    ({ exchanges }) => exchanges.cut,
  ),
  metric(
    'sallyport_upgrades_total',
    counts('{exchange}'),
    'WebSocket exchanges that are over.',
    'How many WebSockets were there?',
    ALL,
    ({ exchanges }) => exchanges.upgrades,
  ),
  metric(
    'sallyport_request_bytes_total',
    counts('By'),
    'Bytes of request bodies.',
    'How much comes in?',
    ALL,
    ({ exchanges }) => exchanges.bytesIn,
  ),
  metric(
    'sallyport_response_bytes_total',
    counts('By'),
    'Bytes of response bodies.',
    'How much goes out?',
    ALL,
    ({ exchanges }) => exchanges.bytesOut,
  ),
]

const CHANGES = [
  'sallyport_state_changes_total',
  counts('{change}'),
  'Changes of state of sessions, by what happened; the log has the reason of each.',
  'Do sessions come and go?',
] as const
const changes = ({ snapshot }: Reading) => snapshot.stateChanges

const SESSIONS: readonly Metric[] = [
  metric(...CHANGES, SERVER, changes, {
    change: ['session opened', 'session ready', 'session ended', 'handshake refused'],
  }),
  metric(...CHANGES, CLIENT, changes, {
    change: ['connected', 'disconnected', 'draining', 'reconnecting', 'refused', 'active', 'standby'],
  }),
  metric(
    'sallyport_sessions',
    shows('{session}'),
    'Live sessions.',
    'Is anybody connected?',
    TUNNEL,
    ({ snapshot }) => snapshot.sessions,
  ),
  metric(
    'sallyport_streams',
    shows('{stream}'),
    'Open streams.',
    'How many exchanges are under way in sessions?',
    TUNNEL,
    ({ snapshot }) => snapshot.streams,
  ),
  metric(
    'sallyport_buffered_bytes',
    shows('By'),
    'Bytes that wait in our buffers.',
    'Does somebody read slowly?',
    TUNNEL,
    ({ snapshot }) => snapshot.bufferedBytes,
  ),
  metric(
    'sallyport_ping_round_trip_seconds',
    shows('s'),
    'Longest last round trip of the live sessions.',
    'How far is the other end?',
    TUNNEL,
    ({ snapshot: { roundTripsMs = [] } }) => (roundTripsMs.length === 0 ? undefined : Math.max(...roundTripsMs) / 1000),
  ),
  metric(
    'sallyport_session_received_bytes_total',
    counts('By'),
    'Bytes that came out of sessions.',
    'How much do tunnels carry towards callers?',
    SERVER,
    ({ snapshot }) => snapshot.sessionBytesIn,
  ),
  metric(
    'sallyport_session_sent_bytes_total',
    counts('By'),
    'Bytes that went into sessions.',
    'How much do tunnels carry towards clients?',
    SERVER,
    ({ snapshot }) => snapshot.sessionBytesOut,
  ),
  metric(
    'sallyport_active',
    shows('1'),
    'Whether this instance gets the traffic; 0 for a standby.',
    'Which instance of a runtime serves?',
    CLIENT,
    ({ snapshot }) => snapshot.active,
  ),
  metric(
    'sallyport_reconnects_total',
    counts('{session}'),
    'Sessions opened again after a loss.',
    'Does the client lose its connections?',
    CLIENT,
    ({ snapshot }) => snapshot.reconnects,
  ),
  metric(
    'sallyport_token_expiry_timestamp_seconds',
    shows('s'),
    'When the token ends, since 1970.',
    'Is the token renewed in time?',
    CLIENT,
    ({ snapshot: { tokenExpiresAt } }) => (tokenExpiresAt === undefined ? undefined : tokenExpiresAt / 1000),
  ),
]

const DIRECTORY_STATES = ['connected', 'presumed', 'lost']

const SERVERS: readonly Metric[] = [
  metric(
    'sallyport_handshakes_refused_total',
    counts('{handshake}'),
    'Handshakes of tunnel clients that were refused, by reason.',
    'Why does a client not get in?',
    SERVER,
    ({ snapshot }) => snapshot.handshakesRefused,
    {
      reason: [
        'not-found',
        'not-upgrade',
        'token-in-url',
        'origin',
        'subprotocol',
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
  metric(
    'sallyport_requests_waiting',
    shows('{request}'),
    'Requests that wait for a session of their runtime.',
    'Do callers wait for a client?',
    SERVER,
    ({ snapshot }) => snapshot.held,
  ),
  metric(
    'sallyport_held_requests_total',
    counts('{request}'),
    'Requests that waited for a session of their runtime, by outcome.',
    'Was it worth the wait?',
    SERVER,
    ({ snapshot }) => snapshot.heldOutcomes,
    { outcome: ['resumed', 'expired', 'refused', 'left'] },
  ),
  metric(
    'sallyport_access_total',
    counts('{request}'),
    'Requests whose callers were checked, by outcome.',
    'Are callers turned away?',
    SERVER,
    ({ snapshot }) => snapshot.access && { ...snapshot.access },
    { outcome: ['passed', 'refused', 'failed'] },
  ),
  metric(
    'sallyport_hosts',
    shows('{host}'),
    "Hosts of runtimes' own that runtimes with sessions here have.",
    'How many hosts are served beside the domain?',
    SERVER,
    ({ snapshot }) => snapshot.hosts?.held,
  ),
  metric(
    'sallyport_hosts_contested',
    shows('{host}'),
    'Hosts that a runtime with sessions here claims, and another runtime has.',
    'Do two tokens claim one host?',
    SERVER,
    ({ snapshot }) => snapshot.hosts?.contested,
  ),
  metric(
    'sallyport_host_conflicts_total',
    counts('{claim}'),
    'Claims of a host that met another runtime, which kept it.',
    'Did two tokens claim one host?',
    SERVER,
    ({ snapshot }) => snapshot.hosts?.conflicts,
  ),
  metric(
    'sallyport_directory_state',
    shows('1'),
    'State of the directory: 0 connected, 1 presumed (not reachable, what was known holds), 2 lost.',
    'Does this replica know who is where?',
    SERVER,
    ({ snapshot: { directory } }) => directory && DIRECTORY_STATES.indexOf(directory.state),
  ),
  metric(
    'sallyport_directory_runtimes',
    shows('{runtime}'),
    'Runtimes that are known here.',
    'How many runtimes are there?',
    SERVER,
    ({ snapshot }) => snapshot.directory?.known,
  ),
  metric(
    'sallyport_directory_operations_total',
    counts('{operation}'),
    'Operations of the directory, including failed ones.',
    'How much is the directory asked?',
    SERVER,
    ({ snapshot }) => snapshot.directory?.operations,
  ),
  metric(
    'sallyport_directory_failures_total',
    counts('{loss}'),
    'Losses of the directory.',
    'Is the directory reliable?',
    SERVER,
    ({ snapshot }) => snapshot.directory?.failures,
  ),
  metric(
    'sallyport_replicas_connected',
    shows('{replica}'),
    'Other replicas that this one is connected to.',
    'Do the replicas see each other?',
    SERVER,
    ({ snapshot }) => snapshot.peers?.connected,
  ),
  metric(
    'sallyport_hops_total',
    counts('{exchange}'),
    'Exchanges handed to other replicas, and taken from them.',
    'How much traffic goes through another replica?',
    SERVER,
    ({ snapshot: { peers } }) => peers && { sent: peers.sent, taken: peers.taken },
    { direction: ['sent', 'taken'] },
  ),
]

const INBOX: readonly Metric[] = [
  metric(
    'sallyport_inbox_accepted_total',
    counts('{webhook}'),
    'Webhooks that were stored, by reason.',
    'Why are webhooks not delivered at once?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.accepted,
    { why: ['always', 'behind', 'offline', 'failed', 'slow', 'lost', 'duplicate'] },
  ),
  metric(
    'sallyport_inbox_attempts_total',
    counts('{attempt}'),
    'Deliveries of stored webhooks, by outcome.',
    'Do receivers take what was stored?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.attempts,
    { outcome: ['delivered', 'refused', 'gone', 'failed', 'offline', 'damaged'] },
  ),
  metric(
    'sallyport_inbox_dead_total',
    counts('{webhook}'),
    'Webhooks that became dead letters, by reason.',
    'Were webhooks given up?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.dead,
    { reason: ['expired', 'poison', 'refused', 'damaged', 'bad-mac'] },
  ),
  metric(
    'sallyport_inbox_refused_total',
    counts('{webhook}'),
    'Webhooks that could not be stored: 503.',
    'Were webhooks lost?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.refused,
    { reason: ['inbox-full', 'inbox-away'] },
  ),
  metric(
    'sallyport_inbox_unproven_rules',
    shows('{runtime}'),
    'Runtimes whose rules in the store have no good MAC, and are not believed.',
    'Did somebody else write to the store?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.unprovenRules,
  ),
  metric(
    'sallyport_inbox_messages',
    shows('{webhook}'),
    'Webhooks in the inbox, by state.',
    'How many webhooks wait?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.messages,
    { state: ['waiting', 'dead', 'delivered'] },
  ),
  metric(
    'sallyport_inbox_bytes',
    shows('By'),
    'Bytes of webhooks that wait or are dead.',
    'How close is the inbox to its limit?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.bytes,
  ),
  metric(
    'sallyport_inbox_oldest_age_seconds',
    shows('s'),
    'Age of the oldest webhook that waits; 0: none does.',
    'For how long has a receiver been without its webhooks?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.oldestSeconds,
  ),
  metric(
    'sallyport_inbox_store_up',
    shows('1'),
    'Whether the store works: 0 or 1.',
    'Can webhooks be kept now?',
    SERVER,
    ({ snapshot }) => snapshot.inbox && Number(snapshot.inbox.store.open),
  ),
  metric(
    'sallyport_inbox_commits_total',
    counts('{commit}'),
    'Commits of the store.',
    'How busy is the store?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.store.commits,
  ),
  metric(
    'sallyport_inbox_commit_seconds_total',
    counts('s'),
    'Time that its commits took.',
    'How long does a commit take on average?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.store.commitSeconds,
  ),
  metric(
    'sallyport_inbox_commit_max_seconds',
    shows('s'),
    'Longest commit of the last minute or two.',
    'Do senders wait for the disk?',
    SERVER,
    ({ snapshot }) => snapshot.inbox?.store.commitMaxSeconds,
  ),
]

const SPANS: readonly Metric[] = [
  metric(
    'sallyport_spans_exported_total',
    counts('{span}'),
    'Spans that the receiver of traces has taken. Not shown while tracing is off.',
    'Do traces arrive?',
    ALL,
    ({ snapshot }) => snapshot.spans?.exported,
  ),
  metric(
    'sallyport_spans_dropped_total',
    counts('{span}'),
    'Spans that never reached the receiver of traces.',
    'Are traces incomplete, and why?',
    ALL,
    ({ snapshot }) => snapshot.spans?.dropped,
    { reason: ['queue-full', 'refused', 'away', 'closed'] },
  ),
  metric(
    'sallyport_spans_returned_total',
    counts('{span}'),
    'Spans that clients returned, and reports that were refused.',
    'Do clients return their spans? Does one report requests that are not its own?',
    SERVER,
    ({ snapshot }) => snapshot.spansReturned,
    { outcome: ['taken', 'refused'] },
  ),
  metric(
    'sallyport_spans_queued',
    shows('{span}'),
    'Spans that wait for the receiver of traces.',
    'Does the receiver keep up?',
    ALL,
    ({ snapshot }) => snapshot.spans?.queued,
  ),
]

const PROCESS: readonly Metric[] = [
  metric(
    'sallyport_build_info',
    shows('1'),
    'What runs here; always 1.',
    'Which version runs where?',
    ALL,
    ({ build }) => [{ labels: build, value: 1 }],
    { component: ALL, version: 'one', node: 'one' },
  ),
  metric(
    'sallyport_certificate_expiry_timestamp_seconds',
    shows('s'),
    'When the certificate in force ends, since 1970.',
    'Is each certificate renewed in time?',
    ALL,
    ({ snapshot: { certificates = {} } }) =>
      Object.entries(certificates).map(([use, at]) => ({ labels: { use }, value: at / 1000 })),
    { use: ['public', 'hosts', 'control', 'peer', 'router', 'client'] },
  ),
  metric(
    'nodejs_eventloop_delay_p50_seconds',
    shows('s'),
    'Median delay of the event loop, in the last half minute or minute.',
    'Is the process out of breath?',
    ALL,
    ({ loop }) => loop.p50,
  ),
  metric(
    'nodejs_eventloop_delay_p99_seconds',
    shows('s'),
    'The same, 99th percentile.',
    'How long does one request in a hundred wait for the CPU?',
    ALL,
    ({ loop }) => loop.p99,
  ),
  metric(
    'nodejs_eventloop_delay_max_seconds',
    shows('s'),
    'The same, the longest.',
    'Did the process stand still?',
    ALL,
    ({ loop }) => loop.max,
  ),
  metric('process_memory_usage_bytes', shows('By'), 'Resident memory.', 'How much memory does it need?', ALL, () =>
    process.memoryUsage.rss(),
  ),
  metric(
    'process_cpu_time_seconds_total',
    counts('s'),
    'CPU time.',
    'How much more can it take?',
    ALL,
    () => {
      const { user, system } = process.cpuUsage()
      return { user: user / 1e6, system: system / 1e6 }
    },
    { cpu_mode: ['user', 'system'] },
  ),
]

/** Those of `/metrics`. */
export const METRICS: readonly Metric[] = [...EXCHANGES, ...SESSIONS, ...SERVERS, ...INBOX, ...SPANS, ...PROCESS]

/** Those of `/metrics/runtimes`. */
export const RUNTIME_METRICS: readonly Definition<RuntimeCounts>[] = [
  runtimes(
    'exchanges_total',
    counts('{exchange}'),
    'Exchanges that are over.',
    'Who makes the traffic?',
    from => from.exchanges(),
    { status_class: STATUS_CLASSES },
  ),
  runtimes(
    'failures_total',
    counts('{exchange}'),
    'Exchanges in which Sallyport itself failed.',
    'Whom does a fault hurt?',
    from => from.counted('failures'),
  ),
  runtimes(
    'exchange_seconds_total',
    counts('s'),
    'Time that exchanges took; upgraded ones are left out.',
    'Whose requests are slow?',
    from => from.counted('seconds'),
  ),
  runtimes('request_bytes_total', counts('By'), 'Bytes of request bodies.', 'Who sends much?', from =>
    from.counted('bytesIn'),
  ),
  runtimes('response_bytes_total', counts('By'), 'Bytes of response bodies.', 'Who is sent much?', from =>
    from.counted('bytesOut'),
  ),
  runtimes('sessions', shows('{session}'), 'Live sessions at this replica.', 'Whose client is away?', from =>
    from.load('sessions'),
  ),
  runtimes('streams', shows('{stream}'), 'Open streams.', 'Who has much under way?', from => from.load('streams')),
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
    on: SERVER,
    labels: { runtime, ...labels },
    read,
  }
}
