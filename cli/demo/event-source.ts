/**
 * A stand-in for Argo Events' event source for GitHub, which verifies the signature over the raw body. Runs as a separate process:
 *
 *     node event-source.ts PORT PATH SECRET-FILE [MS [INACTIVE-MS]]
 *
 * It answers like the original, including how Go's server ends a connection whose body it does not want.
 * `test/interop/argo-events.test.ts` compares the two. Events go to the bus one at a time and take MS each (default 0). Each event
 * that reaches the bus is logged as a line on stderr. For INACTIVE-MS (default 0) after the start of listening, the route is not
 * active yet. SIGUSR2 takes the bus offline, and the next SIGUSR2 brings it back.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { AddressInfo } from 'node:net'
import { posix } from 'node:path'
import type { Duplex } from 'node:stream'
import { checkDelivery, HookError, mediaType } from './github-hook.ts'

const MAX_BYTES = 1_048_576
/** Go's server reads up to this much of an unwanted body before it answers, so that the connection can be reused. */
const MAX_UNWANTED_BYTES = 262_144
/** If the body is longer, it half-closes, and waits this long for the caller to read the answer. */
const LINGER_MS = 500
const PLAIN = 'text/plain; charset=utf-8'
const [port = '0', path = '/webhooks/demo/push/github', secretFile = '', busMs = '0', inactiveMs = '0'] =
  process.argv.slice(2)
const secret = readFileSync(secretFile, 'utf8').replace(/\n$/, '')

let bus: Promise<unknown> = Promise.resolve()
let isBusThere = true
process.on('SIGUSR2', () => {
  isBusThere = !isBusThere
})
let activeMs = Number.POSITIVE_INFINITY

