/** Limits of the server, each with its option, flag and meaning. */
import { defaultsOf, type LimitOptions, type Limits, type LimitValues } from '../protocol/base/limit.ts'
import { SESSION_LIMITS } from '../protocol/wire/yamux/limits.ts'

export const SERVER_LIMITS = {
  handshakeMs: {
    kind: 'duration',
    flag: 'limits.handshake',
    default: '10s',
    least: '100ms',
    most: '10m',
    about: "Deadline from a client's first byte to its `hello`.",
  },
  handshakeBudget: {
    kind: 'share',
    flag: 'limits.handshake-budget',
    default: '0.3',
    zero: 'the same as 0.01, so that clients can still connect',
    about: 'Share of the event loop that handshakes may take.',
  },
  handshakesWaiting: {
    kind: 'count',
    flag: 'limits.handshakes-waiting',
    default: '4096',
    about:
      'Most clients that may wait for their handshake. Beyond that, a new one replaces one of the network that has the most waiting.',
  },
  handshakesWaitingPerAddress: {
    kind: 'count',
    flag: 'limits.handshakes-waiting-per-address',
    default: '256',
    about: 'The same per address (IPv6: per /64).',
  },
  handshakesUnderWay: {
    kind: 'count',
    flag: 'limits.handshakes-under-way',
    default: '1024',
    least: '8',
    about:
      'Most clients in the middle of a handshake. Beyond that, a new one replaces the oldest of the network that has the most.',
  },
  sessions: {
    kind: 'count',
    flag: 'limits.sessions',
    default: '20000',
    about: 'Most sessions, over all runtimes. A session counts until its socket is closed.',
  },
  sessionsPerRuntime: {
    kind: 'count',
    flag: 'limits.sessions-per-runtime',
    default: '64',
    most: '10000',
    about: 'Most sessions of one runtime.',
  },
  sessionsPerAddress: {
    kind: 'count',
    flag: 'limits.sessions-per-address',
    default: '0',
    zero: 'no limit',
    about: 'Most sessions of clients at one address (IPv6: /64).',
  },
  exchangesPerRuntime: {
    kind: 'count',
    flag: 'limits.exchanges-per-runtime',
    default: '10000',
    zero: 'no limit',
    about: 'Most exchanges of one runtime at a time.',
  },
  requestRatePerRuntime: {
    kind: 'count',
    flag: 'limits.request-rate-per-runtime',
    default: '0',
    zero: 'no limit',
    about: 'Requests per second for one runtime; also the burst. Beyond that: 429.',
  },
  byteRatePerRuntime: {
    kind: 'bytes',
    flag: 'limits.byte-rate-per-runtime',
    default: '0',
    zero: 'no limit',
    about:
      'Body bytes per second for one runtime, both directions together. Beyond that, they are slowed down and new requests get 429.',
  },
  bufferBytesPerRuntime: {
    kind: 'bytes',
    flag: 'limits.buffer-per-runtime',
    default: '64MiB',
    zero: 'only the limit of the process applies',
    about: 'Most unread bytes of the sessions of one runtime, and the same again between replicas.',
  },
  exchangesPerAddress: {
    kind: 'count',
    flag: 'limits.exchanges-per-address',
    default: '0',
    zero: 'no limit',
    about: 'Most exchanges at a time from one address (IPv6: /64), which may be a proxy.',
  },
  requestRatePerAddress: {
    kind: 'count',
    flag: 'limits.request-rate-per-address',
    default: '0',
    zero: 'no limit',
    about: 'Requests per second from one address; also the burst.',
  },
  byteRatePerAddress: {
    kind: 'bytes',
    flag: 'limits.byte-rate-per-address',
    default: '0',
    zero: 'no limit',
    about: 'Body bytes per second from one address, both directions together.',
  },
  processBufferBytes: {
    kind: 'bytes',
    flag: 'limits.process-buffer',
    default: '256MiB',
    least: '1KiB',
    about: 'Most unread bytes of all sessions.',
  },
  replayBytes: {
    kind: 'bytes',
    flag: 'limits.replay',
    default: '64KiB',
    zero: 'only requests without a body are replayed',
    about: 'Most body bytes kept per exchange so that it can be replayed; four times as much until it has a session.',
  },
  replayTotalBytes: {
    kind: 'bytes',
    flag: 'limits.replay-total',
    default: '64MiB',
    zero: 'only requests without a body are replayed',
    about:
      'The same, over all exchanges. When it is full, the runtime or the network that uses most of it loses its oldest bodies.',
  },
  responseHeadMs: {
    kind: 'duration',
    flag: 'limits.response-head',
    default: '0s',
    zero: "the route's deadline applies",
    about: 'Deadline from a request to the head of its response, including the wait for a session.',
  },
  corsKeepMs: {
    kind: 'duration',
    flag: 'limits.cors-keep',
    default: '7d',
    zero: 'it is dropped with that session',
    about: "How long a runtime's CORS policy is kept after its last session.",
  },
  streams: SESSION_LIMITS.maxStreams,
  maxWindowBytes: SESSION_LIMITS.maxWindowBytes,
  sessionBufferBytes: SESSION_LIMITS.sessionBufferBytes,
  pingIntervalMs: SESSION_LIMITS.pingIntervalMs,
  pingTimeoutMs: SESSION_LIMITS.pingTimeoutMs,
} as const satisfies Limits

