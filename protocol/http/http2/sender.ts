/**
 * What one end of a connection sends. Bodies wait in their streams: at most {@link MOST_UNSENT_BYTES} and a frame are given to the socket
 * at a time, in turns. Everything is text until the socket writes it, since V8 joins text without copying.
 */
import type { Duplex } from 'node:stream'
import { stepOf } from '../../base/guard.ts'
import { type BodyOwner, SocketWriter, type WriterOwner } from '../http1/socket-writer.ts'
import {
  DEFAULT_WINDOW_BYTES,
  FLAG,
  FRAME,
  frameHeader,
  LARGEST_WINDOW_BYTES,
  MAX_FRAME_BYTES,
  uint32,
} from './frames.ts'
import { HpackEncoder } from './hpack/encoder.ts'
import type { Debtor, Http2Stream } from './stream.ts'

/** While the socket has this much to send, streams keep what they have. */
const MOST_UNSENT_BYTES = 128 * 1024
/** While this much waits for a peer, nothing should be read from it, so that answers to its frames are bounded, too. */
const MOST_UNREAD_BYTES = 2 * MOST_UNSENT_BYTES

export interface Http2SenderOwner extends WriterOwner {
  /** More or fewer bytes wait for the socket than before. */
  unsentChanged(): void
}

export class Http2Sender implements WriterOwner, BodyOwner {
  static readonly #sendDue = stepOf<Http2Sender>(sender => sender.#sendAll())
  /** How many pieces of bodies were sent. */
  pieces = 0
  /** Bytes of bodies of open streams that wait for the socket, and of heads that wait in streams. */
  bodyBytes = 0
  fieldBytes = 0
  readonly #owner: Http2SenderOwner
  readonly #writer: SocketWriter
  readonly #encoder = new HpackEncoder()
  /** Streams that have something to send, and those that wait for the connection's window. */
  readonly #ready = new Set<Http2Stream>()
  readonly #starved = new Set<Http2Stream>()
  #window = DEFAULT_WINDOW_BYTES
  #scheduled = false
  #ended = false
  /** For each piece of a body that waits for the socket: whose it is, and its size. */
  readonly #debtors: Debtor[] = []
  readonly #debts: number[] = []

  constructor(socket: Duplex, owner: Http2SenderOwner) {
    this.#owner = owner
    this.#writer = new SocketWriter(socket, this)
  }

  /** Bytes that wait for the socket. */
  get unsentBytes(): number {
    return this.#writer.held
  }

  /** The peer's window for the connection has no room for another frame. Some peers grant more only once what they have is used. */
  get isStarved(): boolean {
    return this.#window < MAX_FRAME_BYTES
  }

  get isClogged(): boolean {
    return this.#writer.held > MOST_UNREAD_BYTES
  }

  // Streams

  /** The stream has something to send, or more window. */
  ready(stream: Http2Stream): void {
    const { wants } = stream
    if (wants === 'nothing' || (wants === 'window' && stream.window <= 0) || this.#starved.has(stream)) return
    this.#ready.add(stream)
    this.#sendSoon()
  }

  /** Whether the stream would send something if the socket took it. */
  isReady(stream: Http2Stream): boolean {
    return this.#ready.has(stream)
  }

  /** A stream has ended. What waits for the socket is the connection's from now on, since it would keep all of the exchange. */
  forget(stream: Http2Stream): void {
    this.#ready.delete(stream)
    this.#starved.delete(stream)
    stream.debtor.stream = undefined
    const inSocket = stream.waiting - stream.queued
    this.bodyBytes -= inSocket
    if (inSocket > 0) this.#sendSoon()
  }

  /** At the end of the turn, so that an answer's head, body and end go out together. Then what waits is counted. */
  #sendSoon(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    process.nextTick(Http2Sender.#sendDue, this)
  }

  /** Each stream sends a frame. One that has more goes to the end, and is met again. */
  #sendAll(): void {
    this.#scheduled = false
    for (const stream of this.#ready) {
      if (this.#writer.held >= MOST_UNSENT_BYTES) break
      this.#ready.delete(stream)
      if (stream.wants === 'window' && this.#window <= 0) this.#starved.add(stream)
      else if (stream.wants !== 'window' || stream.window > 0) {
        stream.sendNext(this.#window)
        this.ready(stream)
      }
    }
    this.#owner.unsentChanged()
  }

  /** The peer's window for the connection. Returns false if it is too large (section 6.9.1). */
  widen(bytes: number): boolean {
    this.#window += bytes
    for (const stream of this.#starved) {
      this.#starved.delete(stream)
      this.ready(stream)
    }
    return this.#window <= LARGEST_WINDOW_BYTES
  }

  /** The peer's SETTINGS_HEADER_TABLE_SIZE. */
  setTableBytes(bytes: number): void {
    this.#encoder.setTableBytes(bytes)
  }

  // Frames

  frame(type: number, flags: number, id: number, payload: string): void {
    if (!this.#ended) this.#writer.text(frameHeader(payload.length, type, flags, id) + payload)
  }

  /** What comes before the first frame. */
  preface(text: string): void {
    this.#writer.text(text)
  }

  windowUpdate(id: number, bytes: number): void {
    this.frame(FRAME.windowUpdate, 0, id, uint32(bytes))
  }

  reset(id: number, code: number): void {
    this.frame(FRAME.rstStream, 0, id, uint32(code))
  }

  fields(id: number, block: readonly string[], last: boolean): void {
    const encoded = this.#encoder.encode(block)
    let type: number = FRAME.headers
    let flags: number = last ? FLAG.endStream : 0
    for (let at = 0; at < encoded.length; at += MAX_FRAME_BYTES) {
      const isLast = encoded.length - at <= MAX_FRAME_BYTES
      this.frame(type, isLast ? flags | FLAG.endHeaders : flags, id, encoded.slice(at, at + MAX_FRAME_BYTES))
      type = FRAME.continuation
      flags = 0
    }
  }

  /** DATA. Without a piece, only the end. */
  data(stream: Http2Stream, piece: Uint8Array | undefined, last: boolean): void {
    const bytes = piece?.length ?? 0
    this.#writer.text(frameHeader(bytes, FRAME.data, last ? FLAG.endStream : 0, stream.id))
    if (piece === undefined) return
    this.#window -= bytes
    this.pieces++
    this.bodyBytes += bytes
    this.#debtors.push(stream.debtor)
    this.#debts.push(bytes)
    this.#writer.body(piece, this)
  }

  /** Closes our half of the connection after what was written. Streams are over. */
  end(): void {
    this.#ended = true
    this.#writer.end()
  }

  // Events of the socket

  sent(bytes: number): void {
    // What is lost with the socket may be reported before earlier writes, so a debt may be paid in parts.
    for (let left = bytes; left > 0; ) {
      const { stream } = this.#debtors[0]!
      const paid = Math.min(this.#debts[0]!, left)
      left -= paid
      this.#debts[0]! -= paid
      if (this.#debts[0] === 0) {
        this.#debts.shift()
        this.#debtors.shift()
      }
      if (stream !== undefined) {
        this.bodyBytes -= paid
        stream.wrote(paid)
      }
    }
    this.#owner.unsentChanged()
  }

  writeWaits(): void {
    this.#owner.writeWaits()
  }

  wrote(): void {
    if (this.#ready.size > 0) this.#sendSoon()
    this.#owner.wrote()
    // If bodies were written, `sent` follows.
    if (this.bodyBytes === 0) this.#owner.unsentChanged()
  }

  threw(error: unknown): void {
    this.#owner.threw(error)
  }
}
