/** Limits of the HTTP connections; docs/security.md gives the reasons. */
import { defaultsOf, type LimitOptions, type Limits, type LimitValues } from '../base/limit.ts'

const OFF = 'no limit'

export const HTTP_LIMITS = {
  headBytes: { kind: 'bytes', default: '16KiB', most: '1GiB', about: 'Most bytes of a head (decoded, for HTTP/2).' },
  headFields: { kind: 'count', default: '100', about: 'Most fields of a head. Over HTTP/2, all cookies count as one.' },
  uriBytes: { kind: 'bytes', default: '8KiB', about: 'Most bytes of the request target.' },
  headMs: {
    kind: 'duration',
    default: '10s',
    zero: OFF,
    about:
      'Time for a whole head to arrive over HTTP/1.1. Over HTTP/2, a connection with an incomplete head is kept for twice `keepAliveMs`, or until it leaves a ping unanswered.',
  },
  bodyIdleMs: {
    kind: 'duration',
    default: '60s',
    zero: OFF,
    about: 'How long a request body may pause while we wait for more of it, until its answer begins.',
  },
  stalledMs: {
    kind: 'duration',
    default: '60s',
    zero: OFF,
    about:
      'How long a receiver may go without taking any of the bytes that wait for it. Linux reports what it has taken only once a third of the send buffer is free. That buffer has up to 4 MiB, so by default, a caller that reads less than 23 kB/s may be cut.',
  },
  keepAliveMs: {
    kind: 'duration',
    default: '65s',
    zero: 'it is kept forever',
    about: 'How long a downstream connection without a request is kept.',
  },
  drainBytes: {
    kind: 'bytes',
    default: '256KiB',
    zero: 'no rest is awaited',
    about:
      'Most bytes of a request body that may still be due when an error is answered early. If more are announced, the answer says that the connection ends.',
  },
  drainMs: {
    kind: 'duration',
    default: '5s',
    zero: OFF,
    about:
      'How long the rest of a request body is read and discarded after an early answer, before our half of the connection is closed. Then the connection also ends when the caller sends nothing for this long. The time that the caller takes to read the answer does not count.',
  },
  lingerMs: {
    kind: 'duration',
    default: '30s',
    zero: OFF,
    about:
      'How long in total a caller may go on sending after our half was closed. We do not reset the connection earlier, because the caller could then lose the answer.',
  },
  bufferBytes: {
    kind: 'bytes',
    default: '64KiB',
    about: 'Most bytes of one body that may wait for their receiver before we stop reading.',
  },
  informational: {
    kind: 'count',
    default: '32',
    zero: 'none',
    about:
      'Most informational responses of one exchange, without the 100. Those that exceed the size of one head in all are dropped.',
  },
  expectMs: {
    kind: 'duration',
    default: '1s',
    zero: 'the listener itself sends none',
    about:
      'A caller that sent `Expect: 100-continue` gets its 100 after this time at the latest. Whatever is set here, a router sends one if its target has not answered within 1 s, and a target function or an attached server at once.',
  },
  halfCloseMs: {
    kind: 'duration',
    default: '3s',
    zero: OFF,
    about:
      'How long an answer that has begun may send nothing after its caller closed its half of the connection. A WebSocket goes on until its service ends it or the caller has gone. Before the answer begins, we wait for as long as probes show that the caller is still connected. The first probe is sent after 1 s at the latest, and the interval doubles.',
  },
  http2Streams: { kind: 'count', default: '100', about: 'Most concurrent HTTP/2 streams of one connection.' },
  http2WindowBytes: { kind: 'bytes', default: '64KiB', most: '1GiB', about: 'HTTP/2 window of one stream.' },
  http2SessionWindowBytes: {
    kind: 'bytes',
    default: '1MiB',
    least: '64KiB',
    most: '1GiB',
    about: 'HTTP/2 window of one connection.',
  },
  http2ResetBurst: { kind: 'count', default: '200', about: 'Most resets of one HTTP/2 session in a burst.' },
  http2ResetRate: { kind: 'count', default: '50', about: 'The same per second, in the long run.' },
  http2ControlBytes: {
    kind: 'bytes',
    default: '64KiB',
    zero: OFF,
    about: 'Most bytes per second of HTTP/2 frames that carry neither a request nor a body.',
  },
  http2PingMs: {
    kind: 'duration',
    default: '30s',
    zero: 'never',
    about:
      'How often a caller with open streams is pinged over HTTP/2. If a ping is not answered within `stalledMs`, the session ends.',
  },
} as const satisfies Limits

export type HttpLimits = LimitValues<typeof HTTP_LIMITS>

/** The limits that an embedder sets. */
export type HttpLimitOptions = LimitOptions<typeof HTTP_LIMITS>

export const DEFAULT_HTTP_LIMITS: HttpLimits = defaultsOf(HTTP_LIMITS)

/** Limits of a listener. */
export const LISTENER_LIMITS = {
  maxConnections: {
    kind: 'count',
    default: '10000',
    about:
      'Most open connections. Beyond that, a new connection replaces an idle one of the network that has the most, or is closed at once.',
  },
} as const satisfies Limits

/** Limits of requests that come from one of our own listeners: its defaults, with room for the fields that we add on the way. */
export const INNER_LIMITS = { headBytes: 32 * 1024, headFields: 128 } as const satisfies HttpLimitOptions
