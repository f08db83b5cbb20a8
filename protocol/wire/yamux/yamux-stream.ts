import { networkOf } from '../../base/address.ts'
import { ReceiveWindow } from './receive-window.ts'
import { SendQueue } from './send-queue.ts'
import type { Session } from './session.ts'
import type { ResetCode, Stream, StreamHandler } from './stream.ts'

/** The session, as its streams see it. */
export interface StreamOwner extends Session {
  /** The stream has something to send, if the window allows it. */
  wantsToSend(stream: YamuxStream): void
  acknowledge(stream: YamuxStream): void
  consumed(stream: YamuxStream, bytes: number): void
  keep(stream: YamuxStream, bytes: number): void
  resetStream(stream: YamuxStream, code: ResetCode): void
  handOver(stream: YamuxStream, runtime: string): void
  /** Resets the stream if it is open, and tells its handler that its bytes are dropped. */
  shedStream(stream: YamuxStream): void
}

const NOBODY: StreamHandler = { data() {}, end() {}, reset() {}, consumed() {} }

/** A stream with the state that the parts of its session share. */
export class YamuxStream implements Stream {
  readonly id: number
  readonly session: StreamOwner
  handler: StreamHandler = NOBODY
  /** See `paidBy`. */
  runtime = ''
  caller = ''
  #network: string | undefined

  /** Bytes that the peer allows us to send. */
  sendWindowBytes: number
  readonly queue = new SendQueue()
  unsent: boolean
  readonly receive: ReceiveWindow
  /** See `keep`. */
  keptBytes = 0
  /** Whether the next frame must have SYN. */
  synDue: boolean
  /** Whether the next frame must have ACK. */
  ackDue: boolean
  /** Whether the peer has acknowledged the stream, or opened it. */
  acknowledged: boolean
  /** Nothing more will be written. */
  ended = false
  finSent = false
  finReceived = false
  /** Over: reset, or ended in both directions. */
  closed = false
  /** The code of a `reset` message whose RST has not arrived yet. */
  resetCode: ResetCode | undefined = undefined
  readonly openedAt: number
  /** For the list of the writer: the next stream, whether this one is in it, still after a flush, and the last round it sent in. */
  next: YamuxStream | undefined = undefined
  listed = false
  waits = false
  lastRound = -2
  /** Its neighbours in a {@link StreamChain}. */
  older: YamuxStream | undefined = undefined
  newer: YamuxStream | undefined = undefined
  /** Whether its credit is sent at the end of this turn. */
  creditListed = false

  constructor(session: StreamOwner, id: number, windowBytes: number, openedByUs: boolean, openedAt: number) {
    this.session = session
    this.id = id
    this.sendWindowBytes = windowBytes
    this.receive = new ReceiveWindow(windowBytes)
    this.unsent = openedByUs
    this.synDue = openedByUs
    this.ackDue = !openedByUs
    this.acknowledged = !openedByUs
    this.openedAt = openedAt
  }

  get queuedBytes(): number {
    return this.queue.bytes
  }

  get unreadBytes(): number {
    return this.receive.unreadBytes + this.keptBytes
  }

  paidBy(runtime: string, caller: string): void {
    if (this.unreadBytes > 0) this.session.handOver(this, runtime)
    this.runtime = runtime
    this.caller = caller
    this.#network = undefined
  }

  /** Of its caller. */
  get network(): string {
    this.#network ??= networkOf(this.caller)
    return this.#network
  }

  withholdAcknowledgement(): void {
    this.ackDue = false
  }

  acknowledge(): void {
    this.session.acknowledge(this)
  }

  write(chunk: Uint8Array | string): void {
    if (this.ended || this.closed || chunk.length === 0) return
    this.queue.push(chunk)
    this.session.wantsToSend(this)
  }

  end(): void {
    if (this.ended || this.closed) return
    this.ended = true
    this.session.wantsToSend(this)
  }

  reset(code: ResetCode): void {
    if (!this.closed) this.session.resetStream(this, code)
  }

  consumed(bytes: number): void {
    this.session.consumed(this, bytes)
  }

  keep(bytes: number): void {
    if (bytes !== this.keptBytes && !this.closed) this.session.keep(this, bytes)
  }

  discard(): void {
    this.session.consumed(this, this.unreadBytes)
  }
}
