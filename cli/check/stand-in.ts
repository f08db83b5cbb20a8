/** Listens in place of the server for a moment, answers only the check, and counts what arrives. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import { guardWith } from '../../protocol/base/guard.ts'
import type { HostPort } from '../../protocol/base/host-port.ts'

const MAX_CONNECTIONS = 256

interface StandInOptions {
  readonly listen: HostPort
  readonly tls: { readonly cert: Buffer; readonly key: Buffer } | undefined
  /** Path of the load balancer's health checks, which are answered with 200. */
  readonly healthPath: string | undefined
  /** How long `/quiet` stays silent. */
  readonly quietMs: number
}

export class StandIn {
  /** First segment of the paths that it answers. Callers of the server cannot know it. */
  readonly secret: string = randomBytes(16).toString('hex')
  readonly #options: StandInOptions
  readonly #server: ReturnType<typeof createHttp>
  readonly #sockets = new WebSocketServer({ noServer: true, maxPayload: 1024 })
  /** How many requests arrived that are answered by closing the connection. */
  cut = 0

  /** Rejects if something is already listening there. */
  static async open(options: StandInOptions): Promise<StandIn> {
    const standIn = new StandIn(options)
    standIn.#server.listen({ ...options.listen, exclusive: true })
    await once(standIn.#server, 'listening')
    return standIn
  }

  private constructor(options: StandInOptions) {
    this.#options = options
    this.#server = options.tls === undefined ? createHttp() : createHttps(options.tls)
    this.#server.maxConnections = MAX_CONNECTIONS
    const guard = guardWith(() => this.#server.closeAllConnections())
    const requested = guard((request: IncomingMessage, response: ServerResponse) => this.#answer(request, response))
    const upgraded = guard((request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.#echo(request, socket, head),
    )
    this.#server.on('request', requested)
    this.#server.on('upgrade', upgraded)
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  close(): void {
    for (const socket of this.#sockets.clients) socket.terminate()
    this.#server.close()
    this.#server.closeAllConnections()
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    response.setHeader('cache-control', 'no-store')
    switch (request.url) {
      case this.#options.healthPath:
        response.end()
        return
      case `/${this.secret}/arrived`:
        response.end(JSON.stringify({ secret: this.secret, host: request.headers.host }))
        return
      case `/${this.secret}/body`:
        this.#count(request, response)
        return
      case `/${this.secret}/cut`:
        this.cut++
        request.socket.destroy()
        return
      case `/${this.secret}/quiet`:
        this.#keepQuiet(response)
        return
      default:
        response.writeHead(503).end('the server is being checked\n')
    }
  }

  #count(request: IncomingMessage, response: ServerResponse): void {
    let bytes = 0
    const guard = guardWith(() => request.destroy())
    const more = guard((chunk: Buffer) => {
      bytes += chunk.length
    })
    const whole = guard(() => response.end(String(bytes)))
    request.on('data', more)
    request.once('end', whole)
  }

  #keepQuiet(response: ServerResponse): void {
    response.write('begun, ')
    const guard = guardWith(() => response.destroy())
    const end = guard(() => response.end('ended'))
    const timer = setTimeout(end, this.#options.quietMs)
    const gone = guard(() => clearTimeout(timer))
    response.once('close', gone)
  }

  #echo(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    if (request.url !== `/${this.secret}/socket`) {
      socket.destroy()
      return
    }
    const guard = guardWith(() => socket.destroy())
    this.#sockets.handleUpgrade(request, socket, head, webSocket => {
      const onMessage = guard((data: Buffer) => webSocket.send(String(data)))
      const broken = guard(() => webSocket.terminate())
      webSocket.on('message', onMessage)
      webSocket.on('error', broken)
    })
  }
}