const limits = { maxHeaderSize: MAX_BYTES, keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 }
const server = createServer({ ...limits, requireHostHeader: false }, (request, response) => begin(request, response))
server.on('checkContinue', (request, response) => begin(request, response, () => response.writeContinue()))
server.on('checkExpectation', (_, response) => {
  response.writeHead(417, { 'content-length': 0, connection: 'close' }).end()
})
server.on('clientError', (_, socket) => refuse(socket, ''))
server.listen(Number(port), '127.0.0.1', () => {
  activeMs = performance.now() + Number(inactiveMs)
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`
  console.error(JSON.stringify({ msg: 'listening', name: 'event-source', address }))
})

/** Go's answer to something that it cannot parse as a request. */
function refuse(socket: Duplex, detail: string): void {
  const text = `400 Bad Request${detail}`
  void leave(socket, text, { 'Content-Type': PLAIN }, text)
}

/** The last answer of a connection. The connection is half-closed and then waits, so that no reset overtakes the answer. */
async function leave(
  socket: Duplex,
  status: string,
  fields: Record<string, string | number>,
  text: string,
  rest?: Promise<unknown>,
): Promise<void> {
  if (!socket.writable) return
  const lines = Object.entries({ ...fields, Connection: 'close' }).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.on('error', () => {}).write(`HTTP/1.1 ${status}\r\n${lines.join('')}\r\n${text}`)
  await rest
  socket.end()
  setTimeout(() => socket.destroy(), LINGER_MS).unref()
}

function begin(request: IncomingMessage, response: ServerResponse, wanted = () => {}): void {
  if (request.headers.host === undefined && request.httpVersion === '1.1') {
    refuse(request.socket, ': missing required Host header')
    return
  }
  const requestPath = pathOf(request.url!)
  if (requestPath === undefined) {
    refuse(request.socket, '')
    return
  }
  const body = new Body(request, wanted)
  route(request, requestPath, body)
    .then(verdict => answer(response, body, verdict))
    // What makes the original panic ends only this connection.
    .catch(() => request.socket.destroy())
}

interface Verdict {
  readonly status: number
  readonly text: string
  readonly fields?: Record<string, string>
}

/** The decoded path of a request target. Undefined if it cannot be decoded. */
function pathOf(target: string): string | undefined {
  try {
    return decodeURIComponent(target.replace(/^[a-z]+:\/\/[^/?]*/i, '').split('?')[0] || '/')
  } catch {
    return undefined
  }
}

async function route(request: IncomingMessage, requestPath: string, body: Body): Promise<Verdict> {
  if (request.url === '*') return { status: 200, text: '' }
  const clean = posix.normalize(requestPath)
  if (clean !== requestPath) {
    const query = /\?.*/.exec(request.url!)?.[0] ?? ''
    return { status: 301, text: '', fields: { location: encodeURI(clean) + query } }
  }
  if (requestPath === '/health') return { status: 200, text: 'OK' }
  if (requestPath !== path)
    return { status: 404, text: '404 page not found\n', fields: { 'x-content-type-options': 'nosniff' } }
  return await deliver(request, body)
}

async function deliver(request: IncomingMessage, body: Body): Promise<Verdict> {
  if (performance.now() < activeMs) return { status: 400, text: 'endpoint is inactive' }
  const field = (name: string) => request.headersDistinct[name]?.[0] ?? ''
  let bytes: Buffer
  try {
    const type = mediaType(field('content-type'))
    const signature = field('x-hub-signature-256') || field('x-hub-signature')
    bytes = await body.read()
    checkDelivery(type, bytes, signature, secret)
  } catch (error) {
    if (error instanceof HookError) return { status: 400, text: error.message }
    throw error
  }
  const taken = bus.then(async () => {
    await new Promise(resolve => setTimeout(resolve, Number(busMs)))
    if (isBusThere) reportEvent(field('x-github-delivery'), bytes)
    return isBusThere
  })
  bus = taken
  return (await taken) ? { status: 200, text: 'success' } : { status: 500, text: 'failed to record event' }
}

/** Reports that an event has reached the bus. */
function reportEvent(delivery: string, body: Buffer): void {
  const sha256 = createHash('sha256').update(body).digest('hex')
  console.error(JSON.stringify({ msg: 'event', delivery, sha256, bytes: body.length }))
}

/** The body of a request. Once the answer is decided, the rest of the body may or may not be read. */
class Body {
  readonly #request: IncomingMessage
  readonly #wanted: () => void
  #isWanted = false
  #bytes = 0
  tooLarge = false

  constructor(request: IncomingMessage, wanted: () => void) {
    this.#request = request
    this.#wanted = wanted
  }

  async read(): Promise<Buffer> {
    this.#isWanted = true
    this.#wanted()
    const chunks: Buffer[] = []
    if (await this.#take(MAX_BYTES, chunk => chunks.push(chunk))) return Buffer.concat(chunks)
    this.tooLarge = true
    throw new HookError('http: request body too large')
  }

  /** Whether the connection can be reused after the answer. */
  async passed(): Promise<boolean> {
    if (this.tooLarge) return false
    if (this.#request.complete || this.#request.readableEnded) return true
    if (!this.#isWanted && this.#request.headers.expect !== undefined) return false
    return await this.rest()
  }

  /** Reads the rest of the body, unless that is too much. */
  async rest(): Promise<boolean> {
    const left = Number(this.#request.headers['content-length'] ?? 0) - this.#bytes
    if (left >= MAX_UNWANTED_BYTES) return false
    return await this.#take(MAX_UNWANTED_BYTES, () => {})
  }

  /** Whether the body ended within `most` bytes. */
  #take(most: number, onChunk: (chunk: Buffer) => void): Promise<boolean> {
    const request = this.#request
    let bytes = 0
    return new Promise((resolve, reject) => {
      request.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        this.#bytes += chunk.length
        if (bytes <= most) return onChunk(chunk)
        request.pause()
        request.removeAllListeners('data')
        resolve(false)
      })
      request.once('end', () => resolve(true)).once('error', reject)
      request.resume()
      if (request.readableEnded || request.destroyed) resolve(true)
    })
  }
}

async function answer(response: ServerResponse, body: Body, { status, text, fields }: Verdict): Promise<void> {
  const type = text === '' ? {} : { 'content-type': PLAIN }
  const all = { ...type, ...fields, 'content-length': Buffer.byteLength(text) }
  if (await body.passed()) {
    response.removeHeader('connection')
    response.writeHead(status, all).end(text)
  } else {
    await leave(
      response.socket!,
      `${status} ${STATUS_CODES[status]}`,
      all,
      text,
      body.tooLarge ? body.rest() : undefined,
    )
  }
}
