/**
 * One HTTP/2 stream (RFC 9113 section 5), at either end. What its owner sends waits here until the connection can send it: nothing is
 * encoded or framed before that, and a reset drops all of it. What arrives before its owner can use it waits here, too.
 */
import { Gathered, GatheredChunks, SMALL_PIECE_BYTES } from '../../base/gathered.ts'
import { type Failing, stepOf } from '../../base/guard.ts'
import { KEPT_SHARE, ownBytes } from '../../base/own-bytes.ts'
import { textBytes } from '../headers.ts'
import { CODE, FRAME_HEADER_BYTES, LARGEST_WINDOW_BYTES, MAX_FRAME_BYTES } from './frames.ts'

/** Where a body is cut: with the header of its frame, a piece fits into one record of TLS. */
const PIECE_BYTES = MAX_FRAME_BYTES - FRAME_HEADER_BYTES

/** The exchange of a stream. It `threw` if one of these calls throws. */
export interface Http2StreamOwner extends Failing {
  /** A header block other than a request's head: an answer's head, an informational response, or trailers. `last`: with END_STREAM. */
  fields(block: string[], last: boolean): void
  /** A piece of the body, which belongs to the owner. */
  data(chunk: Uint8Array): void
  /** More waits here than before: see `heldBytes`. */
  kept(): void
  /** The peer has ended its half, and everything before that has been passed on or discarded. */
  ended(): void
  /**
   * The peer has reset the stream or broken a rule on it (`fault`), or the connection has ended. Nothing follows but what was complete:
   * see `remoteEnded`.
   */
  lost(code: number, fault?: string): void
  /** This many bytes of the body no longer wait here: the kernel has them, or the stream has ended. */
  sent(bytes: number): void
  /** Our half has ended: END_STREAM was sent. */
  finished(): void
  /** An answer's head, or trailers, are too large. */
  overlong(): void
}

/** What sends for the streams of a connection. */
export interface StreamSender {
  /** Bytes of heads that wait in streams. */
  fieldBytes: number
  /** The stream has something to send. */
  ready(stream: Http2Stream): void
  isReady(stream: Http2Stream): boolean
  fields(id: number, block: readonly string[], last: boolean): void
  data(stream: Http2Stream, piece: Uint8Array | undefined, last: boolean): void
  windowUpdate(id: number, bytes: number): void
  reset(id: number, code: number): void
}

/** The connection, as its streams see it. */
export interface StreamHost {
  readonly sender: StreamSender
  /** Both halves have ended, or the stream was reset. */
  closed(stream: Http2Stream): void
}

/** Stands for a stream in the socket's queue, and lets go of it when it ends. */
export interface Debtor {
  stream: Http2Stream | undefined
}

type Item = Uint8Array | Gathered | readonly string[]

export class Http2Stream implements Failing {
  static readonly #releaseDue = stepOf<Http2Stream>(stream => stream.#release())
  readonly id: number
  owner: Http2StreamOwner | undefined
  readonly debtor: Debtor = { stream: this }
  /** Bytes of the body that were given and have not left for the kernel. 0 once the stream has ended. */
  waiting = 0
  /** The part of them that waits here. */
  queued = 0
  /** When a piece last left for the connection, or when the first of those that wait here was given. */
  progressAt = 0
  /** When bytes of the peer's last arrived. */
  readAt: number
  /** The peer knows of it: it has opened the stream, or our head was sent. */
  isOpen: boolean
  /** Its peer has ended its half. */
  remoteEnded = false
  /** END_STREAM was sent. */
  localEnded = false
  /** Both halves have ended, or the stream was reset. */
  closed = false
  /** The peer has not begun it. */
  refused = false
  /** How much may be sent on it. Negative after the peer has reduced its windows. */
  window: number
  readonly #host: StreamHost
  readonly #sender: StreamSender
  readonly #windowBytes: number
  readonly #bufferBytes: number
  readonly #queue: Item[] = []
  /** Bytes of heads in it. */
  #fieldBytes = 0
  #ending = false
  /** How much the peer may still send, and how much of what it has sent has not been announced as free. */
  #receivable: number
  #owed = 0
  #unconsumed = 0
  /** What arrived before its owner could use it, at most a window, and the trailers behind it. */
  #kept: GatheredChunks | undefined
  #keptTrailers: string[] | undefined
  /** What becomes of a body that arrives. */
  #use: 'kept' | 'passed' | 'dropped' = 'kept'
  #endTold = false
  /** The owner learns of the end only once it has consumed everything before that. */
  #endsConsumed = false

