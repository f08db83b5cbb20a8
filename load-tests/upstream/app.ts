/**
 * The service behind every setup, for requests that need code: it verifies webhooks, counts and compares uploads, echoes WebSocket
 * messages, and sends events. It also answers the small and the bulk requests, for `sallyport load-test --serve`.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { WebSocketServer } from 'ws'
import { drained } from '../lib/drained.ts'
import { isPattern, patternAt } from '../lib/pattern.ts'
import { EventSource } from './event-source.ts'
import { MARK, PATHS, SMALL_BODY, signature } from './service.ts'

const CHUNK_BYTES = 256 * 1024
/** A caller with as many unread echoes is not read from. */
const MOST_WAITING_BYTES = 1024 * 1024

/** Resolves once it listens. */
export async function serveApp(host: string, port: number): Promise<Server> {
  const events = new EventSource()
  const server = createServer((request, response) => {
    response.setHeader(...MARK)
    const path = request.url ?? '/'
    if (path === PATHS.small) response.end(SMALL_BODY)
    else if (path === PATHS.hook) void verify(request, response)
    else if (path === PATHS.sink) swallow(request, response)
    else if (path === PATHS.events) events.add(response)
    else if (path.startsWith(PATHS.bytes)) void download(Number(path.slice(PATHS.bytes.length)), response)
    else response.writeHead(404).end()
  })
  const sockets = new WebSocketServer({ server, path: PATHS.echo, perMessageDeflate: false, maxPayload: 1024 * 1024 })
  sockets.on('connection', socket => {
    const sent = () => socket.bufferedAmount < MOST_WAITING_BYTES && socket.resume()
    socket.on('message', (data, isBinary) => {
      socket.send(data, { binary: isBinary }, sent)
      if (socket.bufferedAmount >= MOST_WAITING_BYTES) socket.pause()
    })
    socket.on('error', () => {})
  })
  server.keepAliveTimeout = 0
  server.requestTimeout = 0
  server.listen({ host, port, backlog: 1024 })
  await once(server, 'listening')
  return server
}

/** 200 `success` for a valid signature over the raw body, else 400, like an event source. */
async function verify(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const hmac = createHmac('sha256', signature.secret)
  request.on('data', chunk => hmac.update(chunk))
  request.on('error', () => {})
  request.on('end', () => {
    const given = Buffer.from(String(request.headers[signature.header] ?? ''))
    const right = Buffer.from(`sha256=${hmac.digest('hex')}`)
    const isValid = given.length === right.length && timingSafeEqual(given, right)
    const body = isValid ? 'success' : 'wrong signature'
    response.writeHead(isValid ? 200 : 400, { 'content-length': body.length }).end(body)
  })
}

/** Answers with the number of bytes that arrived, or 400 if any of them was wrong. */
function swallow(request: IncomingMessage, response: ServerResponse): void {
  let bytes = 0
  let isRight = true
  request.on('data', (chunk: Buffer) => {
    isRight &&= isPattern(chunk, bytes)
    bytes += chunk.length
  })
  request.on('error', () => {})
  request.on('end', () => {
    response.statusCode = isRight ? 200 : 400
    response.end(String(bytes))
  })
}

async function download(bytes: number, response: ServerResponse): Promise<void> {
  if (!Number.isSafeInteger(bytes) || bytes < 0) return void response.writeHead(400).end()
  response.writeHead(200, { 'content-length': bytes })
  response.on('error', () => {})
  // Node drops what is written after HEAD, and would never ask to wait.
  if (response.req.method === 'HEAD') return void response.end()
  for (let sent = 0; sent < bytes && !response.destroyed; ) {
    const chunk = patternAt(sent, Math.min(CHUNK_BYTES, bytes - sent))
    sent += chunk.length
    if (!response.write(chunk)) await drained(response)
  }
  response.end()
}
