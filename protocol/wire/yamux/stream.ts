import type { Session } from './session.ts'

/** Why a stream was reset. A bare RST on the wire means `cancelled`. */
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

/** Receives the events of a stream. */
export interface StreamHandler {
  /** The next bytes. The chunk belongs to the receiver, which calls `stream.consumed` once they have left it. */
  data(chunk: Uint8Array): void
  /** The peer will send nothing more. */
  end(): void
  /** The stream was reset, in both directions. Not called for our own `reset`. */
  reset(code: ResetCode): void
  /** This many of our queued bytes have been sent. */
  consumed(bytes: number): void
  /** The peer has acknowledged the stream that we opened. Called before anything that arrives with the acknowledgement. */
  acknowledged?(): void
  /** The session is about to end. Whatever could go on forever should finish now. */
  leave?(): void
  /**
   * Whether received bytes keep waiting after the stream is over, until they are `consumed` or `discard`ed. Absent or false: a
   * reset by either end drops them.
   */
  readonly keeps?: boolean
  /** Whether nothing of what arrived was or will be passed on. If the stream is reset to make room, its peer is told `refused`, not `limit`. */
  readonly unbegun?: boolean
  /**
   * Received bytes must be dropped to make room, even if `keeps` is set. The stream is over. If absent, `reset('limit')` is
   * called instead.
   */
  shed?(): void
}

/**
 * One bidirectional, ordered byte stream in a session. Calls after the end or a reset are ignored, so that races need no
 * bookkeeping at the caller.
 */
export interface Stream {
  readonly id: number
  readonly session: Session
  /** Receives events. Set it before `onStream` returns, or right after `open`. */
  handler: StreamHandler
  /** Bytes given to `write` that have not been sent yet. */
  readonly queuedBytes: number
  /** Bytes that the handler was given and has not consumed, plus those that it keeps. */
  readonly unreadBytes: number
  /** Whether the stream is over: reset, or ended in both directions. */
  readonly closed: boolean
  /** Whether nothing that was written has been sent. The peer may know of the stream, but cannot have acted on it. */
  readonly unsent: boolean

  /** Sets who is charged for waiting bytes of the stream when a ceiling is reached: runtime and address of the caller. */
  paidBy(runtime: string, caller: string): void
  /**
   * Withholds the acknowledgement until {@link acknowledge} is called, because another party has to accept the stream. It must be
   * the first call on the stream.
   */
  withholdAcknowledgement(): void
  /** Acknowledges the stream, if that was withheld. */
  acknowledge(): void
  /**
   * Sends `chunk` after everything that was written before. A string is latin1, one character per byte. The chunk belongs to
   * the stream from now on.
   */
  write(chunk: Uint8Array | string): void
  /** Ends our direction: FIN follows what is queued. The other direction stays open. */
  end(): void
  /** Ends both directions at once. Drops what is queued, and what was received unless the handler `keeps` it. */
  reset(code: ResetCode): void
  /** Gives back credit for this many of the bytes passed to `handler.data`. */
  consumed(bytes: number): void
  /**
   * Declares that the handler keeps this many of the bytes that it has consumed, such as an incomplete head whose credit must go
   * back so that the rest can arrive. They count until it keeps fewer, or the stream is over.
   */
  keep(bytes: number): void
  /** Declares that the handler has dropped everything that it has not `consumed`. */
  discard(): void
}