  /** `window`: how much may be sent. `windowBytes`: how much the peer may send. `bufferBytes`: how much its owner may hold unconsumed. */
  constructor(id: number, isOpen: boolean, host: StreamHost, window: number, windowBytes: number, bufferBytes: number) {
    this.id = id
    this.isOpen = isOpen
    this.#host = host
    this.#sender = host.sender
    this.window = window
    this.#windowBytes = windowBytes
    this.#receivable = windowBytes
    this.#bufferBytes = bufferBytes
    this.readAt = performance.now()
  }

  // Sending

  /** A head. `last` also ends our half. */
  sendFields(block: readonly string[], last = false): void {
    if (this.#isMute) return
    this.#queueFields(block)
    if (last) this.#ending = true
    this.#sender.ready(this)
  }

  #queueFields(block: readonly string[]): void {
    this.#queue.push(block)
    this.#countFields(textBytes(block))
  }

  #countFields(bytes: number): void {
    this.#fieldBytes += bytes
    this.#sender.fieldBytes += bytes
  }

  sendData(given: Uint8Array): void {
    if (this.#isMute) {
      this.owner?.sent(given.length)
      return
    }
    this.waiting += given.length
    if (this.queued > 0 && given.length < SMALL_PIECE_BYTES) this.#gather(given)
    else {
      // Even the first may wait: the peer may have granted no window.
      if (this.queued === 0) this.progressAt = performance.now()
      this.#closeGathered()
      this.#queue.push(ownBytes(given))
    }
    this.queued += given.length
    this.#sender.ready(this)
  }

  #gather(piece: Uint8Array): void {
    const last = this.#queue.at(-1)
    if (last instanceof Gathered && last.add(piece)) return
    this.#closeGathered()
    this.#queue.push(new Gathered(piece, this.queued))
  }

  #closeGathered(): void {
    const last = this.#queue.at(-1)
    if (last instanceof Gathered) last.close()
  }

  /** Ends our half after everything that was given, with trailers unless they are empty. */
  end(trailers: readonly string[] = []): void {
    if (this.#isMute) return
    if (trailers.length > 0) this.#queueFields(trailers)
    this.#ending = true
    this.#sender.ready(this)
  }

  get #isMute(): boolean {
    return this.#ending || this.closed
  }

  /** Something waits here, and for the peer to grant a window. */
  get isStalled(): boolean {
    return this.queued > 0 && !this.#sender.isReady(this)
  }

  /** Everything was given, and something of it, or the end, waits here. */
  get endWaits(): boolean {
    return this.#ending && !this.localEnded && !this.closed
  }

  /** What it would send next: nothing, a frame that needs window, or one that does not. */
  get wants(): 'nothing' | 'window' | 'room' {
    const next = this.#queue[0]
    if (this.closed || (next === undefined && !this.endWaits)) return 'nothing'
    return next === undefined || Array.isArray(next) ? 'room' : 'window'
  }

  /** Sends the next frame, with at most `most` bytes of a body. */
  sendNext(most: number): void {
    const next = this.#queue[0]
    if (next === undefined) this.#sendData(undefined)
    else if (next instanceof Uint8Array || next instanceof Gathered) this.#sendPiece(next, most)
    else {
      this.#queue.shift()
      this.#sendFields(next)
    }
  }

  #sendFields(block: readonly string[]): void {
    const last = this.#ending && this.#queue.length === 0
    this.isOpen = true
    this.#countFields(-textBytes(block))
    this.#sender.fields(this.id, block, last)
    if (last) this.#finish()
  }

  #sendPiece(next: Uint8Array | Gathered, most: number): void {
    const bytes = next instanceof Gathered ? next.bytes : next
    const limit = Math.min(most, this.window, bytes.length > MAX_FRAME_BYTES ? PIECE_BYTES : MAX_FRAME_BYTES)
    if (bytes.length > limit) {
      this.#queue[0] = ownBytes(bytes.subarray(limit), KEPT_SHARE)
      this.#sendData(bytes.subarray(0, limit))
    } else {
      this.#queue.shift()
      this.#sendData(bytes)
    }
  }

  #sendData(piece: Uint8Array | undefined): void {
    const bytes = piece?.length ?? 0
    const last = this.#ending && this.#queue.length === 0
    this.window -= bytes
    this.queued -= bytes
    this.progressAt = performance.now()
    this.#sender.data(this, piece, last)
    if (last) this.#finish()
  }

  #finish(): void {
    this.localEnded = true
    this.#closeIfEnded()
    try {
      this.owner?.finished()
    } catch (error) {
      this.owner?.threw(error)
    }
  }

  /** This many bytes of the body no longer wait. */
  wrote(bytes: number): void {
    this.waiting -= bytes
    try {
      this.owner?.sent(bytes)
    } catch (error) {
      this.owner?.threw(error)
    }
  }

  /** Another window, or the change of the peer's initial one. Returns false if the sum is too large (section 6.9.1). */
  widen(bytes: number): boolean {
    this.window += bytes
    if (this.window > 0) this.#sender.ready(this)
    return this.window <= LARGEST_WINDOW_BYTES
  }

  /** Ends the stream at once, in both directions. The peer is told, unless it does not know of the stream, or knows that it has ended. */
  reset(code: number): void {
    this.#drop()
    if (this.closed) return
    if (this.isOpen) this.#sender.reset(this.id, code)
    this.#close()
    this.#creditRest()
  }

  /** The peer has reset the stream or broken a rule on it, or the connection has ended. What was complete is still passed on. */
  lose(code: number, fault?: string): void {
    if (this.closed) return
    if (!this.remoteEnded) this.#drop()
    this.refused = code === CODE.refusedStream
    this.#close()
    this.#creditRest()
    try {
      this.owner?.lost(code, fault)
    } catch (error) {
      this.owner?.threw(error)
    }
  }

  /** Drops what waits to be sent. */
  #close(): void {
    this.closed = true
    this.#ending = true
    this.#queue.length = 0
    this.#countFields(-this.#fieldBytes)
    this.#host.closed(this)
  }

  #closeIfEnded(): void {
    if (!this.localEnded || !this.remoteEnded) return
    this.#close()
    this.#creditRest()
  }

  /** Nothing waits for a stream that has ended. */
  #creditRest(): void {
    const { waiting } = this
    this.queued = 0
    if (waiting > 0) this.wrote(waiting)
  }

  // Receiving

  /** Whether the peer may send this much more, and `slack` beyond that. */
  receives(bytes: number, slack: number): boolean {
    this.#receivable -= bytes
    return this.#receivable + slack >= 0
  }

  /** A part of the body, which may change after the call if it is `lent`. */
  arrived(part: Uint8Array, lent: boolean): void {
    this.readAt = performance.now()
    if (this.#use === 'dropped') this.credit(part.length)
    else if (this.#use === 'passed' && !this.full && this.#kept === undefined)
      this.#pass(lent ? Buffer.from(part) : part)
    else {
      this.#kept ??= new GatheredChunks(KEPT_SHARE)
      this.#kept.add(lent && part.length >= SMALL_PIECE_BYTES ? Buffer.from(part) : part)
      this.#tellKept()
    }
  }

  #tellKept(): void {
    try {
      this.owner?.kept()
    } catch (error) {
      this.owner?.threw(error)
    }
  }

  /** Trailers, or the head of an answer. */
  arrivedFields(block: string[], last: boolean): void {
    if (last && (this.#kept !== undefined || this.owner === undefined)) {
      this.#keptTrailers = block
      this.#tellKept()
    } else if (this.#use !== 'dropped') this.#passFields(block, last)
    if (last) this.arrivedEnd()
  }

  /** Trailers or the head of an answer that are too large. They still end the peer's half, so that no more can follow. */
  arrivedOverlong(last: boolean): void {
    if (this.owner === undefined) this.reset(CODE.enhanceYourCalm)
    else if (this.#use !== 'dropped') this.#tellOverlong(this.owner)
    if (last) this.arrivedEnd()
  }

  #tellOverlong(owner: Http2StreamOwner): void {
    try {
      owner.overlong()
    } catch (error) {
      owner.threw(error)
    }
  }

  arrivedEnd(): void {
    if (this.closed) return
    this.remoteEnded = true
    this.#closeIfEnded()
    if (this.#use === 'dropped') this.#tellEnd()
    else this.#release()
  }

  /** The owner wants the body from now on, and its end at once, or once it has consumed everything before that. */
  start(endsConsumed = false): void {
    this.#endsConsumed = endsConsumed
    if (this.#use === 'kept') this.#use = 'passed'
    this.readAt = performance.now()
    this.#release()
  }

  /** The owner wants no more of the body. */
  discard(): void {
    if (this.#use === 'dropped') return
    const kept = this.#kept?.bytes ?? 0
    this.#drop()
    this.credit(kept)
  }

  #drop(): void {
    this.#use = 'dropped'
    this.#kept = undefined
    this.#keptTrailers = undefined
  }

  /** Bytes of the peer's body that wait, here or with the owner, and of trailers that wait here. */
  get heldBytes(): number {
    const trailers = this.#keptTrailers === undefined ? 0 : textBytes(this.#keptTrailers)
    return this.#unconsumed + (this.#kept?.bytes ?? 0) + trailers
  }

  /** The owner holds everything back, so silence is not the peer's fault. */
  get full(): boolean {
    return this.#unconsumed > this.#bufferBytes
  }

  consumed(bytes: number): void {
    const wasFull = this.full
    this.#unconsumed -= bytes
    const hasRoom = wasFull && !this.full
    if (hasRoom) this.readAt = performance.now()
    const mayEnd = this.#endsConsumed && this.remoteEnded && this.#unconsumed <= 0
    // Not within this call: an owner may give credit before it uses what the credit is for.
    if (mayEnd || (hasRoom && this.#kept !== undefined)) process.nextTick(Http2Stream.#releaseDue, this)
  }

  threw(error: unknown): void {
    this.owner?.threw(error)
  }

  #release(): void {
    if (this.#use !== 'passed') return
    while (this.#kept !== undefined && !this.full) {
      const chunk = this.#kept.shift()
      if (chunk === undefined) this.#kept = undefined
      else this.#pass(chunk)
    }
    if (!this.remoteEnded || this.#endTold || this.#kept !== undefined) return
    if (this.#endsConsumed && this.#unconsumed > 0) return
    this.#endTold = true
    const trailers = this.#keptTrailers
    this.#keptTrailers = undefined
    if (trailers !== undefined) this.#passFields(trailers, true)
    if (this.#use === 'passed') this.#tellEnd()
  }

  #tellEnd(): void {
    try {
      this.owner?.ended()
    } catch (error) {
      this.owner?.threw(error)
    }
  }

  #passFields(block: string[], last: boolean): void {
    try {
      this.owner?.fields(block, last)
    } catch (error) {
      this.owner?.threw(error)
    }
  }

  #pass(chunk: Uint8Array): void {
    this.#unconsumed += chunk.length
    this.credit(chunk.length)
    try {
      this.owner?.data(chunk)
    } catch (error) {
      this.owner?.threw(error)
    }
  }

  /** The peer may send this much more, even if nobody wants it: some read an answer only behind their body. It is told once that is worth a frame. */
  credit(bytes: number): void {
    if (this.remoteEnded || this.closed) return
    this.#owed += bytes
    if (this.#owed * 2 < this.#windowBytes) return
    this.#receivable += this.#owed
    this.#sender.windowUpdate(this.id, this.#owed)
    this.#owed = 0
  }
}
