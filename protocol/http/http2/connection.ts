/**
 * One HTTP/2 connection (RFC 9113), at either end: which frames may come, which streams there are, and what each side may send. A peer
 * that does not take what we send is not read from, either.
 */
import type { Buffer } from 'node:buffer'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { latin1 } from '../../base/latin1.ts'
import { SocketReader } from '../http1/socket-reader.ts'
import type { HttpLimits } from '../limits.ts'
import { FrameReader, type FrameReceiver } from './frame-reader.ts'
import {
  CODE,
  ConnectionError,
  DEFAULT_WINDOW_BYTES,
  FLAG,
  FRAME,
  FRAME_HEADER_BYTES,
  LARGEST_WINDOW_BYTES,
  LAST_STREAM_ID,
  PREFACE,
  uint32,
  uint32At,
  unexpected,
} from './frames.ts'
import { type HeaderBlock, HeaderBlocks } from './header-blocks.ts'
import { Http2Sender, type Http2SenderOwner } from './sender.ts'
import { type OwnSettings, PeerSettings, settingsPayload } from './settings.ts'
import { Http2Stream, type StreamHost } from './stream.ts'

/** How many streams that have ended are remembered, since the peer may not have heard of it. */
const REMEMBERED_STREAMS = 256
const MOST_SETTINGS = 32
/** SETTINGS_MAX_HEADER_LIST_SIZE counts 32 bytes more for each field than we do. */
const LIST_FACTOR = 2
/** For connections of no listener. */
const ownReader = new SocketReader()

/** The session on top of a connection. An error that it throws ends the connection. */
export interface ConnectionOwner extends Http2SenderOwner {
  /** The peer has opened a stream. Not called at a client. */
  opened(stream: Http2Stream, head: HeaderBlock): void
  /** A stream has ended. `isReset`: before both halves had. */
  closed(stream: Http2Stream, isReset: boolean): void
  /** What was read has been handled, or the part of it that is handled in this turn. */
  settled(): void
  /** The peer's settings have changed. */
  configured(): void
  /** A frame that we answer: a ping, settings, or a request that is refused here. */
  asked(isPing: boolean): void
  /** The last ping was answered: everything that we had sent before it was read. */
  ponged(): void
  /** The peer accepts no more streams, and has not begun those above `last`. */
  goesAway(last: number, code: number): void
  /** The peer broke a rule, and GOAWAY was written. */
  failed(error: ConnectionError): void
}

export class Http2Connection implements FrameReceiver, StreamHost, Http2SenderOwner {
  readonly streams = new Map<number, Http2Stream>()
  readonly peer: PeerSettings
  readonly sender: Http2Sender
  /** Bytes of frames that carry neither a head nor a body. */
  controlBytes = 0
  /** Nothing more is read or sent. */
  over = false
  readonly #owner: ConnectionOwner
  readonly #isServer: boolean
  readonly #limits: HttpLimits
  readonly #socket: Duplex
  readonly #frames: FrameReader
  readonly #blocks: HeaderBlocks
  #paused = false
  /** Its owner is not ready for more. */
  #heldBack = false
  /** How much the peer may still send, and how much of what it has sent was not granted again. */
  #receivable = DEFAULT_WINDOW_BYTES
  #owed = 0
  /** The last stream that the peer opened, and the next one of ours. */
  #lastTheirs = 0
  #nextOurs: number
  /** Streams above this that the peer opens are ignored: we have said so. */
  #lastBegun = LAST_STREAM_ID
  /** Streams that have ended: whether by a reset of ours. */
  readonly #ended = new Map<number, boolean>()
  #heardSettings = false
  /** What the peer has to send back. */
  #pinged: string | undefined
  /** The stream of the DATA frame in progress, unless its bytes are dropped. */
  #receiving: Http2Stream | undefined
  /** Its size, and how much of it is not part of a body, so far. */
  #framed = 0
  #unused = 0

