/** Limits of the HTTP ends; security.md gives the reasons. Durations in ms; 0 means the limit does not hold. */
export interface HttpLimits {
  /** Bytes of a head (decoded, for HTTP/2). */
  headBytes: number
  /** Fields of a head. */
  headFields: number
  /** Bytes of the request target. */
  uriBytes: number
  /** A head must be whole within this time. */
  headMs: number
  /** Without a byte of a request body while we wait for it. */
  bodyIdleMs: number
  /** The receiver takes nothing of what waits for it. */
  stalledMs: number
  /** A downstream connection without a request. */
  keepAliveMs: number
  /** What is read and thrown away behind an early answer, before our half of the connection is closed. */
  drainBytes: number
  /**
   * The same; and from then on a caller that sends nothing for so long is not waited for. Behind what it still reads of the
   * answer.
   */
  drainMs: number
  /** A caller that goes on sending after our half was closed has so long in all: a reset could cost it the answer. */
  lingerMs: number
  /** Bytes of one body that may wait for their receiver before we stop reading. */
  bufferBytes: number
  /** Informational responses of one exchange. */
  informational: number
  /** A caller that sent `Expect: 100-continue` is told to go on after this time at the latest. */
  expectMs: number
  /**
   * For so long an answer that has begun may say nothing after its caller closed its half of the connection. Before the
   * answer begins, the caller is asked whether it is there (from 1 s on, as often as it takes), and waited for.
   */
  halfCloseMs: number
  /** Concurrent HTTP/2 streams of one connection. */
  http2Streams: number
  /** HTTP/2 window of one stream, and of one connection. */
  http2WindowBytes: number
  http2SessionWindowBytes: number
  /** Memory of one HTTP/2 session, in MB. */
  http2SessionMemoryMb: number
  /** Resets of one HTTP/2 session: at once, and per second. */
  http2ResetBurst: number
  http2ResetRate: number
  /** Bytes per second of HTTP/2 frames that carry no request and no body. */
  http2ControlBytes: number
  /**
   * HTTP/2 pings to a caller or an upstream that has open streams. Unanswered for `stalledMs`, it is gone; an upstream
   * that leaves one unanswered when the next would be due gets no new exchanges on that session.
   */
  http2PingMs: number
}

export const DEFAULT_HTTP_LIMITS: Readonly<HttpLimits> = {
  headBytes: 16 * 1024,
  headFields: 100,
  uriBytes: 8 * 1024,
  headMs: 10_000,
  bodyIdleMs: 60_000,
  stalledMs: 60_000,
  keepAliveMs: 65_000,
  drainBytes: 256 * 1024,
  drainMs: 5_000,
  lingerMs: 30_000,
  bufferBytes: 64 * 1024,
  informational: 32,
  expectMs: 1_000,
  halfCloseMs: 3_000,
  http2Streams: 100,
  http2WindowBytes: 64 * 1024,
  http2SessionWindowBytes: 1024 * 1024,
  http2SessionMemoryMb: 4,
  http2ResetBurst: 200,
  http2ResetRate: 50,
  http2ControlBytes: 64 * 1024,
  http2PingMs: 30_000,
}

/** Behind an end of ours: what that end takes by default, and room for the fields that we add on the way. */
export const INNER_LIMITS = { headBytes: 32 * 1024, headFields: 128 } as const satisfies Partial<HttpLimits>
