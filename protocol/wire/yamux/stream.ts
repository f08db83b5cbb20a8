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
  /** This many of our queued bytes have left for the wire. */
  consumed(bytes: number): void
  /** The peer has the stream that we opened. Called before anything that arrives with that. */
  acknowledged?(): void
  /** The session is about to end. What would go on for ever should finish now. */
  leave?(): void
  /**
   * Whether what arrived waits on when the stream is over, until it is `consumed` or `discard`ed. Absent or false: a reset
   * by either end drops it.
   */
  readonly keeps?: boolean
  /**
   * What arrived must be dropped to make room, though `keeps` says otherwise. The stream is over. Absent: `reset('limit')` is
   * called.
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
  /** Receives events. Set it before `onStream` returns, or at once after `open`. */
  handler: StreamHandler
  /** Bytes given to `write` that have not left for the wire. */
  readonly queuedBytes: number
  /** Bytes that the handler was given and has not consumed, or keeps. */
  readonly unreadBytes: number
  /** Over: reset, or ended in both directions. */
  readonly closed: boolean

  /** Says who pays for waiting bytes of the stream when a ceiling is reached: the runtime, and the caller's address. */
  paidBy(runtime: string, caller: string): void
  /**
   * Withholds the acknowledgement until {@link acknowledge} is called, because somebody else has to take the stream. It must
   * be the first call on the stream.
   */
  withholdAcknowledgement(): void
  /** Acknowledges the stream, if that was withheld. */
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
  /** Gives back credit for this many of the bytes passed to `handler.data`. */
  consumed(bytes: number): void
  /**
   * The handler keeps this many bytes of what it has consumed, such as a part of a head, whose credit must go back so that the
   * rest can come. They count until it keeps fewer, or the stream is over.
   */
  keep(bytes: number): void
  /** The handler has dropped everything that it has not `consumed`. */
  discard(): void
}
