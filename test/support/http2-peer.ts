/** One end of HTTP/2 that is frames on a socket. A test says each of them; what the other end sends is held to RFC 9113. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { HpackDecoder } from '../../protocol/http/http2/hpack/decoder.ts'
import {
  ACK,
  END_HEADERS,
  END_STREAM,
  ERRORS,
  type Frame,
  frame,
  framesOf,
  PADDED,
  PREFACE,
  settings,
  settingsOf,
  TYPE,
  uint32,
} from './http2-frames.ts'
import { write } from './write.ts'

const MAX_FRAME_BYTES = 16_384
const MAX_WINDOW = 2 ** 31 - 1

/** A stream as the frames show it. */
interface StreamState {
  /** What the other end may still send, and what we may. */
  window: number
  room: number
  readonly heads: string[][]
  readonly data: Buffer[]
  ended: boolean
  /** The code with which the other end has reset it. */
  reset: number | undefined
}

export class Http2Peer {
  readonly socket: Socket
  readonly frames: Frame[] = []
  /** The first rule that the other end broke. */
  fault: string | undefined
  /** The connection is over, or the other end has closed its half. */
  over = false
  goaways: { readonly last: number; readonly code: number }[] = []
  readonly #serves: boolean
  readonly #streams = new Map<number, StreamState>()
  readonly #decoder = new HpackDecoder()
  #unread: Buffer = Buffer.alloc(0)
  #greeted: boolean
  #block: { readonly stream: number; readonly flags: number; readonly parts: Buffer[] } | undefined
  #window = 65_535
  #streamWindow = 65_535
  #room = 65_535
  #streamRoom = 65_535
  /** Sizes of windows in our SETTINGS that are not acknowledged yet. */
  readonly #announced: (number | undefined)[] = []
  #pings = 0
  #waiting: (() => void)[] = []

  private constructor(socket: Socket, serves: boolean) {
    this.socket = socket
    this.#serves = serves
    this.#greeted = !serves
    socket.on('error', () => {})
    socket.on('data', (chunk: Buffer) => this.#read(chunk))
    for (const event of ['end', 'close']) {
      socket.on(event, () => {
        this.over = true
        this.#wake()
      })
    }
  }

  /** A caller that has sent its preface and these frames. The server has acknowledged the settings in them. */
  static async call(port: number, first = settings()): Promise<Http2Peer> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    await once(socket, 'connect')
    const peer = new Http2Peer(socket, false)
    socket.write(PREFACE)
    peer.send(first)
    await peer.until(() => peer.#announced.length === 0)
    return peer
  }

  /** An upstream on a connection that it has accepted. It has sent these frames. */
  static serve(socket: Socket, first = settings()): Http2Peer {
    const peer = new Http2Peer(socket, true)
    peer.send(first)
    return peer
  }

  // What we send

  /** Sends frames at once. They may break any rule. Resolves once there is room for more. */
  send(...frames: Buffer[]): Promise<void> {
    const bytes = Buffer.concat(frames)
    this.#note(bytes)
    return write(this.socket, bytes)
  }

  /** Sends them in pieces of this size. */
  async trickle(bytes: Buffer, size = 1): Promise<void> {
    this.#note(bytes)
    for (let at = 0; at < bytes.length; at += size) {
      this.socket.write(bytes.subarray(at, at + size))
      await new Promise(resolve => setImmediate(resolve))
    }
  }

  #note(bytes: Buffer): void {
    for (const each of framesOf(bytes)) {
      const { type, flags, stream, payload } = each
      if (type === TYPE.headers && stream > 0) this.#stateOf(stream)
      else if (type === TYPE.data) this.#give(stream, payload.length)
      else if (type === TYPE.window && payload.length === 4) this.#widen(stream, payload.readUInt32BE() & MAX_WINDOW)
      else if (type === TYPE.settings && (flags & ACK) === 0) this.#announced.push(settingsOf(each).initialWindowSize)
    }
  }

