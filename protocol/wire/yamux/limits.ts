/** Limits of one session. Those with a flag are settings of both server and client. */
import { defaultsOf, type LimitOptions, type Limits, type LimitValues, resolveLimits } from '../../base/limit.ts'
import { readBytes } from '../../base/units.ts'

export const SESSION_LIMITS = {
  maxStreams: {
    kind: 'count',
    flag: 'limits.streams',
    default: '1000',
    most: '1000000',
    about: 'Most streams of one session at a time.',
  },
  maxWindowBytes: {
    kind: 'bytes',
    flag: 'limits.window',
    default: '4MiB',
    least: '1KiB',
    most: '16MiB',
    about: 'Largest receive window of a stream; at most 16MiB.',
  },
  sessionBufferBytes: {
    kind: 'bytes',
    flag: 'limits.session-buffer',
    default: '32MiB',
    least: '1KiB',
    about: 'Most unread bytes of one session.',
  },
  pingIntervalMs: {
    kind: 'duration',
    flag: 'ping.interval',
    default: '10s',
    least: '1s',
    most: '20s',
    about:
      'How often the server pings a session. A client sends a ping when one is overdue. Middleboxes cut connections that are idle for longer.',
  },
  pingTimeoutMs: {
    kind: 'duration',
    flag: 'ping.timeout',
    default: '15s',
    least: '1s',
    most: '10m',
    about:
      'A session is dead if nothing has arrived on it for this long. Pings are sent at least every two thirds of this time.',
  },
  initialWindowBytes: {
    kind: 'bytes',
    default: '256KiB',
    least: '4KiB',
    most: '256KiB',
    about: "Window of a new stream, until the other end's limits are known.",
  },
  backlog: {
    kind: 'count',
    default: '256',
    about: 'Most streams that one end opened and the other has not acknowledged.',
  },
  controlBytes: { kind: 'bytes', default: '16KiB', about: 'The longest control message, in either direction.' },
  writeDeadlineMs: {
    kind: 'duration',
    default: '10s',
    about: 'A session is dead if its transport has accepted nothing for this long.',
  },
  openDeadlineMs: {
    kind: 'duration',
    default: '10s',
    about: 'A stream that the peer has not acknowledged after this long is reset.',
  },
  resetBurst: {
    kind: 'count',
    default: '5000',
    about: 'Most streams that the peer may open and reset, or open in vain, in a burst.',
  },
  resetsPerSecond: { kind: 'count', default: '1000', about: 'The same per second, in the long run.' },
} as const satisfies Limits

/** The most that `maxWindowBytes` may be. */
export const MAX_WINDOW_BYTES = readBytes(SESSION_LIMITS.maxWindowBytes.most)

export type SessionLimits = LimitValues<typeof SESSION_LIMITS>

export const DEFAULT_SESSION_LIMITS: SessionLimits = defaultsOf(SESSION_LIMITS)

/**
 * For a trusted peer that resets a stream when a caller cancels a request. A caller that begins and cancels many requests
 * must not end the session that carries everyone else's.
 */
export const RESETS_OF_STRANGERS = { resetBurst: 1_000_000, resetsPerSecond: 100_000 } as const

/** `given`, completed with the defaults. Throws TypeError for a value out of range. */
export function resolveSessionLimits(given: LimitOptions<typeof SESSION_LIMITS>): SessionLimits {
  const limits = resolveLimits(SESSION_LIMITS, given)
  return {
    ...limits,
    pingIntervalMs: Math.min(limits.pingIntervalMs, (limits.pingTimeoutMs * 2) / 3),
    maxWindowBytes: Math.max(limits.maxWindowBytes, limits.initialWindowBytes),
  }
}

const FIRST_WINDOW = SESSION_LIMITS.initialWindowBytes
const [LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES] = [FIRST_WINDOW.least, FIRST_WINDOW.most].map(readBytes) as [
  number,
  number,
]

/** Clamps an initial window to what both ends can count on: 4 KiB to the spec's 256 KiB. */
export function clampWindow(bytes: number): number {
  return Math.min(MOST_WINDOW_BYTES, Math.max(LEAST_WINDOW_BYTES, Math.floor(bytes)))
}