/** Limits of the server. */
export type ServerLimits = LimitOptions<typeof SERVER_LIMITS>
export type ResolvedLimits = LimitValues<typeof SERVER_LIMITS>

export const DEFAULT_SERVER_LIMITS: ResolvedLimits = defaultsOf(SERVER_LIMITS)

export const HOLD_LIMITS = {
  holdMs: {
    kind: 'duration',
    flag: 'hold.time',
    default: '5s',
    zero: 'requests do not wait',
    about: 'How long a request waits for a session of its runtime, if the runtime is known.',
  },
  forgetMs: {
    kind: 'duration',
    flag: 'hold.forget',
    default: '60s',
    zero: 'it is forgotten at once',
    about: 'How long a runtime stays known after its last session ended.',
  },
  startupMs: {
    kind: 'duration',
    flag: 'hold.startup',
    default: '10s',
    zero: 'only runtimes that were seen are known',
    about: "How long every runtime counts as known after the server's start.",
  },
  requestsPerRuntime: {
    kind: 'count',
    flag: 'hold.requests-per-runtime',
    default: '256',
    zero: 'requests do not wait',
    about: 'Most requests that may wait for one runtime.',
  },
  bytesPerRuntime: {
    kind: 'bytes',
    flag: 'hold.bytes-per-runtime',
    default: '4MiB',
    zero: 'only requests without a body wait',
    about: 'Most body bytes kept for requests that wait for one runtime.',
  },
  requests: {
    kind: 'count',
    flag: 'hold.requests',
    default: '4096',
    zero: 'requests do not wait',
    about: 'Most requests that may wait, over all runtimes.',
  },
  bytes: {
    kind: 'bytes',
    flag: 'hold.bytes',
    default: '64MiB',
    zero: 'only requests without a body wait',
    about: 'Most body bytes kept for waiting requests, over all runtimes.',
  },
} as const satisfies Limits

/** How requests wait for a runtime that is known but has no session at the moment. */
export type HoldOptions = LimitOptions<typeof HOLD_LIMITS>
export type HoldLimits = LimitValues<typeof HOLD_LIMITS>

export const DEFAULT_HOLD: HoldLimits = defaultsOf(HOLD_LIMITS)

/** How a server drains. A drain message to a client holds at most a day. */
export const DRAIN_TIMES = {
  drainSpreadMs: {
    kind: 'duration',
    flag: 'drain-spread',
    default: '5s',
    most: '24h',
    zero: 'all clients at once, as without a directory',
    about: 'When a server with a directory stops, it asks its clients to leave one by one, spread over this time.',
  },
  drainDelayMs: {
    kind: 'duration',
    flag: 'drain-delay',
    default: '0s',
    most: '24h',
    zero: 'no delay',
    about: 'How long a stopping server keeps serving with `/readyz` at 503, so that load balancers notice.',
  },
} as const satisfies Limits

