/** Upstreams of a live pair, over HTTP/1.1 and h2c. The path decides how they answer, in every way that an upstream may. */
import { createServer as createHttp1, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttp2, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo, Server, Socket } from 'node:net'
import { webSocketAccept } from '../../../protocol/http/http1/websocket.ts'

export interface LiveUpstream {
  readonly port: number
  readonly close: () => void
}

const BIG = Buffer.alloc(256 * 1024, 'b')
/** Paths below `/one` (HTTP/1.1) and `/two` (h2c). */
export const PATHS = [
  '/small',
  '/echo',
  '/early',
  '/big',
  '/drip',
  '/quiet',
  '/never',
  '/cut',
  '/trailers',
  '/hints',
  '/empty',
] as const

export function startHttp1Upstream(): Promise<LiveUpstream> {
  const server = createHttp1((request, response) => answerHttp1(request, response))
  server.on('upgrade', (request, socket) => {
    socket.on('error', ignore)
    if (request.url?.endsWith('/never')) return
    const accept = request.headers['sec-websocket-key']
    if (accept === undefined || request.url?.endsWith('/small')) {
      socket.end('HTTP/1.1 403 no\r\ncontent-length: 2\r\n\r\nno')
      return
    }
    socket.write(
      `HTTP/1.1 101 yes\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${webSocketAccept(accept)}\r\n\r\n`,
    )
    if (request.url?.endsWith('/cut')) socket.end('half-closed')
    else socket.pipe(socket)
  })
  return listen(server)
}

function answerHttp1(request: IncomingMessage, response: ServerResponse): void {
  request.on('error', ignore)
  response.on('error', ignore)
  const path = request.url?.replace(/^\/one/, '').split('?')[0]
  switch (path) {
    case '/echo':
      request.pipe(response)
      return
    case '/early':
      response.end('early')
      return
    case '/big':
      request.resume()
      response.end(BIG)
      return
    case '/drip':
      drip(
        text => response.write(text),
        () => response.end(),
        () => response.destroyed,
      )
      return
    case '/quiet':
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write('data: 1\n\n')
      return
    case '/never':
      return
    case '/cut':
      response.writeHead(200, { 'content-length': '1000' })
      response.write('part', () => request.socket.destroy())
      return
    case '/trailers':
      if (request.method !== 'HEAD') response.setHeader('trailer', 'x-end')
      response.write('body')
      response.addTrailers({ 'x-end': 'yes' })
      response.end()
      return
    case '/hints':
      response.writeEarlyHints({ link: '</a>; rel=preload' })
      request.resume().on('end', () => response.end('hinted'))
      return
    case '/empty':
      response.writeHead(204).end()
      return
    default:
      request.resume()
      response.end('ok')
  }
}

export function startHttp2Upstream(): Promise<LiveUpstream> {
  const server = createHttp2()
  server.on('sessionError', ignore)
  server.on('stream', (stream: ServerHttp2Stream, headers) => answerHttp2(stream, String(headers[':path'])))
  return listen(server)
}

function answerHttp2(stream: ServerHttp2Stream, url: string): void {
  stream.on('error', ignore)
  const path = url.replace(/^\/two/, '').split('?')[0]
  switch (path) {
    case '/echo':
      stream.respond({ ':status': 200 })
      stream.pipe(stream)
      return
    case '/early':
      stream.respond({ ':status': 200 })
      stream.end('early')
      return
    case '/big':
      stream.resume()
      stream.respond({ ':status': 200 })
      stream.end(BIG)
      return
    case '/drip':
      stream.respond({ ':status': 200 })
      drip(
        text => stream.write(text),
        () => stream.end(),
        () => stream.destroyed,
      )
      return
    case '/quiet':
      stream.respond({ ':status': 200 })
      stream.write('1')
      return
    case '/never':
      return
    case '/cut':
      stream.respond({ ':status': 200 })
      stream.write('part', () => stream.close(2))
      return
    case '/trailers':
      stream.respond({ ':status': 200, 'content-length': 4 }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-end': 'yes' }))
      stream.end('body')
      return
    case '/hints':
      stream.additionalHeaders({ ':status': 103, link: '</a>; rel=preload' })
      stream.respond({ ':status': 200 })
      stream.end('hinted')
      return
    case '/empty':
      stream.respond({ ':status': 204 }, { endStream: true })
      return
    default:
      stream.resume()
      stream.respond({ ':status': 200 })
      stream.end('ok')
  }
}

function drip(write: (text: string) => void, end: () => void, isOver: () => boolean): void {
  let left = 10
  const timer = setInterval(() => {
    if (isOver()) clearInterval(timer)
    else if (left-- > 0) write('drip')
    else {
      clearInterval(timer)
      end()
    }
  }, 2)
}

async function listen(server: Server): Promise<LiveUpstream> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', ignore)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const close = () => {
    server.close()
    for (const socket of sockets) socket.destroy()
  }
  return { port: (server.address() as AddressInfo).port, close }
}

function ignore(): void {}
