/** An HTTP/2 upstream that is bytes on a socket: each test says which frame ends what, and when. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { ACK, END_HEADERS, END_STREAM, type Frame, field, frame, framesOf, PREFACE, TYPE } from './http2-frames.ts'

/** Everybody may ask for a WebSocket (RFC 8441). */
const ENABLE_CONNECT = Buffer.from([0, 8, 0, 0, 0, 1])

/** A request's stream, as its upstream sees it. */
export class UpstreamStream {
  readonly connection: UpstreamConnection
  readonly id: number
  /** Bytes of its body so far, and whether it has ended. */
  received = 0
  ended = false
  /** `onWhole` has been called. */
  asked = false
  resetCode: number | undefined

  constructor(connection: UpstreamConnection, id: number) {
    this.connection = connection
    this.id = id
  }

  head(status: number, fields: Record<string, string> = {}, end = false): void {
    this.headers({ ':status': String(status), ...fields }, end)
  }

  headers(fields: Record<string, string>, end = false): void {
    const block = Buffer.concat(Object.entries(fields).map(([name, value]) => field(name, value)))
    this.#send(TYPE.headers, END_HEADERS | (end ? END_STREAM : 0), block)
  }

  data(bytes: Buffer | string, end = false): void {
    const all: Buffer = typeof bytes === 'string' ? Buffer.from(bytes) : bytes
    let at = 0
    for (; all.length - at > 16_384; at += 16_384) this.#send(TYPE.data, 0, all.subarray(at, at + 16_384))
    this.#send(TYPE.data, end ? END_STREAM : 0, all.subarray(at))
  }

  reset(code: number): void {
    const payload = Buffer.alloc(4)
    payload.writeUInt32BE(code)
    this.#send(TYPE.reset, 0, payload)
  }

  #send(type: number, flags: number, payload: Buffer): void {
    this.connection.send(frame(type, flags, this.id, payload))
  }
}

export class UpstreamConnection {
  readonly socket: Socket
  readonly streams = new Map<number, UpstreamStream>()
  /** It answers neither settings nor pings. */
  silent = false
  pings = 0
  /** Called for each answer to a ping of its own. */
  onPong: () => void = () => {}
  #held: Buffer[] | undefined

  constructor(socket: Socket) {
    this.socket = socket
  }

  send(bytes: Buffer): void {
    if (this.#held !== undefined) this.#held.push(bytes)
    else if (this.socket.writable) this.socket.write(bytes)
  }

  /** What is sent within `say` leaves in one piece. */
  atOnce(say: () => void): void {
    this.#held = []
    say()
    const bytes = Buffer.concat(this.#held)
    this.#held = undefined
    this.send(bytes)
  }

  goaway(code: number, last: number): void {
    const payload = Buffer.alloc(8)
    payload.writeUInt32BE(last)
    payload.writeUInt32BE(code, 4)
    this.send(frame(TYPE.goaway, 0, 0, payload))
  }
}

export class Http2Upstream {
  readonly connections: UpstreamConnection[] = []
  readonly streams: UpstreamStream[] = []
  readonly port: number
  /** What it says first; undefined: nothing. */
  settings: Buffer | undefined = ENABLE_CONNECT
  /** Called once for each request whose end has come. */
  onWhole: ((stream: UpstreamStream) => void) | undefined
  /** Called for each connection, before a byte of it is read. */
  onConnection: ((connection: UpstreamConnection) => void) | undefined
  /** Called for each frame, after what it says has been noted. */
  onFrame: ((connection: UpstreamConnection, frame: Frame) => void) | undefined
  /** What it does when its peer closes its half. */
  onEnd: (connection: UpstreamConnection) => void = ({ socket }) => void socket.end()
  readonly #server: Server

  private constructor(server: Server) {
    this.#server = server
    this.port = (server.address() as AddressInfo).port
    server.on('connection', socket => this.#take(socket))
  }

  static async start(server = createServer({ allowHalfOpen: true, noDelay: true })): Promise<Http2Upstream> {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Http2Upstream(server)
  }

  #take(socket: Socket): void {
    const connection = new UpstreamConnection(socket)
    this.connections.push(connection)
    let unread: Buffer = Buffer.alloc(0)
    let greeted = false
    socket.on('error', () => {})
    socket.on('end', () => this.onEnd(connection))
    socket.on('data', (chunk: Buffer) => {
      unread = Buffer.concat([unread, chunk])
      if (!greeted) {
        if (unread.length < PREFACE.length) return
        unread = unread.subarray(PREFACE.length)
        greeted = true
      }
      for (const each of framesOf(unread)) {
        unread = unread.subarray(9 + each.payload.length)
        this.#note(connection, each)
        this.onFrame?.(connection, each)
      }
    })
    if (this.settings !== undefined) connection.send(frame(TYPE.settings, 0, 0, this.settings))
    this.onConnection?.(connection)
  }

  #note(connection: UpstreamConnection, { type, flags, stream: id, payload }: Frame): void {
    if (type === TYPE.settings && flags === 0 && !connection.silent) connection.send(frame(TYPE.settings, ACK, 0))
    if (type === TYPE.ping) connection.pings++
    if (type === TYPE.ping && flags === ACK) connection.onPong()
    if (type === TYPE.ping && flags === 0 && !connection.silent) connection.send(frame(TYPE.ping, ACK, 0, payload))
    if (type === TYPE.headers && !connection.streams.has(id)) this.#begin(connection, id)
    const stream = connection.streams.get(id)
    if (stream === undefined) return
    if (type === TYPE.data) stream.received += payload.length
    if (type === TYPE.reset) stream.resetCode = payload.readUInt32BE()
    if ((type === TYPE.data || type === TYPE.headers) && (flags & END_STREAM) !== 0) stream.ended = true
    if (stream.ended && !stream.asked) this.onWhole?.(stream)
    stream.asked ||= stream.ended
  }

  #begin(connection: UpstreamConnection, id: number): void {
    const stream = new UpstreamStream(connection, id)
    connection.streams.set(id, stream)
    this.streams.push(stream)
  }

  async stop(): Promise<void> {
    this.#server.close()
    for (const { socket } of this.connections) socket.destroy()
    if (this.#server.listening) await once(this.#server, 'close')
  }
}
