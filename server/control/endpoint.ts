/**
 * Where clients connect: TLS, then one HTTP request, then a WebSocket. Everything before the WebSocket is paced and bounded, with one
 * deadline until the client's `hello`.
 */

import { randomUUID } from 'node:crypto'
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https'
import { createServer as createNetServer, type Server as NetServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import { parseCidrs } from '../../protocol/base/address.ts'
import { dropsAny } from '../../protocol/base/certificates.ts'
import { messageOf } from '../../protocol/base/errors.ts'
import { endFor, type Guard, guardWith, ignore, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { ReadPause } from '../../protocol/base/read-pause.ts'
import { KEEP_ALIVE } from '../../protocol/base/tcp.ts'
import { ASKING, INTERMEDIATE, MODERN } from '../../protocol/base/tls-profile.ts'
import { ignoreRest } from '../../protocol/http/http1/ignore-rest.ts'
import { type BoundAddress, type ListenAddress, listenOn } from '../../protocol/http/listen-on.ts'
import { SUBPROTOCOL } from '../../protocol/wire/control.ts'
import { WEBSOCKET_OPTIONS } from '../../protocol/wire/transport.ts'
import type { OpenWebSocket } from '../../protocol/wire/transport-websocket.ts'
import type { Identity } from '../auth/claims.ts'
import { KeysUnavailable, TokenRefused } from '../auth/refusal.ts'
import type { ResolvedLimits } from '../limits.ts'
import type { ControlOptions } from '../options.ts'
import type { TlsPair } from '../tls.ts'
import { AcceptQueue } from './accept-queue.ts'
import { type ClientCertificateInfo, certificateOf } from './certificate.ts'
import { checkHandshake, type HandshakeRefusal, type RefusalReason, refusalText, refuseUpgrade } from './handshake.ts'

/** A client that was admitted. */
export interface ControlUpgrade {
  readonly ws: OpenWebSocket
  readonly identity: Identity
  readonly address: string
  /** SHA-256 thumbprint of the client's certificate, base64url. */
  readonly thumbprint: string | undefined
  /** Cancels the handshake's deadline, because the client has sent `hello`. */
  readonly settled: () => void
}

export interface EndpointOptions {
  readonly control: ControlOptions
  readonly tls: TlsPair | undefined
  readonly limits: ResolvedLimits
  readonly logger: Logger
  /** The identity in the token, after all checks. Rejects with what the verifier throws. */
  readonly authenticate: (token: string, certificate: ClientCertificateInfo | undefined) => Promise<Identity>
  /** Why a client may not connect now. `undefined` if it may. */
  readonly gate: (identity: Identity, address: string) => RefusalReason | undefined
  readonly onArrival: (arrival: ControlUpgrade) => void
  readonly onRefused: (refusal: HandshakeRefusal) => void
  /** An authority of clients' certificates no longer counts. */
  readonly onAuthorityDropped: () => void
}

const MAX_HEAD_BYTES = 16 * 1024

export class ControlEndpoint {
  readonly #options: EndpointOptions
  readonly #http: HttpServer | HttpsServer
  readonly #ws: WebSocketServer
  readonly #intake: AcceptQueue
  #listener: NetServer | undefined
  #authorities: TlsPair['ca']
  readonly #guard: Guard

  constructor(options: EndpointOptions) {
    this.#options = options
    this.#authorities = options.tls?.ca
    this.#guard = logGuard(options.logger, 'the control endpoint failed')
    this.#intake = new AcceptQueue({
      limits: options.limits,
      proxies: parseCidrs(options.control.proxyProtocol ?? []),
      logger: options.logger,
      onAdmitted: socket => {
        this.#http.emit('connection', socket)
        if (options.tls === undefined) socket.resume()
      },
      onFull: address => {
        this.#refused('queue-full', 'too many clients wait for their handshake', randomUUID(), address)
      },
    })
    this.#ws = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      ...WEBSOCKET_OPTIONS,
      handleProtocols: () => SUBPROTOCOL,
    })
    // Clients compare their clock with it.
    const dated = this.#guard((headers: string[]) => {
      headers.push(`Date: ${new Date().toUTCString()}`)
    })
    this.#ws.on('headers', dated)
    this.#http = this.#createHttp()
    const upgrade = this.#guard((request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.upgrade(request, socket, head),
    )
    this.#http.on('upgrade', upgrade)
    const answer = this.#guard((request: IncomingMessage, response: ServerResponse) => this.#answer(request, response))
    this.#http.on('request', answer)
    // Node would answer unknown expectations by itself, and keep the connection.
    this.#http.on('checkExpectation', answer)
    const malformed = this.#guard((error: NodeJS.ErrnoException, socket: Duplex) => refuseBytes(error, socket))
    this.#http.on('clientError', malformed)
  }

  get waiting(): number {
    return this.#intake.waiting
  }

  #createHttp(): HttpServer | HttpsServer {
    const limits = {
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: this.#options.limits.handshakeMs,
      // Node's default is 5 minutes, which is too long for a head.
      requestTimeout: this.#options.limits.handshakeMs,
      keepAliveTimeout: 1,
      // Node would answer requests without one by itself.
      requireHostHeader: false,
    }
    if (this.#options.tls === undefined) return createHttpServer(limits)
    const server = createHttpsServer({
      ...limits,
      ...this.#tlsOptions(this.#options.tls),
      handshakeTimeout: this.#options.limits.handshakeMs,
    })
    const failed = this.#guard((error: Error) =>
      this.#options.logger.debug({ err: error }, 'TLS handshake of a client failed'),
    )
    server.on('tlsClientError', failed)
    // Node destroys the socket of a CONNECT, and TLS may report an error of what came with it even then. Not every Node listens for it.
    const secured = this.#guard((socket: Socket) => {
      socket.on('error', ignore)
    })
    server.on('secureConnection', secured)
    return server
  }

  #tlsOptions(pair: TlsPair) {
    const { tlsMin } = this.#options.control
    const profile = tlsMin === 'TLSv1.2' ? INTERMEDIATE : MODERN
    const base = { ...pair, ...profile, ALPNProtocols: ['http/1.1'] }
    return pair.ca === undefined ? base : { ...base, ...ASKING, rejectUnauthorized: true }
  }

  /** Sets the certificate for new connections. If an authority was dropped, handshakes that began under it end. */
  setTls(pair: TlsPair): void {
    if ('setSecureContext' in this.#http) this.#http.setSecureContext(this.#tlsOptions(pair))
    const before = this.#authorities
    this.#authorities = pair.ca
    if (!dropsAny(before, pair.ca)) return
    this.#intake.endPending()
    this.#options.onAuthorityDropped()
  }

  /** Listens on an address of its own. */
  async listen(place: ListenAddress): Promise<BoundAddress> {
    const accept = this.#guard((socket: Socket) => this.accept(socket))
    const listener = createNetServer({ pauseOnConnect: true, noDelay: true, ...KEEP_ALIVE }, accept)
    this.#listener = listener
    return listenOn(listener, place, this.#options.logger)
  }

  /** Handles an accepted connection before any TLS byte is read. `behindFront`: no PROXY header precedes TLS. */
  accept(socket: Socket, behindFront = false): void {
    try {
      this.#intake.accept(socket, behindFront)
    } catch (error) {
      this.#broken(error, socket)
    }
  }

  /** Answers a request that is not an upgrade. Those behind it would cost far more than the handshake that was paid for. */
  #answer(request: IncomingMessage, response: ServerResponse): void {
    ignoreRest(request.socket)
    const check = checkHandshake(request)
    const reason = 'refusal' in check && check.refusal === 'not-found' ? 'not-found' : 'not-upgrade'
    const { head, body, status } = refusalText(reason, randomUUID())
    response.writeHead(status, Object.fromEntries(head.map(line => line.split(': ', 2) as [string, string])))
    response.end(body)
  }

  /** Handles an upgrade request from our own listener, or from an embedder's server. There, the deadline starts here. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    try {
      this.#upgrade(request, socket, head)
    } catch (error) {
      this.#broken(error, socket)
    }
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', ignore)
    const requestId = randomUUID()
    const pending = this.#intake.pendingOf(request.socket)
    const { address } = pending
    const check = checkHandshake(request)
    if ('refusal' in check) {
      refuseUpgrade(socket, check.refusal, requestId)
      this.#refused(check.refusal, check.detail, requestId, address)
      return
    }
    const certificate = certificateOf(request.socket)
    // An embedder's server may not request a certificate, or accept connections without one.
    if (certificate === undefined && this.#options.control.clientCa !== undefined) {
      refuseUpgrade(socket, 'certificate', requestId)
      this.#refused('certificate', 'the client showed no valid certificate', requestId, address)
      return
    }
    const guard = guardWith(error => this.#broken(error, socket))
    const pause = new ReadPause(socket)
    pause.begin()
    const admit = guard((identity: Identity) => {
      pause.end()
      const startedAt = performance.now()
      const reason = this.#options.gate(identity, address)
      if (reason !== undefined) {
        refuseUpgrade(socket, reason, requestId)
        this.#refused(reason, `runtime ${identity.runtime}`, requestId, address)
        return
      }
      this.#admit(request, socket, head, {
        identity,
        address,
        thumbprint: certificate?.thumbprint,
        settled: pending.settle,
      })
      pending.charge(performance.now() - startedAt)
    })
    const refuse = guard((error: unknown) => {
      pause.end()
      const { reason, detail } = explain(error)
      refuseUpgrade(socket, reason, requestId)
      this.#refused(reason, detail, requestId, address)
    })
    this.#options.authenticate(check.token, certificate).then(admit, refuse)
  }

  #admit(request: IncomingMessage, socket: Duplex, head: Buffer, arrival: Omit<ControlUpgrade, 'ws'>): void {
    if (socket.destroyed) return
    try {
      this.#ws.handleUpgrade(request, socket, head, ws => this.#options.onArrival({ ws, ...arrival }))
    } catch (error) {
      this.#broken(error, socket)
    }
  }

  #broken(error: unknown, socket: Duplex): void {
    endFor(error, this.#options.logger, 'setting a session up failed', () => socket.destroy())
  }

  #refused(reason: RefusalReason, detail: string, requestId: string, address: string): void {
    this.#options.onRefused({ reason, detail, requestId, address })
  }

  /** Stops accepting clients. */
  stop(): void {
    this.#listener?.close()
    this.#intake.stop()
  }

  /** Resolves when nobody is connected any more, at the latest after `ms`. WebSockets finish their closing handshake meanwhile. */
  emptied(ms: number): Promise<void> {
    return this.#intake.emptied(ms)
  }

  /** Ends what is still connected. */
  close(): void {
    this.stop()
    this.#http.close()
    this.#intake.close()
  }
}

/**
 * Answers bytes that are not an HTTP request, or one with too large a head. Node itself would destroy the socket before the answer
 * is sent.
 */
function refuseBytes(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code?.startsWith('HPE_') !== true || !socket.writable) {
    socket.destroy()
    return
  }
  const status = error.code === 'HPE_HEADER_OVERFLOW' ? '431 Request Header Fields Too Large' : '400 Bad Request'
  const guard = guardWith(() => socket.destroy())
  const cut = guard(() => socket.destroy())
  socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`, cut)
}

function explain(error: unknown): { reason: RefusalReason; detail: string } {
  if (error instanceof TokenRefused) {
    return { reason: error.check === 'cnf' ? 'certificate' : 'token', detail: `${error.check}: ${error.message}` }
  }
  if (error instanceof KeysUnavailable) return { reason: 'keys-unavailable', detail: error.message }
  return { reason: 'internal', detail: messageOf(error) }
}