export const LEASE = {
  leaseMs: {
    kind: 'duration',
    flag: 'directory.lease',
    default: '5s',
    least: '1s',
    most: '1h',
    about: 'How long a replica may act on what it knows before the directory confirms it again; at least 1s.',
  },
} as const satisfies Limits

/** What the inbox keeps, and how fast it delivers. */
export const INBOX = {
  messagesPerRuntime: {
    kind: 'count',
    flag: 'inbox.messages-per-runtime',
    default: '10000',
    about: 'Most webhooks of one runtime that wait or are dead.',
  },
  bytesPerRuntime: {
    kind: 'bytes',
    flag: 'inbox.bytes-per-runtime',
    default: '256MiB',
    about: 'Most bytes of those webhooks.',
  },
  messagesPerLane: {
    kind: 'count',
    flag: 'inbox.messages-per-lane',
    default: '2000',
    about: 'Most webhooks that wait in one lane.',
  },
  bytes: { kind: 'bytes', flag: 'inbox.bytes', default: '4GiB', about: 'Most bytes of the webhooks of all runtimes.' },
  diskFreeBytes: {
    kind: 'bytes',
    flag: 'inbox.disk-free',
    default: '1GiB',
    zero: 'the inbox may fill the disk',
    about: 'Free space on the disk of the inbox below which nothing more is stored.',
  },
  unverifiedPerMinute: {
    kind: 'count',
    flag: 'inbox.unverified-per-minute',
    default: '60',
    zero: 'no limit',
    about:
      'Most webhooks without a verified signature that one address (IPv6: /64) may store for one runtime per minute, once half of the quota of the runtime or lane is used. Long ones count as several. Once half of `--inbox.bytes` is used, the same address may store this many 10,000ths of it per minute, over all runtimes.',
  },
  maxAgeMs: {
    kind: 'duration',
    flag: 'inbox.max-age',
    default: '30d',
    least: '1s',
    most: '30d',
    about: 'Longest time for which a route may have its webhooks retried.',
  },
  deadMs: {
    kind: 'duration',
    flag: 'inbox.keep-dead',
    default: '30d',
    least: '1s',
    most: '365d',
    about:
      'How long dead letters are kept. They count against the quota of their runtime. Refused ones may be deleted earlier, once that is nearly used up.',
  },
  deliveredMs: {
    kind: 'duration',
    flag: 'inbox.keep-delivered',
    default: '24h',
    least: '10m',
    most: '30d',
    about: 'How long delivered webhooks stay listed, without head and body. At most the newest 200,000.',
  },
  attemptMs: {
    kind: 'duration',
    flag: 'inbox.attempt',
    default: '5m',
    least: '1s',
    most: '1h',
    about: 'How long the receiver may take to answer one delivery from the inbox.',
  },
  lanesPerRuntime: {
    kind: 'count',
    flag: 'inbox.lanes-per-runtime',
    default: '16',
    about: 'Most webhooks of one runtime that are delivered at a time, each from a different lane.',
  },
  lanes: { kind: 'count', flag: 'inbox.lanes', default: '256', about: 'The same, over all runtimes.' },
  bufferBytes: {
    kind: 'bytes',
    flag: 'inbox.buffer',
    default: '64MiB',
    least: '1MiB',
    about:
      'Most memory for bodies of webhooks in flight; one runtime gets at most half of it, one address (IPv6: /64) two thirds, and one address at one runtime a third. Beyond that, webhooks bypass the inbox, and those that have to be stored get 503. As much again is for senders that have lately sent a webhook whose signature the edge has verified, and as much for attempts that go on after their 202; beyond that, they are given up, and the webhooks are delivered again.',
  },
} as const satisfies Limits

export type InboxLimits = LimitValues<typeof INBOX>
