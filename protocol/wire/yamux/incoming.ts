import type { FrameSink } from './decoder.ts'
import { ALL_FLAGS, Flag, FrameType } from './frame.ts'
import { MAX_WINDOW_BYTES } from './limits.ts'
import type { YamuxStream } from './yamux-stream.ts'

/** The session, as incoming frames act on it. */
export interface IncomingOwner {
  find(id: number): YamuxStream | undefined
  /** Whether `id` has belonged to a stream of either end. */
  wasUsed(id: number): boolean
  /** The peer opens `id`. Undefined if that was refused, or if the session failed because of it. */
  opened(id: number): YamuxStream | undefined
  acknowledged(stream: YamuxStream): void
  credited(stream: YamuxStream, bytes: number): void
  received(stream: YamuxStream, chunk: Uint8Array): void
  finReceived(stream: YamuxStream): void
  resetReceived(stream: YamuxStream): void
  pinged(value: number): void
  ponged(value: number): void
  goneAway(code: number): void
  /** The peer broke the protocol. */
  violated(reason: string): void
}

/** Flags that show that the peer has a stream of ours. */
const TAKES = Flag.ack | Flag.fin
/** The largest sum of credit that a peer can have meant. */
const MAX_CREDIT_BYTES = 0xffff_ffff

/** Checks each frame against the state of its stream and the session, before anything acts on it. */
export class Incoming implements FrameSink {
  readonly #owner: IncomingOwner
  #stream: YamuxStream | undefined
  #fin = false

  constructor(owner: IncomingOwner) {
    this.#owner = owner
  }

  frame(type: FrameType, flags: number, id: number, length: number): void {
    const ofStream = type === FrameType.data || type === FrameType.windowUpdate
    if ((flags & ~ALL_FLAGS) !== 0) this.#owner.violated('unknown flags')
    else if (ofStream !== (id !== 0)) this.#owner.violated('a frame type that does not match its stream id')
    else if (ofStream) this.#streamFrame(type, flags, id, length)
    else if (type === FrameType.ping) this.#ping(flags, length)
    else if (flags !== 0) this.#owner.violated('go-away with flags')
    else this.#owner.goneAway(length)
  }

  payload(chunk: Uint8Array): void {
    const stream = this.#stream
    if (stream !== undefined && !stream.closed) this.#owner.received(stream, chunk)
  }

  payloadEnd(): void {
    const stream = this.#stream
    this.#stream = undefined
    if (this.#fin && stream !== undefined && !stream.closed) this.#owner.finReceived(stream)
  }

  broken(reason: string): void {
    this.#owner.violated(reason)
  }

  #ping(flags: number, value: number): void {
    if (flags === Flag.syn) this.#owner.pinged(value)
    else if (flags === Flag.ack) this.#owner.ponged(value)
    else this.#owner.violated('ping with wrong flags')
  }

  #streamFrame(type: FrameType, flags: number, id: number, length: number): void {
    this.#stream = undefined
    this.#fin = false
    const stream = flags & Flag.syn ? this.#owner.opened(id) : this.#owner.find(id)
    if (stream === undefined) this.#withoutStream(type, id, length)
    else if (flags & Flag.rst) this.#owner.resetReceived(stream)
    else {
      // Credit alone proves nothing: a peer must not keep a stream waiting by giving credit without ever accepting it.
      if (!stream.acknowledged && (type === FrameType.data || (flags & TAKES) !== 0)) this.#owner.acknowledged(stream)
      if (type === FrameType.data) this.#dataFrame(stream, flags, length)
      else this.#windowUpdate(stream, flags, length)
    }
  }

  /** The stream is over or was refused. What was on its way is read and dropped. */
  #withoutStream(type: FrameType, id: number, length: number): void {
    if (length > 0 && !this.#owner.wasUsed(id)) this.#owner.violated('a stream that nobody opened')
    else if (type === FrameType.data && length > MAX_WINDOW_BYTES) this.#owner.violated('window exceeded')
  }

  #dataFrame(stream: YamuxStream, flags: number, length: number): void {
    if (length > stream.receive.openBytes) this.#owner.violated('window exceeded')
    else if (length > 0 && stream.finReceived) this.#owner.violated('data after FIN')
    else {
      stream.receive.openBytes -= length
      this.#stream = stream
      this.#fin = (flags & Flag.fin) !== 0
    }
  }

  #windowUpdate(stream: YamuxStream, flags: number, length: number): void {
    if (stream.sendWindowBytes + length > MAX_CREDIT_BYTES) {
      this.#owner.violated('window overflow')
      return
    }
    if (length > 0) this.#owner.credited(stream, length)
    if (flags & Flag.fin && !stream.closed) this.#owner.finReceived(stream)
  }
}
