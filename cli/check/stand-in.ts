/** Takes the place of the server for a moment, with the same public listener. Answers only the check, and counts what arrives. */
import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import { type AdminListener, listenHealth } from '../../admin/listener.ts'
import { nodeServerTarget } from '../../client/targets/node-server.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding, guardWith, logGuard } from '../../protocol/base/guard.ts'
import type { HostPort } from '../../protocol/base/host-port.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Handler } from '../../protocol/exchange.ts'
import { type Listener, listen } from '../../protocol/http/listener.ts'
import { refusing } from '../../protocol/http/problem.ts'
import { CertificateFolder } from '../../server/certificate-folder.ts'
import { health } from '../../server/edge/health.ts'
import type { ServerOptions } from '../../server/index.ts'
import { loadTls } from '../../server/tls.ts'

/** `healthPath` is answered as by a server that is ready. */
interface StandInOptions extends Pick<ServerOptions, 'healthPath'> {
  /** Where the server listens for callers, and how. */
  readonly public: NonNullable<ServerOptions['public']>
  /** Where `/livez` and `/readyz` are answered with 200, too. */
  readonly health: HostPort | undefined
  /** How long `/quiet` stays silent. */
  readonly quietMs: number
}

const WELL = {
  ready: () => true,
  status: () => undefined,
  metrics: async () => ({ contentType: 'text/plain', text: '' }),
}

export class StandIn {
  /** First segment of the paths that it answers. Callers of the server cannot know it. */
  readonly secret: string = randomBytes(16).toString('hex')
  readonly #options: StandInOptions
  /** Does not listen: the listener of the server passes requests on to it. */
  readonly #http = createServer()
  readonly #sockets = new WebSocketServer({ noServer: true, maxPayload: 1024 })
  #listener: Listener | undefined
  #folder: CertificateFolder | undefined
  #health: AdminListener | undefined
  /** How many requests arrived that are answered by closing the connection. */
  cut = 0

  /** Rejects if something is already listening there. */
  static async open(options: StandInOptions): Promise<StandIn> {
    const standIn = new StandIn(options)
    try {
      await standIn.#open()
      return standIn
    } catch (error) {
      await standIn.close()
      throw error
    }
  }

  private constructor(options: StandInOptions) {
    this.#options = options
    const guard = logGuard(noLogger, '')
    const requested = guard((request: IncomingMessage, response: ServerResponse) => this.#answer(request, response))
    const upgraded = guard((request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.#echo(request, socket, head),
    )
    this.#http.on('request', requested)
    this.#http.on('upgrade', upgraded)
  }

  async #open(): Promise<void> {
    const { host, port, tls, tlsFolder } = this.#options.public
    const folder = tlsFolder === undefined ? undefined : await CertificateFolder.open(tlsFolder, noLogger)
    this.#folder = folder
    this.#listener = await listen({
      host,
      port,
      tls: tls && (await loadTls(tls)),
      contextFor: folder && (name => folder.find(name)),
      handler: this.#handler(),
    })
    const place = this.#options.health
    if (place !== undefined) this.#health = await listenHealth({ ...place, source: WELL })
  }

  #handler(): Handler {
    const { handler } = nodeServerTarget(this.#http)
    const checks = health(
      this.#options.healthPath,
      () => true,
      refusing(() => undefined),
    )
    return checks((request, response) => {
      if (request.path !== `/${this.secret}/cut`) return handler(request, response)
      this.cut++
      // The caller's connection is closed without an answer.
      response.responseAbort(new SallyportError('cancelled'))
      return discarding(response)
    })
  }

  get port(): number {
    return this.#listener!.address.port
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets.clients) socket.terminate()
    this.#folder?.close()
    await Promise.all([this.#listener?.close({ graceMs: 0 }), this.#health?.close()])
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    response.setHeader('cache-control', 'no-store')
    switch (request.url) {
      case `/${this.secret}/arrived`:
        response.end(JSON.stringify({ secret: this.secret, host: request.headers.host }))
        return
      case `/${this.secret}/body`:
        this.#count(request, response)
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
