import { once } from 'node:events'
import { type ClientHttp2Session, type ClientHttp2Stream, connect, type IncomingHttpHeaders } from 'node:http2'
import { WebSocket } from 'ws'
import {
  type Ask,
  askWhole,
  type Caller,
  type Exchange,
  type Place,
  type Reply,
  type WebSocketOptions,
} from './caller.ts'
import { dial } from './caller-http1.ts'
import { collect } from './http1-wire.ts'
import { write } from './write.ts'

/** HTTP/2 on one connection: by ALPN with TLS, else with prior knowledge. */
export class Http2Caller implements Caller {
  readonly session: ClientHttp2Session
  readonly #place: Place

  private constructor(place: Place, session: ClientHttp2Session) {
    this.#place = place
    this.session = session
  }

  static async connect(place: Place): Promise<Http2Caller> {
    const socket = await dial(place, ['h2'])
    const scheme = place.ca === undefined ? 'http' : 'https'
    const session = connect(`${scheme}://${place.authority}`, {
      createConnection: () => socket,
      // MB; a test may hand over a whole body at once.
      maxSessionMemory: 256,
    })
    session.on('error', () => {})
    await once(session, 'remoteSettings')
    return new Http2Caller(place, session)
  }

  close(): void {
    this.session.destroy()
  }

  ask(ask: Ask): Promise<Reply & { content: Buffer }> {
    return askWhole(this, ask)
  }

  begin(ask: Ask): Exchange {
    const { method = 'GET', path, fields = [], body, stream = false } = ask
    const pseudo = [':method', method, ':path', path, ':authority', this.#place.authority]
    const scheme = [':scheme', this.#place.ca === undefined ? 'http' : 'https']
    const length = body === undefined ? [] : ['content-length', String(Buffer.byteLength(body))]
    const request = this.session.request([...pseudo, ...scheme, ...fields, ...length], {
      endStream: body === undefined && !stream,
      waitForTrailers: stream,
    })
    request.on('error', () => {})
    if (body !== undefined) request.end(body)
    return makeExchange(request)
  }

  /** RFC 8441: the frames of RFC 6455 on a stream. */
  async webSocket(path: string, options: WebSocketOptions = {}): Promise<WebSocket> {
    const protocols = options.protocols?.join(', ')
    const request = this.session.request({
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      ':scheme': this.#place.ca === undefined ? 'http' : 'https',
      ':path': path,
      ':authority': this.#place.authority,
      'sec-websocket-version': '13',
      ...(protocols === undefined ? {} : { 'sec-websocket-protocol': protocols }),
      ...options.fields,
    })
    request.on('error', () => {})
    const [head] = (await Promise.race([once(request, 'response'), closed(request)])) as [IncomingHttpHeaders]
    if (Number(head[':status']) !== 200) throw new Error(`the WebSocket was answered ${head[':status']}`)
    return adopt(request, String(head['sec-websocket-protocol'] ?? ''))
  }
}

/** `ws` has no public way to take a stream that is already open; this is what its own server side uses, with the roles exchanged. */
function adopt(stream: ClientHttp2Stream, protocol: string): WebSocket {
  interface Inside {
    _isServer: boolean
    _protocol: string
    setSocket(stream: ClientHttp2Stream, head: Buffer, options: object): void
  }
  const ws = new WebSocket(null as never, undefined, { autoPong: true, closeTimeout: 30_000 } as object)
  const inside = ws as unknown as Inside
  inside._isServer = false
  inside._protocol = protocol
  inside.setSocket(stream, Buffer.alloc(0), { allowSynchronousEvents: true, maxPayload: 64 * 1024 * 1024 })
  return ws
}

function makeExchange(request: ClientHttp2Stream): Exchange {
  const informational: Exchange['informational'] = []
  const waiting = new Map<number, () => void>()
  const inform = (status: number, head: object) => {
    informational.push({ status, fields: flatten(head) })
    waiting.get(status)?.()
  }
  request.on('headers', head => inform(Number(head[':status']), head))
  request.on('continue', () => inform(100, {}))
  const reply = replyOf(request)
  reply.catch(() => {})
  let trailers: readonly string[] = []
  request.on('wantTrailers', () => request.sendTrailers(nest(trailers)))
  return {
    informational,
    informed: status => new Promise(resolve => waiting.set(status, resolve)),
    reply,
    write: bytes => write(request, bytes),
    end: (given = []) => {
      trailers = given
      request.end()
    },
    abort: () => request.close(8),
  }
}

async function replyOf(request: ClientHttp2Stream): Promise<Reply> {
  const [head, , raw] = (await Promise.race([once(request, 'response'), closed(request)])) as [
    IncomingHttpHeaders,
    number,
    string[] | undefined,
  ]
  const trailers: string[] = []
  request.on('trailers', (fields, _, rawTrailers) => trailers.push(...(rawTrailers ?? flatten(fields))))
  const fields = (raw ?? flatten(head)).filter((_, i, all) => !all[i - (i % 2)]?.startsWith(':'))
  const body = chunksOf(request)
  return { status: Number(head[':status']), fields, body, trailers, readAll: () => collect(body) }
}

/** Throws where the stream was reset, also after an end that Node takes for clean. */
async function* chunksOf(request: ClientHttp2Stream): AsyncGenerator<Buffer> {
  for await (const part of request) yield part
  if (!request.closed) await once(request, 'close')
  if (request.rstCode !== 0) throw new Error(`the stream was reset with ${request.rstCode}`)
}

function closed(request: ClientHttp2Stream): Promise<never> {
  return new Promise((_, reject) =>
    request.once('close', () => reject(new Error(`the stream was closed with ${request.rstCode} before an answer`))),
  )
}

function flatten(head: object): string[] {
  return Object.entries(head).flatMap(([name, text]) => [text].flat().flatMap(one => [name, String(one)]))
}

function nest(fields: readonly string[]): Record<string, string> {
  const nested: Record<string, string> = {}
  for (let i = 0; i < fields.length; i += 2) nested[fields[i] ?? ''] = fields[i + 1] ?? ''
  return nested
}
