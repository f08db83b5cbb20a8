/** Bounds of the HTTP ends; docs/security.md gives the reasons. */
import { defaultsOf, type LimitOptions, type Limits, type LimitValues } from '../base/limit.ts'

const OFF = 'it may take any time'

export const HTTP_LIMITS = {
  headBytes: { kind: 'bytes', default: '16KiB', about: 'Bytes of a head (decoded, for HTTP/2).' },
  headFields: { kind: 'count', default: '100', about: 'Fields of a head.' },
  uriBytes: { kind: 'bytes', default: '8KiB', about: 'Bytes of the request target.' },
  headMs: {
    kind: 'duration',
    default: '10s',
    zero: OFF,
    about:
      'A head must be whole within this time over HTTP/1.1. Over HTTP/2 a connection with half a head is kept twice `keepAliveMs`, or until a ping is not answered.',
  },
  bodyIdleMs: {
    kind: 'duration',
    default: '60s',
    zero: OFF,
    about: 'How long a request body may stand still while we wait for it.',
  },
  stalledMs: {
    kind: 'duration',
    default: '60s',
    zero: OFF,
    about: 'How long a receiver may take nothing of what waits for it.',
  },
  keepAliveMs: {
    kind: 'duration',
    default: '65s',
    zero: 'for ever',
    about: 'How long a downstream connection without a request is kept.',
  },
  drainBytes: {
    kind: 'bytes',
    default: '256KiB',
    zero: 'nothing is read',
    about: 'What is read and thrown away behind an early answer, before our half of the connection is closed.',
  },
  drainMs: {
    kind: 'duration',
    default: '5s',
    zero: OFF,
    about:
      'The same as a time; and from then on a caller that sends nothing for so long is not waited for. Behind what it still reads of the answer.',
  },
  lingerMs: {
    kind: 'duration',
    default: '30s',
    zero: OFF,
    about: 'How long in all a caller may go on sending after our half was closed: a reset could cost it the answer.',
  },
  bufferBytes: {
    kind: 'bytes',
    default: '64KiB',
    about: 'Bytes of one body that may wait for their receiver before we stop reading.',
  },
  informational: { kind: 'count', default: '32', zero: 'none', about: 'Informational responses of one exchange.' },
  expectMs: {
    kind: 'duration',
    default: '1s',
    zero: 'only the handler says so',
    about: 'A caller that sent `Expect: 100-continue` is told to go on after this time at the latest.',
  },
  halfCloseMs: {
    kind: 'duration',
    default: '3s',
    zero: OFF,
    about:
      'How long an answer that has begun may say nothing after its caller closed its half of the connection. Before the answer begins, the caller is asked whether it is there (from 1 s on, as often as it takes), and waited for.',
  },
  http2Streams: { kind: 'count', default: '100', about: 'Concurrent HTTP/2 streams of one connection.' },
  http2WindowBytes: { kind: 'bytes', default: '64KiB', most: '1GiB', about: 'HTTP/2 window of one stream.' },
  http2SessionWindowBytes: {
    kind: 'bytes',
    default: '1MiB',
    least: '64KiB',
    most: '1GiB',
    about: 'HTTP/2 window of one connection.',
  },
  http2SessionMemoryMb: { kind: 'count', default: '4', about: 'Memory of one HTTP/2 session, in MB.' },
  http2ResetBurst: { kind: 'count', default: '200', about: 'Resets of one HTTP/2 session at once.' },
  http2ResetRate: { kind: 'count', default: '50', about: 'The same per second, in the long run.' },
  http2ControlBytes: {
    kind: 'bytes',
    default: '64KiB',
    zero: 'no limit',
    about: 'Bytes per second of HTTP/2 frames that carry no request and no body.',
  },
  http2PingMs: {
    kind: 'duration',
    default: '30s',
    zero: 'never',
    about:
      'How often a caller or an upstream that has open streams is pinged over HTTP/2. Unanswered for `stalledMs`, it is gone; an upstream that leaves one unanswered when the next would be due gets no new exchanges on that session.',
  },
} as const satisfies Limits

export type HttpLimits = LimitValues<typeof HTTP_LIMITS>

/** What an embedder gives of them. */
export type HttpLimitOptions = LimitOptions<typeof HTTP_LIMITS>

export const DEFAULT_HTTP_LIMITS: HttpLimits = defaultsOf(HTTP_LIMITS)

/** Of a listener. */
export const LISTENER_LIMITS = {
  maxConnections: {
    kind: 'count',
    default: '10000',
    about: 'Most open connections. One more ends an idle one of the network that has most, or is closed as it comes.',
  },
} as const satisfies Limits

/** Limits behind an end of ours: its defaults, and room for the fields that we add on the way. */
export const INNER_LIMITS = { headBytes: 32 * 1024, headFields: 128 } as const satisfies HttpLimitOptions
