/** The service behind the tunnel. It answers as the query of each request asks, over HTTP/1.1 and h2c. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttp2Server } from 'node:http2'
import type { AddressInfo, Server, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { webSocketAccept } from '../../protocol/http/http1/websocket.ts'

/** How a request is answered. */
export interface Behaviour {
  /** Before it reads the body, after its head, or when all of it is read. */
  readonly when: 'early' | 'read'
  /** Reads the request's body. */
  readonly reads: boolean
  readonly bytes: number
  readonly length: boolean
  readonly end: 'whole' | 'cut' | 'hang' | 'half'
  /** Length of the pieces in which it is written. */
  readonly pieceBytes: number
  /** Length of its trailer, if its own is not known. */
  readonly trailerBytes: number
  /** How many 103 come before it. */
  readonly hints: number
  /** Length of the request's body, if that is whole. */
  readonly requestBytes: number
}

export function queryOf(behaviour: Behaviour): string {
  return `?b=${encodeURIComponent(JSON.stringify(behaviour))}`
}

function behaviourOf(url: string): Behaviour {
  return JSON.parse(decodeURIComponent(url.slice(url.indexOf('?b=') + 3))) as Behaviour
}

/** The bytes of all answers, and of all requests. */
export const FILL = 120
export const REQUEST_FILL = 98
const PIECE = Buffer.alloc(16 * 1024, FILL)

export class WalkUpstream {
  readonly http1: Server
  readonly http2: Server
  readonly sockets = new Set<Socket>()
  /** Requests that look whole, but are not. */
  readonly faults: string[] = []
  /** Sockets of WebSockets, which the server no longer owns. */
  readonly upgraded = new Set<Duplex>()

  private constructor() {
    const serve = (request: IncomingMessage, response: ServerResponse) => answer(request, response, this.faults)
    this.http1 = createServer({ keepAliveTimeout: 60_000, maxHeaderSize: 32 * 1024 }, serve)
    this.http2 = createHttp2Server(serve as never) as never
    this.http1.on('upgrade', (request: IncomingMessage, socket: Duplex) => this.#upgrade(request, socket))
    for (const server of [this.http1, this.http2]) {
      server.on('connection', (socket: Socket) => {
        this.sockets.add(socket)
        socket.on('error', () => {})
        socket.on('close', () => this.sockets.delete(socket))
      })
    }
  }

  static async start(): Promise<WalkUpstream> {
    const upstream = new WalkUpstream()
    for (const server of [upstream.http1, upstream.http2]) {
      server.listen(0, '127.0.0.1')
      await once(server, 'listening')
    }
    return upstream
  }

  get ports(): { http1: number; http2: number } {
    const port = (server: Server) => (server.address() as AddressInfo).port
    return { http1: port(this.http1), http2: port(this.http2) }
  }

  #upgrade(request: IncomingMessage, socket: Duplex): void {
    const { bytes, end } = behaviourOf(request.url!)
    const accept = webSocketAccept(request.headers['sec-websocket-key']!)
    this.upgraded.add(socket)
    socket.on('close', () => this.upgraded.delete(socket))
    socket.on('error', () => {})
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
    )
    for (let left = bytes; left > 0; left -= PIECE.length) socket.write(PIECE.subarray(0, Math.min(left, PIECE.length)))
    if (end === 'cut') socket.destroy()
    else if (end === 'half') socket.end()
    else if (end === 'whole') socket.on('data', chunk => void socket.write(chunk)).on('end', () => socket.end())
    if (end !== 'cut') socket.resume().on('end', () => socket.end())
  }

  /** The requests in progress, and how far each has come. */
  open(): string[] {
    return [...answering].map(response => {
      const { method, url, complete } = response.req
      const request = `${method} ${decodeURIComponent(url!)}: ${complete ? 'whole' : 'incomplete'}`
      const answer = hanging.has(response) ? 'hangs' : response.headersSent ? 'under way' : 'not begun'
      return `a request is open: ${request}, its answer ${answer}`
    })
  }

  /** Cuts off the answers that hang. */
  release(): void {
    for (const response of hanging) cut(response)
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    for (const server of [this.http1, this.http2]) server.close()
  }
}

function answer(request: IncomingMessage, response: ServerResponse, faults: string[]): void {
  const behaviour = behaviourOf(request.url!)
  response.on('error', () => {})
  request.on('error', () => {})
  answering.add(response)
  response.on('close', () => answering.delete(response))
  if (behaviour.reads) check(request, response, behaviour, faults)
  if (behaviour.when === 'read' && behaviour.reads) request.on('end', () => say(response, behaviour))
  else say(response, behaviour)
}

function check(
  request: IncomingMessage,
  response: ServerResponse,
  { requestBytes }: Behaviour,
  faults: string[],
): void {
  let bytes = 0
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (chunk.some(byte => byte !== REQUEST_FILL)) faults.push('a request with bytes of something else')
  })
  request.on('end', () => {
    // Over HTTP/2, a cut one ends, too.
    if (request.aborted || response.writableEnded) return
    if (bytes !== requestBytes) faults.push(`a request of ${bytes} bytes instead of ${requestBytes}`)
  })
}

const answering = new Set<ServerResponse>()
const hanging = new Set<ServerResponse>()

function cut(response: ServerResponse): void {
  const { stream } = response as { stream?: Duplex }
  if (stream === undefined) response.destroy()
  else stream.destroy()
}

function say(response: ServerResponse, behaviour: Behaviour): void {
  if (response.destroyed) return
  const { bytes, length, hints, pieceBytes } = behaviour
  for (let i = 0; i < hints; i++) response.writeEarlyHints({ link: `</${'l'.repeat(1000)}>; rel=preload` })
  const isHead = response.req.method === 'HEAD'
  // It is complete with its head, whatever follows. The connection is used again, and Node would make the next answer wait behind it.
  const end = behaviour.end === 'hang' && (isHead || (length && bytes === 0)) ? 'whole' : behaviour.end
  const trailerBytes = length || isHead ? 0 : behaviour.trailerBytes
  response.writeHead(
    200,
    length ? { 'content-length': String(bytes) } : trailerBytes > 0 ? { trailer: 'x-trailer' } : {},
  )
  response.flushHeaders?.()
  let left = isHead ? 0 : end === 'whole' || end === 'half' ? bytes : Math.floor(bytes / 2)
  const more = (): void => {
    while (left > 0) {
      const piece = PIECE.subarray(0, Math.min(left, pieceBytes))
      left -= piece.length
      if (!response.write(piece)) {
        response.once('drain', more)
        return
      }
    }
    if (end === 'whole' || end === 'half') {
      if (trailerBytes > 0) response.addTrailers({ 'x-trailer': 't'.repeat(trailerBytes) })
      response.end()
    } else if (end === 'cut') cut(response)
    else {
      hanging.add(response)
      response.on('close', () => hanging.delete(response))
    }
  }
  more()
}
