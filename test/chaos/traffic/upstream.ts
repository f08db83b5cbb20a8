/** The service of a runtime. It answers with bytes that identify it and the request, and counts what it executes. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Duplex, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { WebSocketServer } from 'ws'
import { contentOf } from './content.ts'
import type { Ledger } from './ledger.ts'

const BLOCK_BYTES = 65_536
const EVENT_MS = 100

export class TrafficUpstream {
  readonly runtime: string
  readonly port: number
  readonly #server: Server
  readonly #ledger: Ledger
  readonly #sockets = new Set<Duplex>()
  readonly #webSockets = new WebSocketServer({ noServer: true })
  /** How often each webhook was executed. */
  readonly #executed = new Map<string, number>()

  private constructor(runtime: string, server: Server, ledger: Ledger) {
    this.runtime = runtime
    this.#server = server
    this.#ledger = ledger
    this.port = (server.address() as AddressInfo).port
    server.on('connection', socket => {
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
    })
    server.on('request', (request, response) => this.#serve(request, response).catch(() => response.destroy()))
    server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head))
  }

  static async start(runtime: string, ledger: Ledger): Promise<TrafficUpstream> {
    const server = createServer()
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new TrafficUpstream(runtime, server, ledger)
  }

  /** Whether the webhook with this id was executed. */
  hasExecuted(id: string): boolean {
    return this.#executed.has(id)
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { kind, id, query } = this.#read(request)
    const bytes = Number(query.get('bytes') ?? 0)
    const thinkMs = Number(query.get('ms') ?? 0)
    if (kind === 'download') return this.#download(response, id, bytes, Number(query.get('rate')))
    if (kind === 'events') return this.#events(response, id, Number(query.get('count')))
    const label =
      kind === 'hook' ? `${this.runtime} ${id} ${await this.#execute(request, id)}` : `${this.runtime} ${id}`
    if (thinkMs > 0) await new Promise(resolve => setTimeout(resolve, thinkMs))
    const body = contentOf(label, bytes)
    response.writeHead(200, { 'content-length': body.length })
    response.end(body)
  }

  /** `/get/RUNTIME/ID?...`. A request for another runtime is the worst that can happen. */
  #read(request: IncomingMessage): { kind: string; id: string; query: URLSearchParams } {
    const url = new URL(request.url ?? '/', 'http://upstream')
    const [, kind = '', runtime = '', id = ''] = url.pathname.split('/')
    if (runtime !== this.runtime) this.#ledger.wrong(`${this.runtime} was sent ${request.method} ${request.url}`)
    return { kind, id, query: url.searchParams }
  }

  /** Counts once the body is complete. Resolves to the digest of the body. */
  async #execute(request: IncomingMessage, id: string): Promise<string> {
    const hash = createHash('sha256')
    for await (const chunk of request) hash.update(chunk)
    if (!request.complete) throw new Error('the body was cut')
    const times = (this.#executed.get(id) ?? 0) + 1
    this.#executed.set(id, times)
    if (times > 1) this.#ledger.twice(`${this.runtime} ${id}, ${times} times`)
    return hash.digest('hex')
  }

  async #download(response: ServerResponse, id: string, bytes: number, rate: number): Promise<void> {
    response.writeHead(200, { 'content-length': bytes })
    await pipeline(Readable.from(paced(`${this.runtime} ${id}`, bytes, rate)), response)
  }

  /** `count` events, one every 100 ms. 0: until the caller leaves. */
  #events(response: ServerResponse, id: string, count: number): void {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    let sent = 0
    const send = () => {
      response.write(eventOf(this.runtime, id, sent++))
      if (sent === count) response.end()
    }
    const timer = setInterval(send, EVENT_MS)
    response.on('close', () => clearInterval(timer))
    response.on('finish', () => clearInterval(timer))
    send()
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { id } = this.#read(request)
    this.#webSockets.handleUpgrade(request, socket, head, ws => {
      ws.on('message', data => ws.send(`${this.runtime} ${id} ${data}`))
      ws.on('error', () => ws.terminate())
    })
  }
}

/** A body at this rate, in bytes per second. */
async function* paced(label: string, bytes: number, rate: number): AsyncGenerator<Buffer> {
  const startedMs = performance.now()
  for (let sent = 0; sent < bytes; ) {
    const aheadMs = (sent / rate) * 1000 - (performance.now() - startedMs)
    if (aheadMs > 5) await new Promise(resolve => setTimeout(resolve, aheadMs))
    const length = Math.min(BLOCK_BYTES, bytes - sent)
    yield contentOf(label, length, sent)
    sent += length
  }
}

/** Event number `index` of a stream. */
export function eventOf(runtime: string, id: string, index: number): string {
  return `id: ${index}\ndata: ${runtime} ${id}\n\n`
}