  /** `headFields`: the most fields of a head before they are sorted. */
  constructor(socket: Duplex, owner: ConnectionOwner, isServer: boolean, limits: HttpLimits, headFields: number) {
    this.#socket = socket
    this.#owner = owner
    this.#isServer = isServer
    this.#limits = limits
    this.#nextOurs = isServer ? 2 : 1
    this.peer = new PeerSettings(!isServer)
    this.#frames = new FrameReader(this, isServer)
    this.#blocks = new HeaderBlocks(limits.headBytes, headFields)
    this.sender = new Http2Sender(socket, this)
    if ('setNoDelay' in socket) (socket as Socket).setNoDelay()
    if (!isServer) this.sender.preface(PREFACE)
    this.sender.frame(FRAME.settings, 0, 0, settingsPayload(settingsOf(isServer, limits)))
    this.#credit(limits.http2SessionWindowBytes - DEFAULT_WINDOW_BYTES)
  }

  /** Reads from now on. `first`: what was read from the socket before. */
  start(reader: SocketReader = ownReader, first?: Buffer): void {
    reader.read(this.#socket, this.#onRead, this)
    if (first !== undefined) this.#onRead(first, false)
  }

  // Reading

  /** Bytes of a head, or of another frame, of which only a part has arrived. */
  get partialBytes(): number {
    return this.#frames.heldBytes + this.#blocks.heldBytes
  }

  readonly #onRead = (bytes: Buffer, lent: boolean): boolean => {
    if (this.over) return false
    try {
      this.#frames.read(bytes, lent)
    } catch (error) {
      if (error instanceof ConnectionError) this.#fail(error)
      else throw error
    }
    this.#regulate()
    this.#owner.settled()
    return this.#frames.isInBody
  }

