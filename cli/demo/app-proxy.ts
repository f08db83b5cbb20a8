/** A stand-in for App-Proxy: everything that a browser and the platform's UI ask of it, in a few lines each. Runs as a separate process. */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { WebSocketServer } from 'ws'
import { patternChunks } from './pattern.ts'

type Answer = (request: IncomingMessage, response: ServerResponse, url: URL) => void | Promise<void>

const ROUTES: Record<string, Answer> = {
  'GET /app-proxy/api/readyz': (_, response) => json(response, 200, { ok: true }),
  'GET /app-proxy/api/healthz': (_, response) => json(response, 200, { ok: true }),
  'GET /app-proxy/api/whoami': whoAmI,
  'POST /app-proxy/api/graphql': graphql,
  'GET /app-proxy/api/events': ticks,
  'GET /app-proxy/api/events/by-cause': eventsByCause,
  'POST /app-proxy/api/events/by-cause': nextEvent,
  'GET /app-proxy/api/download': download,
  'POST /app-proxy/api/upload': upload,
}

/** Open event streams that send the next event only after the caller has confirmed the last one. */
const streams = new Map<string, () => void>()
const MAX_STREAMS = 100

const server = createServer((request, response) => {
  const url = new URL(request.url ?? '/', 'http://app-proxy')
  const answer = ROUTES[`${request.method} ${url.pathname}`]
  if (answer) Promise.resolve(answer(request, response, url)).catch(() => response.destroy())
  else json(response, 404, { error: 'not found' })
})
const webSockets = new WebSocketServer({ noServer: true, maxPayload: 16 * 1024 * 1024 })
server.on('upgrade', (request, socket, head) => {
  if (!request.url?.startsWith('/app-proxy/api/ws')) {
    socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n')
    return
  }
  webSockets.handleUpgrade(request, socket, head, ws => {
    ws.on('message', (data, isBinary) => ws.send(data, { binary: isBinary }))
    ws.on('error', () => ws.terminate())
  })
})
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo
  console.error(JSON.stringify({ msg: 'listening', name: 'app-proxy', address: `127.0.0.1:${port}` }))
})

/** What we learn about the caller: the address, scheme and host that the hops before us determined. */
function whoAmI(request: IncomingMessage, response: ServerResponse): void {
  const { headers } = request
  json(response, 200, {
    service: 'app-proxy',
    host: headers.host,
    forwardedFor: headers['x-forwarded-for'],
    forwardedProto: headers['x-forwarded-proto'],
    forwardedHost: headers['x-forwarded-host'],
    requestId: headers['x-request-id'],
  })
}

async function graphql(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { query, variables } = JSON.parse((await readAll(request)).toString('utf8'))
  json(response, 200, { data: { runtime: { name: variables?.name, queryBytes: String(query).length } } })
}

/** One event per second, for a person with `curl -N`. */
function ticks(request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  let count = 0
  const send = () => response.write(`id: ${++count}\ndata: ${new Date().toISOString()}\n\n`)
  send()
  const timer = setInterval(send, 1000)
  request.on('close', () => clearInterval(timer))
  response.on('close', () => clearInterval(timer))
}

function eventsByCause(_: IncomingMessage, response: ServerResponse, url: URL): void {
  const key = url.searchParams.get('key') ?? ''
  if (streams.size >= MAX_STREAMS || streams.has(key)) {
    json(response, 409, { error: 'key is taken' })
    return
  }
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
  let count = 0
  const send = () => response.write(`data: ${++count}\n\n`)
  streams.set(key, send)
  response.on('close', () => streams.delete(key))
  send()
}

function nextEvent(_: IncomingMessage, response: ServerResponse, url: URL): void {
  const send = streams.get(url.searchParams.get('key') ?? '')
  json(response, send ? 202 : 404, { ok: send !== undefined })
  send?.()
}

async function download(_: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
  const bytes = Number(url.searchParams.get('bytes') ?? 0)
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': bytes })
  await pipeline(Readable.from(patternChunks(bytes)), response)
}

async function upload(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const hash = createHash('sha256')
  let bytes = 0
  for await (const chunk of request) {
    hash.update(chunk)
    bytes += chunk.length
  }
  json(response, 200, { bytes, sha256: hash.digest('hex') })
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks)
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(`${JSON.stringify(body)}\n`)
}
