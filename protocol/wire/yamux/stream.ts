import type { Session } from './session.ts'

/** Why a stream ended before its time. A bare RST on the wire means `cancelled`. */
export const RESET_CODES = [
  'cancelled',
  'refused',
  'upstream-broken',
  'timeout',
  'limit',
  'session-lost',
  'protocol',
] as const
/** One of {@link RESET_CODES}: why a stream was reset. */
export type ResetCode = (typeof RESET_CODES)[number]

/** Receiver of a stream's events. */
export interface StreamHandler {
  /** The next bytes. The chunk belongs to the receiver, which calls `stream.consumed` once they have left it. */
  data(chunk: Uint8Array): void
  /** The peer sends nothing more. */
  end(): void
  /** The stream is over in both directions; not called for our own `reset`. */
  reset(code: ResetCode): void
  /** So many of our queued bytes left for the wire. */
  consumed(bytes: number): void
  /** The peer has the stream that we opened; called before what comes with that. */
  acknowledged?(): void
  /** The session is about to end: a good moment to finish what would go on for ever. */
  leave?(): void
  /**
   * What the stream brought waits here on though the stream is over, until it is `consumed` or `discard`ed. Absent or
   * false: a reset, by either end, drops it.
   */
  readonly keeps?: boolean
  /**
   * To make room, what the stream brought must be dropped, though `keeps` says otherwise; the stream is over. Absent:
   * `reset('limit')` is called.
   */
  shed?(): void
}

/**
 * One ordered pair of byte streams in a session. Calls that come after the end or a reset are ignored, so that races
 * need no bookkeeping at the caller.
 */
export interface Stream {
  readonly id: number
  readonly session: Session
  /** Gets what comes; to be set before `onStream` returns, or at once after `open`. */
  handler: StreamHandler
  /** Bytes that `write` was given and that have not left for the wire. */
  readonly queuedBytes: number
  /** Bytes that the handler was given and has not consumed, or keeps. */
  readonly unreadBytes: number
  /** Over: reset, or ended in both directions. */
  readonly closed: boolean

  /** Who pays for what waits of the stream, where a ceiling is reached: the runtime, and of it the caller's address. */
  paidBy(runtime: string, caller: string): void
  /**
   * Whoever opened the stream is not told that it is taken, until {@link acknowledge}: somebody else has to take it. To be
   * called before anything else is.
   */
  withholdAcknowledgement(): void
  /** Says to whoever opened the stream that it is taken, where that was withheld. */
  acknowledge(): void
  /**
   * Sends `chunk` after all that was written before; text is latin1, one character a byte. It belongs to the stream from
   * now on.
   */
  write(chunk: Uint8Array | string): void
  /** Nothing more will be written: FIN follows what is queued. The other direction stays open. */
  end(): void
  /** Ends both directions at once and drops what is queued, and what was received unless the handler `keeps` it. */
  reset(code: ResetCode): void
  /** Gives back credit for so many bytes of what `handler.data` brought. */
  consumed(bytes: number): void
  /**
   * The handler keeps so many bytes besides what it has not consumed: a part of a head, whose credit must go back for the
   * rest to come. They count until it keeps fewer, or the stream is over.
   */
  keep(bytes: number): void
  /** Whoever was given what the stream brought has dropped what was not `consumed`. */
  discard(): void
}