  #give(stream: number, bytes: number): void {
    this.#room -= bytes
    const state = this.#streams.get(stream)
    if (state !== undefined) state.room -= bytes
  }

  #widen(stream: number, bytes: number): void {
    if (stream === 0) this.#window += bytes
    else if (this.#streams.has(stream)) this.#stateOf(stream).window += bytes
  }

  /** Sends a body as the windows admit it. Resolves once its last byte is sent. */
  async upload(
    stream: number,
    bytes: number,
    { padding = 0, end = true, piece = MAX_FRAME_BYTES } = {},
  ): Promise<void> {
    const state = this.#stateOf(stream)
    const around = padding > 0 ? 1 + padding : 0
    for (let left = bytes; left > 0 && !this.over; ) {
      const size = Math.min(left, piece - around, state.room - around, this.#room - around)
      if (size <= 0) await this.until(() => Math.min(state.room, this.#room) > around)
      else {
        left -= size
        const flags = (padding > 0 ? PADDED : 0) | (end && left === 0 ? END_STREAM : 0)
        const parts = [Buffer.from(padding > 0 ? [padding] : []), Buffer.alloc(size, 'x'), Buffer.alloc(padding)]
        this.send(frame(TYPE.data, flags, stream, Buffer.concat(parts)))
      }
    }
  }

  // What the other end says

  #read(chunk: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, chunk])
    if (!this.#greeted) {
      if (this.#unread.length < PREFACE.length) return
      if (!this.#unread.subarray(0, PREFACE.length).equals(PREFACE)) this.#breaks('3.4 preface')
      this.#unread = this.#unread.subarray(PREFACE.length)
      this.#greeted = true
    }
    for (const each of framesOf(this.#unread)) {
      this.#unread = this.#unread.subarray(9 + each.payload.length)
      this.frames.push(each)
      this.#onFrame(each)
    }
    this.#wake()
  }

  #breaks(rule: string): void {
    this.fault ??= rule
  }

  #onFrame(given: Frame): void {
    const { type, flags, stream, payload } = given
    if (this.frames.length === 1 && (type !== TYPE.settings || flags !== 0)) this.#breaks('3.4 SETTINGS first')
    if (payload.length > MAX_FRAME_BYTES) this.#breaks('4.2 size of a frame')
    if ((this.#block !== undefined) !== (type === TYPE.continuation)) this.#breaks('6.10 CONTINUATION')
    if (type === TYPE.data) this.#onData(given)
    else if (type === TYPE.headers || type === TYPE.continuation) this.#onBlock(given)
    else if (type === TYPE.reset) this.#onReset(stream, payload.readUInt32BE())
    else if (type === TYPE.settings) this.#onSettings(given)
    else if (type === TYPE.ping && flags === 0) this.send(frame(TYPE.ping, ACK, 0, payload))
    else if (type === TYPE.window) this.#onWindow(stream, payload.readUInt32BE())
    else if (type === TYPE.push) this.#breaks('8.4 push')
    else if (type === TYPE.goaway) this.#onGoaway(payload.readUInt32BE(), payload.readUInt32BE(4))
  }

  #onData({ flags, stream, payload }: Frame): void {
    const state = this.#open(stream, 'DATA')
    this.#window -= payload.length
    if (state === undefined) return
    state.window -= payload.length
    if (payload.length > 0 && Math.min(this.#window, state.window) < 0) this.#breaks('6.9.1 beyond the window')
    if (state.heads.length === 0) this.#breaks('8.1 DATA before HEADERS')
    state.data.push(payload)
    state.ended = (flags & END_STREAM) !== 0
  }

  #onBlock({ flags, stream, payload }: Frame): void {
    this.#block ??= { stream, flags, parts: [] }
    const block = this.#block
    if (block.stream !== stream) this.#breaks('6.10 stream of a CONTINUATION')
    block.parts.push(payload)
    if ((flags & END_HEADERS) === 0) return
    this.#block = undefined
    const { fields } = this.#decoder.decode(Buffer.concat(block.parts), Infinity, Infinity)
    if (this.#serves && !this.#streams.has(stream)) this.#begin(stream)
    const state = this.#open(stream, 'HEADERS')
    state?.heads.push(fields)
    if (state !== undefined) state.ended = (block.flags & END_STREAM) !== 0
  }

  /** A request. */
  #begin(stream: number): void {
    if (stream % 2 === 0 || stream < this.newest) this.#breaks('5.1.1 id of a stream')
    this.#stateOf(stream)
  }

  /** The stream, if the other end may send this on it. */
  #open(stream: number, what: string): StreamState | undefined {
    const state = this.#streams.get(stream)
    if (state === undefined || state.ended || state.reset !== undefined) this.#breaks(`5.1 ${what} on ${stream}`)
    return state
  }

  #onReset(stream: number, code: number): void {
    const state = this.#streams.get(stream)
    if (state === undefined) this.#breaks('6.4 RST_STREAM of an idle stream')
    else if (state.reset !== undefined) this.#breaks('5.4.2 a second RST_STREAM')
    else state.reset = code
  }

  #onSettings(given: Frame): void {
    if (given.flags === ACK) {
      if (this.#announced.length === 0) this.#breaks('6.5 unasked ACK')
      const size = this.#announced.shift()
      if (size === undefined) return
      for (const state of this.#streams.values()) state.window += size - this.#streamWindow
      this.#streamWindow = size
      return
    }
    const size = settingsOf(given).initialWindowSize
    if (size !== undefined) {
      for (const state of this.#streams.values()) state.room += size - this.#streamRoom
      this.#streamRoom = size
    }
    this.send(frame(TYPE.settings, ACK, 0))
  }

  #onWindow(stream: number, bytes: number): void {
    const state = this.#streams.get(stream)
    if (bytes === 0) this.#breaks('6.9 empty WINDOW_UPDATE')
    if (stream === 0) this.#room += bytes
    else if (state === undefined) this.#breaks('5.1 WINDOW_UPDATE of an idle stream')
    else state.room += bytes
    if (Math.max(this.#room, state?.room ?? 0) > MAX_WINDOW) this.#breaks('6.9.1 overflow')
  }

  #onGoaway(last: number, code: number): void {
    if (last > (this.goaways.at(-1)?.last ?? last)) this.#breaks('6.8 a last stream that rose')
    this.goaways.push({ last, code })
  }

  #stateOf(stream: number): StreamState {
    let state = this.#streams.get(stream)
    if (state === undefined) {
      const [window, room] = [this.#streamWindow, this.#streamRoom]
      state = { window, room, heads: [], data: [], ended: false, reset: undefined }
      this.#streams.set(stream, state)
    }
    return state
  }

  // What a test asks

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }

  /** Resolves once it holds, or the connection is over. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds() && !this.over) await new Promise<void>(resolve => this.#waiting.push(resolve))
  }

  /** Resolves once the connection is over. */
  end(): Promise<void> {
    return this.until(() => false)
  }

  /** Resolves once the other end has read everything so far. */
  async ping(): Promise<void> {
    const payload = Buffer.concat([uint32(0x7e57), uint32(this.#pings++)])
    const from = this.frames.length
    this.send(frame(TYPE.ping, 0, 0, payload))
    const isPong = ({ type, flags, payload: given }: Frame) =>
      type === TYPE.ping && flags === ACK && given.equals(payload)
    await this.until(() => this.frames.slice(from).some(isPong))
  }

  /** Resolves once the other end has said its last on a stream, or the connection is over. */
  settled(stream: number): Promise<void> {
    return this.until(() => {
      const state = this.#streams.get(stream)
      return state !== undefined && (state.ended || state.reset !== undefined)
    })
  }

  /** The id of the latest stream. */
  get newest(): number {
    return Math.max(0, ...this.#streams.keys())
  }

  heads(stream: number): readonly string[][] {
    return this.#streams.get(stream)?.heads ?? []
  }

  body(stream: number): Buffer {
    return Buffer.concat(this.#streams.get(stream)?.data ?? [])
  }

  /** What became of a stream: `200 body`, `reset PROTOCOL_ERROR`, `200 half a bo..., reset CANCEL`, or nothing. */
  said(stream: number): string {
    const state = this.#streams.get(stream)
    if (state === undefined) return ''
    const body = this.body(stream)
    const words = state.heads.flatMap(fields =>
      fields.flatMap((text, i) => (i % 2 === 1 && fields[i - 1] === ':status' ? [text] : [])),
    )
    if (body.length > 0) words.push(body.length > 40 ? `${body.length} bytes` : body.toString('latin1'))
    if (state.reset !== undefined) words.push(`reset ${ERRORS[state.reset] ?? state.reset}`)
    else if (words.length > 0 && !state.ended) words.push('...')
    return words.join(' ')
  }

  /** How the other end has ended the connection, if it has. */
  get farewell(): string {
    const code = this.goaways.at(-1)?.code
    if (code === undefined) return this.over ? 'closed' : ''
    return code !== 0 || this.over ? `goaway ${ERRORS[code] ?? code}` : ''
  }
}