  #fail(error: ConnectionError): void {
    this.goaway(error.code)
    this.#owner.failed(error)
  }

  /** Whether nothing more is read for now. */
  holdBack(heldBack: boolean): void {
    this.#heldBack = heldBack
    this.#regulate()
  }

  #regulate(): void {
    const pause = (this.sender.isClogged || this.#heldBack) && !this.over
    if (pause === this.#paused) return
    this.#paused = pause
    if (pause) this.#socket.pause()
    else this.#socket.resume()
  }

  frame(type: number, flags: number, id: number, payload: Uint8Array): void {
    if (this.#blocks.isOpen && type !== FRAME.continuation) throw unexpected('a frame in a header block')
    if (!this.#heardSettings && (type !== FRAME.settings || (flags & FLAG.ack) !== 0))
      throw unexpected('before SETTINGS')
    switch (type) {
      case FRAME.headers:
        this.#checkHeaders(id)
        this.#onBlock(this.#blocks.begin(flags, id, payload))
        break
      case FRAME.continuation:
        this.controlBytes += FRAME_HEADER_BYTES
        this.#onBlock(this.#blocks.continue(flags, id, payload))
        break
      case FRAME.windowUpdate:
        this.#onWindowUpdate(id, payload)
        break
      case FRAME.rstStream:
        this.#onReset(id, payload)
        break
      case FRAME.settings:
        this.#onSettings(flags, id, payload)
        break
      case FRAME.ping:
        this.#onPing(flags, id, payload)
        break
      case FRAME.goaway:
        this.#onGoaway(id, payload)
        break
      case FRAME.priority:
        this.#onPriority(id, payload)
        break
      case FRAME.pushPromise:
        throw unexpected('PUSH_PROMISE')
      default:
        this.#control(payload)
    }
  }

  #control(payload: Uint8Array): void {
    this.controlBytes += FRAME_HEADER_BYTES + payload.length
  }

  // Bodies

  dataBegins(id: number, bytes: number): void {
    if (this.#blocks.isOpen || !this.#heardSettings) throw unexpected('DATA')
    this.#receivable -= bytes
    if (this.#receivable < 0) throw new ConnectionError(CODE.flowControl, 'the window of the connection is exceeded')
    // Streams have windows of their own, so the connection's is only there to be kept wide.
    this.#credit(bytes)
    this.#framed = bytes
    this.#unused = bytes
    const stream = this.streams.get(id)
    this.#receiving = undefined
    if (stream === undefined) this.#onDataOfClosed(id)
    else if (stream.remoteEnded) this.#streamError(stream, CODE.streamClosed, 'DATA behind the end')
    else if (!stream.receives(bytes, Math.max(0, DEFAULT_WINDOW_BYTES - this.#limits.http2WindowBytes))) {
      this.#streamError(stream, CODE.flowControl, 'the window of the stream is exceeded')
    } else this.#receiving = stream
  }

  dataPart(part: Uint8Array, lent: boolean): void {
    this.#unused -= part.length
    const stream = this.#receiving
    if (stream !== undefined && !stream.closed) stream.arrived(part, lent)
  }

  dataEnds(flags: number): void {
    const stream = this.#receiving
    this.#receiving = undefined
    const last = (flags & FLAG.endStream) !== 0
    const isReceived = stream !== undefined && !stream.closed
    // Only the end of a stream is more than nothing.
    if (this.#unused === this.#framed && !(last && isReceived)) this.controlBytes += FRAME_HEADER_BYTES + this.#framed
    if (!isReceived) return
    if (this.#unused > 0) stream.credit(this.#unused)
    if (last) stream.arrivedEnd()
  }

  #onDataOfClosed(id: number): void {
    if (this.#isIdle(id)) throw unexpected('DATA on an idle stream')
    if (this.#ended.get(id) === false) this.#refuse(id, CODE.streamClosed)
  }

  #isIdle(id: number): boolean {
    if (id === 0) return true
    const isTheirs = (id & 1) === (this.#isServer ? 1 : 0)
    return isTheirs ? id > this.#lastTheirs : id >= this.#nextOurs
  }

  #streamError(stream: Http2Stream, code: number, fault: string): void {
    this.sender.reset(stream.id, code)
    stream.lose(code, fault)
  }

  /** Answers a frame on a stream that has ended. */
  #refuse(id: number, code: number): void {
    this.#owner.asked(false)
    this.sender.reset(id, code)
    this.#remember(id, true)
  }

  // Heads

  /** Errors of the connection (sections 5.1 and 5.1.1). */
  #checkHeaders(id: number): void {
    const isServer = this.#isServer
    if (id === 0 || ((id & 1) === 0 && isServer)) throw unexpected(`HEADERS on stream ${id}`)
    if (this.streams.has(id)) return
    if (!isServer && this.#isIdle(id)) throw unexpected(`HEADERS on stream ${id}`)
    if (this.#isIdle(id)) return
    const isOurs = this.#ended.get(id)
    if (isOurs === false) throw new ConnectionError(CODE.streamClosed, 'HEADERS on a closed stream')
    if (isOurs === undefined && isServer && id <= this.#lastBegun)
      throw unexpected('a stream id that is lower than the last')
  }

  #onBlock(block: HeaderBlock | undefined): void {
    if (block === undefined) return
    const { id, fields, last, isLoop, tooLarge } = block
    const stream = this.streams.get(id)
    if (stream === undefined) {
      const isNew = this.#isIdle(id)
      if (isNew) this.#lastTheirs = id
      if (isNew && id <= this.#lastBegun) this.#open(block)
      else this.controlBytes += FRAME_HEADER_BYTES + block.bytes
    } else if (stream.remoteEnded) this.#streamError(stream, CODE.streamClosed, 'HEADERS behind the end')
    // What follows a request's head is trailers, which end it.
    else if (isLoop || (this.#isServer && !last)) this.#streamError(stream, CODE.protocol, 'a second head')
    else if (tooLarge) stream.arrivedOverlong(last)
    else stream.arrivedFields(fields, last)
  }

  #open(block: HeaderBlock): void {
    const { id } = block
    if (this.streams.size >= this.#limits.http2Streams) this.#refuse(id, CODE.refusedStream)
    else if (block.isLoop) this.#refuse(id, CODE.protocol)
    else {
      const stream = this.#newStream(id, true)
      this.streams.set(id, stream)
      this.#owner.opened(stream, block)
      if (block.last) stream.arrivedEnd()
    }
  }

  #newStream(id: number, isOpen: boolean): Http2Stream {
    const { http2WindowBytes, bufferBytes } = this.#limits
    return new Http2Stream(id, isOpen, this, this.peer.windowBytes, http2WindowBytes, bufferBytes)
  }

  // Control frames

  #onWindowUpdate(id: number, payload: Uint8Array): void {
    if (payload.length !== 4) throw new ConnectionError(CODE.frameSize, 'WINDOW_UPDATE')
    this.#control(payload)
    const bytes = uint32At(payload, 0) & LARGEST_WINDOW_BYTES
    if (id === 0) {
      if (bytes === 0) throw unexpected('WINDOW_UPDATE of 0')
      if (!this.sender.widen(bytes)) throw new ConnectionError(CODE.flowControl, 'window too large')
      return
    }
    const stream = this.streams.get(id)
    if (stream === undefined) {
      if (this.#isIdle(id)) throw unexpected('WINDOW_UPDATE on an idle stream')
    } else if (bytes === 0) this.#streamError(stream, CODE.protocol, 'WINDOW_UPDATE of 0')
    else if (!stream.widen(bytes)) this.#streamError(stream, CODE.flowControl, 'window too large')
  }

  #onReset(id: number, payload: Uint8Array): void {
    if (payload.length !== 4) throw new ConnectionError(CODE.frameSize, 'RST_STREAM')
    if (this.#isIdle(id)) throw unexpected('RST_STREAM on an idle stream')
    const stream = this.streams.get(id)
    if (stream === undefined) this.#control(payload)
    else {
      stream.lose(uint32At(payload, 0))
      this.#remember(id, false)
    }
  }

  #onSettings(flags: number, id: number, payload: Uint8Array): void {
    if (id !== 0) throw unexpected('SETTINGS on a stream')
    const isAnswer = (flags & FLAG.ack) !== 0
    if (payload.length % 6 !== 0 || (isAnswer && payload.length > 0))
      throw new ConnectionError(CODE.frameSize, 'SETTINGS')
    this.#control(payload)
    if (isAnswer) return
    if (payload.length > MOST_SETTINGS * 6) throw new ConnectionError(CODE.enhanceYourCalm, 'too many settings')
    if (this.#heardSettings) this.#owner.asked(false)
    this.#heardSettings = true
    const before = this.peer.windowBytes
    this.peer.apply(payload, this.#setTableBytes)
    const change = this.peer.windowBytes - before
    for (const stream of this.streams.values()) {
      if (change !== 0 && !stream.widen(change)) throw new ConnectionError(CODE.flowControl, 'window too large')
    }
    this.sender.frame(FRAME.settings, FLAG.ack, 0, '')
    this.#owner.configured()
  }

  readonly #setTableBytes = (bytes: number): void => {
    this.sender.setTableBytes(bytes)
  }

  #onPing(flags: number, id: number, payload: Uint8Array): void {
    if (id !== 0) throw unexpected('PING on a stream')
    if (payload.length !== 8) throw new ConnectionError(CODE.frameSize, 'PING')
    this.#control(payload)
    const text = latin1(payload)
    if ((flags & FLAG.ack) === 0) {
      this.#owner.asked(true)
      this.sender.frame(FRAME.ping, FLAG.ack, 0, text)
    } else if (text === this.#pinged) {
      this.#pinged = undefined
      this.#owner.ponged()
    }
  }

  #onGoaway(id: number, payload: Uint8Array): void {
    if (id !== 0) throw unexpected('GOAWAY on a stream')
    if (payload.length < 8) throw new ConnectionError(CODE.frameSize, 'GOAWAY')
    this.#control(payload)
    this.#owner.goesAway(uint32At(payload, 0) & LAST_STREAM_ID, uint32At(payload, 4))
  }

  /** Priorities are obsolete (section 5.3.2). */
  #onPriority(id: number, payload: Uint8Array): void {
    if (id === 0) throw unexpected('PRIORITY on stream 0')
    if (payload.length !== 5) throw new ConnectionError(CODE.frameSize, 'PRIORITY')
    this.#control(payload)
    if ((uint32At(payload, 0) & LAST_STREAM_ID) === id) throw unexpected('a stream that depends on itself')
  }

  // Streams

  /** Opens a stream. `last`: the head is all of it. */
  request(block: readonly string[], last: boolean): Http2Stream {
    const stream = this.#newStream(this.#nextOurs, false)
    this.#nextOurs += 2
    this.streams.set(stream.id, stream)
    stream.sendFields(block, last)
    return stream
  }

  /** Whether the connection has no more ids for streams of ours. */
  get isUsedUp(): boolean {
    return this.#nextOurs > LAST_STREAM_ID
  }

  closed(stream: Http2Stream): void {
    const isReset = !stream.localEnded || !stream.remoteEnded
    this.streams.delete(stream.id)
    this.sender.forget(stream)
    this.#remember(stream.id, isReset && !stream.remoteEnded)
    this.#owner.closed(stream, isReset)
  }

  #remember(id: number, isOurs: boolean): void {
    this.#ended.set(id, isOurs)
    if (this.#ended.size <= REMEMBERED_STREAMS) return
    for (const oldest of this.#ended.keys()) {
      this.#ended.delete(oldest)
      break
    }
  }

  // Sending

  #credit(bytes: number): void {
    this.#owed += bytes
    if (this.#owed * 2 < this.#limits.http2SessionWindowBytes) return
    this.#receivable += this.#owed
    this.sender.windowUpdate(0, this.#owed)
    this.#owed = 0
  }

  /** Asks the peer for a sign of life. */
  ping(): void {
    this.#ping('sallypt.')
  }

  #ping(text: string): void {
    this.#pinged = text
    this.sender.frame(FRAME.ping, 0, 0, text)
  }

  /** The peer should open no more streams. Those that are on their way are still served (section 6.8). */
  askToLeave(): void {
    this.sender.frame(FRAME.goaway, 0, 0, uint32(LAST_STREAM_ID) + uint32(CODE.noError))
    this.#ping('sallybye')
  }

  /** Streams of the peer that are not open yet will be ignored, and it may send their requests again. */
  goaway(code: number): void {
    this.#lastBegun = Math.min(this.#lastBegun, this.#lastTheirs)
    this.sender.frame(FRAME.goaway, 0, 0, uint32(this.#lastBegun) + uint32(code))
  }

  /** Nothing is open, and nothing will be. The answer says that all before it was read. Many answer no ping behind GOAWAY. */
  leave(): void {
    this.#ping('sallybye')
    this.goaway(CODE.noError)
  }

  /** Ends all streams, and closes our half of the connection after what was written. What arrives is dropped. */
  end(code: number): void {
    if (this.over) return
    this.over = true
    this.#frames.stop()
    for (const stream of [...this.streams.values()]) stream.lose(code)
    this.sender.end()
    this.#regulate()
  }

  // Events of the socket

  writeWaits(): void {
    this.#owner.writeWaits()
  }

  wrote(): void {
    this.#owner.wrote()
  }

  unsentChanged(): void {
    this.#regulate()
    this.#owner.unsentChanged()
  }

  threw(error: unknown): void {
    this.#owner.threw(error)
  }
}

/** What we announce. */
function settingsOf(isServer: boolean, limits: HttpLimits): OwnSettings {
  const { http2Streams, http2WindowBytes, headBytes } = limits
  const role = isServer ? { enableConnectProtocol: 1, maxConcurrentStreams: http2Streams } : { enablePush: 0 }
  return { ...role, initialWindowSize: http2WindowBytes, maxHeaderListSize: headBytes * LIST_FACTOR }
}
