import { once } from 'node:events'
import { connect as connectNet, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { WebSocket } from 'ws'
import { ByteReader } from './byte-reader.ts'
import {
  type Ask,
  askWhole,
  type Caller,
  type Exchange,
  type Place,
  type Reply,
  type WebSocketOptions,
} from './caller.ts'
import { bodyForm, chunk, collect, readBody, readHead, value, writeFields } from './http1-wire.ts'
import { write } from './write.ts'

/** A socket to the place, with TLS where it has a CA. */
export async function dial(place: Place, protocols: string[] = ['http/1.1']): Promise<Socket> {
  const socket =
    place.ca === undefined
      ? connectNet(place.port, '127.0.0.1')
      : connectTls({
          host: '127.0.0.1',
          port: place.port,
          servername: place.authority.split(':')[0] ?? '',
          ca: place.ca,
          ALPNProtocols: protocols,
        })
  await once(socket, place.ca === undefined ? 'connect' : 'secureConnect')
  socket.setNoDelay()
  socket.on('error', () => {})
  return socket
}

/** HTTP/1.1 on one connection that lives as long as the server lets it; exchanges go in turn. */
export class Http1Caller implements Caller {
  readonly socket: Socket
  readonly #place: Place
  readonly #reader: ByteReader
  #turn: Promise<unknown> = Promise.resolve()

  private constructor(place: Place, socket: Socket) {
    this.#place = place
    this.socket = socket
    this.#reader = new ByteReader(socket)
  }

  static async connect(place: Place): Promise<Http1Caller> {
    return new Http1Caller(place, await dial(place))
  }

  close(): void {
    this.socket.destroy()
  }

  ask(ask: Ask): Promise<Reply & { content: Buffer }> {
    return askWhole(this, ask)
  }

  begin(ask: Ask): Exchange {
    const { method = 'GET', path, fields = [], body, stream = false } = ask
    const isChunked = stream && value(fields, 'content-length') === undefined
    const framing = bodyFields(body, isChunked)
    const lines = writeFields(['host', this.#place.authority, ...fields, ...framing])
    this.socket.write(Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines}\r\n`, 'latin1'))
    if (body !== undefined) this.socket.write(body)
    const waiting = new Map<number, () => void>()
    const informational: Exchange['informational'] = []
    const reply = this.#turn.then(() => this.#readReply(method, informational, waiting))
    this.#turn = reply.then(async ({ done }) => done).catch(() => {})
    reply.catch(() => {})
    return {
      informational,
      informed: status => new Promise(resolve => waiting.set(status, resolve)),
      reply,
      write: bytes => write(this.socket, isChunked ? chunk(bytes) : bytes),
      end: (trailers = []) => {
        if (isChunked) this.socket.write(`0\r\n${writeFields(trailers)}\r\n`)
      },
      abort: () => this.socket.destroy(),
    }
  }

  async webSocket(path: string, options: WebSocketOptions = {}): Promise<WebSocket> {
    const { place, authority } = { place: this.#place, authority: this.#place.authority }
    const scheme = place.ca === undefined ? 'ws' : 'wss'
    const socket = await dial(place)
    const ws = new WebSocket(`${scheme}://${authority}${path}`, options.protocols ?? [], {
      createConnection: () => socket,
      headers: { ...options.fields },
      perMessageDeflate: options.perMessageDeflate ?? false,
    })
    await once(ws, 'open')
    return ws
  }

  async #readReply(
    method: string,
    informational: Exchange['informational'],
    waiting: Map<number, () => void>,
  ): Promise<Reply & { done: Promise<void> }> {
    for (;;) {
      const head = await readHead(this.#reader)
      if (head === undefined) throw new Error('the connection was closed before an answer')
      const status = Number(head.start.split(' ')[1])
      const fields = head.fields.map((text, i) => (i % 2 === 0 ? text.toLowerCase() : text))
      if (status < 200) {
        informational.push({ status, fields })
        waiting.get(status)?.()
        continue
      }
      return this.#makeReply(method, status, fields)
    }
  }

  #makeReply(method: string, status: number, fields: string[]): Reply & { done: Promise<void> } {
    const trailers: string[] = []
    const isEmpty = method === 'HEAD' || status === 204 || status === 304
    const chunks = readBody(this.#reader, isEmpty ? 'none' : bodyForm(fields, true), trailers)
    let finish = () => {}
    const done = new Promise<void>(resolve => {
      finish = resolve
    })
    const body = finishing(chunks, finish)
    if (isEmpty) finish()
    return { status, fields, body, trailers, readAll: () => collect(body), done }
  }
}

/** The next reply on the connection is read when this body is over. */
async function* finishing(chunks: AsyncGenerator<Buffer>, finish: () => void): AsyncGenerator<Buffer> {
  try {
    yield* chunks
  } finally {
    finish()
  }
}

function bodyFields(body: string | Buffer | undefined, isChunked: boolean): string[] {
  if (isChunked) return ['transfer-encoding', 'chunked']
  return body === undefined ? [] : ['content-length', String(Buffer.byteLength(body))]
}
