import { ReceiveWindow } from './receive-window.ts'
import { SendQueue } from './send-queue.ts'
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

const NOBODY: StreamHandler = { data() {}, end() {}, reset() {}, consumed() {} }

/**
 * One ordered pair of byte streams in a session. Calls that come after the end or a reset are ignored, so that races
 * need no bookkeeping at the caller.
 */
export class Stream {
  readonly id: number
  readonly session: Session
  handler: StreamHandler = NOBODY
  /** @internal See {@link paidBy}. */
  runtime = ''
  /** @internal */
  caller = ''

  /** @internal What the peer allows us to send. */
  sendWindowBytes: number
  /** @internal */
  readonly queue = new SendQueue()
  /** @internal */
  readonly receive: ReceiveWindow
  /** @internal See {@link keep}. */
  keptBytes = 0
  /** @internal SYN must go with the next frame. */
  synDue: boolean
  /** @internal ACK must go with the next frame. */
  ackDue: boolean
  /** @internal The peer has acknowledged the stream (or opened it). */
  acknowledged: boolean
  /** @internal Nothing more will be written. */
  ended = false
  /** @internal */
  finSent = false
  /** @internal */
  finReceived = false
  /** @internal Over: reset, or ended in both directions. */
  closed = false
  /** @internal The code of a `reset` message whose RST has not come yet. */
  resetCode: ResetCode | undefined = undefined
  /** @internal */
  readonly openedAt: number
  /** @internal The writer's list: the next stream, whether this one stands in it, and the last round it sent in. */
  next: Stream | undefined = undefined
  /** @internal */
  listed = false
  /** @internal */
  lastRound = -2
  /** @internal Its neighbours in a {@link StreamChain}. */
  older: Stream | undefined = undefined
  /** @internal */
  newer: Stream | undefined = undefined
  /** @internal Its credit leaves at the end of this turn. */
  creditListed = false

  /** @internal Made by the session alone. */
  constructor(session: Session, id: number, windowBytes: number, openedByUs: boolean, openedAt: number) {
    this.session = session
    this.id = id
    this.sendWindowBytes = windowBytes
    this.receive = new ReceiveWindow(windowBytes)
    this.synDue = openedByUs
    this.ackDue = !openedByUs
    this.acknowledged = !openedByUs
    this.openedAt = openedAt
  }

  /** Bytes that `write` was given and that have not left for the wire. */
  get queuedBytes(): number {
    return this.queue.bytes
  }

  /** Bytes that the handler was given and has not consumed, or keeps. */
  get unreadBytes(): number {
    return this.receive.unreadBytes + this.keptBytes
  }

  /** Who pays for what waits of the stream, where a ceiling is reached: the runtime, and of it the caller's address. */
  paidBy(runtime: string, caller: string): void {
    if (this.unreadBytes > 0) this.session.handOver(this, runtime)
    this.runtime = runtime
    this.caller = caller
  }

  /**
   * Whoever opened the stream is not told that it is taken, until {@link acknowledge}: somebody else has to take it. To be
   * called before anything else is.
   */
  withholdAcknowledgement(): void {
    this.ackDue = false
  }

  acknowledge(): void {
    this.session.acknowledge(this)
  }

  /**
   * Sends `chunk` after all that was written before; text is latin1, one character a byte. It belongs to the stream from
   * now on.
   */
  write(chunk: Uint8Array | string): void {
    if (this.ended || this.closed || chunk.length === 0) return
    this.queue.push(chunk)
    this.session.wantsToSend(this)
  }

  /** Nothing more will be written: FIN follows what is queued. The other direction stays open. */
  end(): void {
    if (this.ended || this.closed) return
    this.ended = true
    this.session.wantsToSend(this)
  }

  /** Ends both directions at once and drops what is queued, and what was received unless the handler `keeps` it. */
  reset(code: ResetCode): void {
    if (!this.closed) this.session.resetStream(this, code)
  }

  /** Gives back credit for so many bytes of what `handler.data` brought. */
  consumed(bytes: number): void {
    this.session.consumed(this, bytes)
  }

  /**
   * The handler keeps so many bytes besides what it has not consumed: a part of a head, whose credit must go back for the
   * rest to come. They count until it keeps fewer, or the stream is over.
   */
  keep(bytes: number): void {
    if (bytes !== this.keptBytes && !this.closed) this.session.keep(this, bytes)
  }

  /** Whoever was given what the stream brought has dropped what was not `consumed`. */
  discard(): void {
    this.session.consumed(this, this.unreadBytes)
  }
}
