/** Limits of the client, each with its option, flag and meaning. The back-off between dials is in `dial/backoff.ts`. */
import type { LimitOptions, Limits } from '../protocol/base/limit.ts'
import { SESSION_LIMITS } from '../protocol/wire/yamux/limits.ts'

/** Limits of each session that an embedder may set. */
export const CLIENT_SESSION_LIMITS = {
  maxStreams: SESSION_LIMITS.maxStreams,
  maxWindowBytes: SESSION_LIMITS.maxWindowBytes,
  sessionBufferBytes: SESSION_LIMITS.sessionBufferBytes,
  pingIntervalMs: SESSION_LIMITS.pingIntervalMs,
  pingTimeoutMs: SESSION_LIMITS.pingTimeoutMs,
  initialWindowBytes: SESSION_LIMITS.initialWindowBytes,
  writeDeadlineMs: SESSION_LIMITS.writeDeadlineMs,
} as const satisfies Limits

/** Limits of each session. */
export type SessionLimitOptions = LimitOptions<typeof CLIENT_SESSION_LIMITS>

/** How a client connects. */
export const CONNECT_LIMITS = {
  connections: {
    kind: 'count',
    flag: 'connections',
    default: '2',
    most: '16',
    about: 'Number of sessions to keep up.',
  },
  connectTimeoutMs: {
    kind: 'duration',
    default: '0s',
    zero: 'as long as it takes',
    about: 'How long `connect` waits for its first session.',
  },
  handshakeTimeoutMs: { kind: 'duration', default: '10s', about: 'Deadline of one attempt to connect.' },
} as const satisfies Limits
