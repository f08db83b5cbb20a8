/** Listens on TCP, with or without TLS, and serves HTTP on the connections that it accepts. */
import { X509Certificate } from 'node:crypto'
import { createServer, type Server, type Socket } from 'node:net'
import {
  createServer as createTlsServer,
  type SecureContext,
  type TLSSocket,
  type TlsOptions,
  type Server as TlsServer,
} from 'node:tls'
import { type Cidrs, canonicalAddress } from '../base/address.ts'
import { dropsAny } from '../base/certificates.ts'
import { checkDuration } from '../base/durations.ts'
import type { SallyportError } from '../base/errors.ts'
import { hook, ignore, logDefect, logGuard, safeLogger } from '../base/guard.ts'
import { checkSocket, type LimitOptions, resolveLimits } from '../base/limit.ts'
import { type Logger, noLogger } from '../base/log.ts'
import { mostOpenFiles } from '../base/open-files.ts'
import { KEEP_ALIVE } from '../base/tcp.ts'
import { ASKING, INTERMEDIATE } from '../base/tls-profile.ts'
import type { Handler, HttpRequest } from '../exchange.ts'
import { CertifiedConnections } from './certified-connections.ts'
import { ConnectionSet, type ManagedConnection } from './connection-set.ts'
import { withListenerLayers } from './forwarded.ts'
import { DateClock } from './http1/encode.ts'
import { serveHttp1 } from './http1/server-connection.ts'
import { SocketReader } from './http1/socket-reader.ts'
import { sniffPreface } from './http2/preface.ts'
import { serveHttp2 } from './http2/server-session.ts'
import { HTTP_LIMITS, type HttpLimitOptions, type HttpLimits, LISTENER_LIMITS } from './limits.ts'
import { type BoundAddress, type ListenAddress, listenOn, stopListening } from './listen-on.ts'
import { PendingConnections } from './pending-connections.ts'
import type { CorsPolicy } from './problem.ts'

const HANDSHAKE_MS = 10_000
type TlsBasics = Pick<
  TlsOptions,
  'key' | 'cert' | 'ca' | 'requestCert' | 'rejectUnauthorized' | 'minVersion' | 'secureOptions'
>

/** Certificate and key in PEM, and these of the other options of `node:tls`. */
export interface TlsMaterial extends TlsBasics {
  /** An OCSP response in DER, for callers that ask for it (RFC 6066, section 8). */
  readonly ocsp?: Buffer | undefined
}

/** Without a port the listener only serves what `handleSocket` is given. */
export interface ListenerOptions extends Partial<ListenAddress>, LimitOptions<typeof LISTENER_LIMITS> {
  /** Absent: plain HTTP. */
  tls?: TlsMaterial | undefined
  /** Returns another certificate for callers that ask for this server name (SNI), or undefined for that of `tls`. */
  contextFor?: ((serverName: string) => SecureContext | undefined) | undefined
  handler: Handler
  /** Peers whose `X-Forwarded-*` fields are trusted. If absent, `caller` and `requestId` are left to the handler. */
  trustedProxies?: Cidrs | undefined
  /** HTTP/2 by ALPN, or with prior knowledge on a plain listener. Default true. */
  http2?: boolean | undefined
  limits?: HttpLimitOptions | undefined
  /** The handler itself bounds what bodies of answers hold until callers take them, as sessions do. Default false. */
  boundsBodies?: boolean | undefined
  logger?: Logger | undefined
  /** Called for each accepted connection. Returning false closes it at once. */
  onConnection?: ((socket: Socket) => boolean | undefined) | undefined
  /** Called for each request that was refused before the handler got it, with what could be read of it. */
  onBadRequest?: ((error: SallyportError, request: HttpRequest) => void) | undefined
  /** Which pages may read an answer that is not the handler's. If the head was refused, the function gets what could be read of it. */
  corsOf?: ((request: HttpRequest) => CorsPolicy | undefined) | undefined
}

export interface Listener {
  readonly address: BoundAddress
  /** How many connections are open. */
  readonly connections: number
  /** Handles a connection that was accepted elsewhere, and not read from, like one of its own: with the same TLS and limits. */
  accept(socket: Socket): void
  /** Serves HTTP on a socket that was accepted elsewhere. A TLSSocket must have finished its handshake. */
  handleSocket(socket: Socket | TLSSocket, first?: Buffer): void
  /** Sets the certificates for connections from now on. Throws and keeps the old ones if they are invalid. */
  setTls(tls: TlsMaterial): void
  /** Accepts no new connections, and lets exchanges in progress end for at most `graceMs` (default 10 s). */
  close(options?: ListenerCloseOptions): Promise<void>
}

interface ListenerCloseOptions {
  readonly graceMs?: number
  /**
   * No other server can take the callers, so new connections are accepted until those that are open have ended and no other happens
   * to be open, and at most until half of the grace, or 10 s, is left. Default false.
   */
  readonly last?: boolean
  /** Called when it stops accepting connections. */
  readonly onStop?: (() => Promise<void>) | undefined
}

/** Resolves once it listens. Rejects with the system's error (`EADDRINUSE`, `EACCES`, ...). */
export async function listen(options: ListenerOptions): Promise<Listener> {
  const listener = new HttpListener(options)
  const { host, port, fd, reusePort } = options
  if (port !== undefined) await listener.bind({ host, port, fd, reusePort })
  return listener
}

class HttpListener implements Listener {
  address: BoundAddress = { host: '', port: 0 }
  readonly #options: ListenerOptions
  readonly #handler: Handler
  readonly #logger: Logger
  readonly #onBadRequest: ListenerOptions['onBadRequest']
  readonly #connections: ConnectionSet
  readonly #certified = new CertifiedConnections()
  /** The authorities for callers' certificates. */
  #authorities: TlsMaterial['ca']
  readonly #dates = new DateClock()
  readonly #reader = new SocketReader()
  readonly #server: Server | TlsServer
  /** TLS connections in the middle of a handshake, and others whose protocol we do not know yet. */
  readonly #pending: PendingConnections
  #closed = false
  readonly #limits: HttpLimits
  readonly #http2: boolean

  constructor(options: ListenerOptions) {
    checkSocket(options)
    this.#limits = resolveLimits(HTTP_LIMITS, options.limits, 'limits')
    this.#options = options
    this.#authorities = options.tls?.ca
    this.#logger = safeLogger(options.logger)
    this.#connections = new ConnectionSet(this.#mostConnections())
    this.#pending = new PendingConnections(this.#connections)
    this.#http2 = options.http2 ?? true
    const { handler, trustedProxies } = options
    this.#onBadRequest = hook('onBadRequest', options.onBadRequest, this.#logger)
    this.#handler =
      trustedProxies === undefined ? handler : withListenerLayers(handler, trustedProxies, this.#onBadRequest)
    this.#server = options.tls === undefined ? this.#plainServer() : this.#tlsServer(options.tls)
  }

  /** Without a file for it, a connection is refused before the network that has the most loses one, and half are for other things. */
  #mostConnections(): number {
    const { maxConnections } = resolveLimits(LISTENER_LIMITS, this.#options)
    const most = Math.floor(mostOpenFiles() / 2)
    if (most >= maxConnections) return maxConnections
    this.#logger.warn(
      { most, maxConnections },
      'the listener takes fewer connections: the process may open too few files',
    )
    return most
  }

  #plainServer(): Server {
    return createServer({ allowHalfOpen: true, noDelay: true, ...KEEP_ALIVE }, socket => {
      try {
        if (this.#admit(socket)) this.handleSocket(socket)
      } catch (error) {
        this.#failed(socket, error)
      }
    })
  }

  #tlsServer(tls: TlsMaterial): TlsServer {
    const server = createTlsServer({
      ...tlsDefaults(tls),
      noDelay: true,
      ...KEEP_ALIVE,
      handshakeTimeout: HANDSHAKE_MS,
      ALPNProtocols: this.#http2 ? ['h2', 'http/1.1'] : ['http/1.1'],
      ...this.#byServerName(),
    })
    staple(server, tls)
    server.on('connection', (socket: Socket) => {
      try {
        if (this.#admit(socket)) this.#pending.add(socket)
      } catch (error) {
        this.#failed(socket, error)
      }
    })
    server.on('secureConnection', socket => {
      try {
        // Only in the middle of a handshake does a caller that sends no more leave.
        socket.allowHalfOpen = true
        // TLS may report an error of what came with the handshake even after the socket is destroyed. Not every Node listens for it.
        socket.on('error', ignore)
        if (hasGone(socket) || this.#isOutdated(socket)) socket.destroy()
        else this.handleSocket(socket)
        this.#pending.settle(socket)
      } catch (error) {
        this.#failed(socket, error)
      }
    })
    const guard = logGuard(this.#logger, 'a handshake could not be given up')
    const failed = guard((error: Error, socket: TLSSocket) => {
      this.#logger.debug({ err: error }, 'TLS handshake failed')
      socket.destroy()
    })
    server.on('tlsClientError', failed)
    return server
  }

  #byServerName(): Pick<TlsOptions, 'SNICallback'> {
    const { contextFor } = this.#options
    if (contextFor === undefined) return {}
    return {
      SNICallback: (name, callback) => {
        try {
          callback(null, contextFor(name))
        } catch (error) {
          callback(error as Error)
        }
      },
    }
  }

  /** An error while a connection is accepted ends that connection. */
  #failed(socket: Socket, error: unknown): void {
    logDefect(this.#logger, 'a connection could not be taken', error)
    socket.destroy()
  }

  #admit(socket: Socket): boolean {
    const welcome = !this.#closed && !hasGone(socket) && this.#options.onConnection?.(socket) !== false
    if (welcome && this.#connections.makeRoom(canonicalAddress(socket.remoteAddress ?? ''))) return true
    socket.destroy()
    return false
  }

  async bind(place: ListenAddress): Promise<void> {
    this.address = await listenOn(this.#server, place, this.#logger)
  }

  get connections(): number {
    return this.#connections.size
  }

  accept(socket: Socket): void {
    if (this.#options.tls !== undefined) socket.allowHalfOpen = false
    this.#server.emit('connection', socket)
  }

  handleSocket(socket: Socket | TLSSocket, first?: Buffer): void {
    const { corsOf } = this.#options
    const limits = this.#limits
    const [logger, onBadRequest] = [this.#logger, this.#onBadRequest]
    const certificate = this.#certificateOf(socket)
    const begun = (connection: ManagedConnection) => {
      if (certificate !== undefined) this.#certified.add(connection, socket, certificate)
    }
    const shared = {
      handler: certificate === undefined ? this.#handler : certified(this.#handler),
      limits,
      logger,
      onBadRequest,
      corsOf,
      connections: this.#connections,
      boundsBodies: this.#options.boundsBodies,
      reader: this.#reader,
    }
    const http1 = (bytes?: Buffer) => begun(serveHttp1(socket, { ...shared, dates: this.#dates }, bytes))
    if (!this.#http2 || first !== undefined) http1(first)
    else if (!('encrypted' in socket)) {
      this.#pending.add(socket)
      const settled = (serve: (first?: Buffer) => void) => (first?: Buffer) => {
        serve(first)
        this.#pending.settle(socket)
      }
      const http2 = settled(bytes => serveHttp2(socket, shared, bytes))
      sniffPreface(socket, { ms: limits.headMs, http1: settled(http1), http2, logger })
    } else if (socket.alpnProtocol === 'h2') begun(serveHttp2(socket, shared))
    else http1()
  }

  /** OpenSSL may call a caller without a certificate `authorized`, too. */
  #certificateOf(socket: Socket | TLSSocket): X509Certificate | undefined {
    const isAsked = this.#options.tls?.requestCert === true
    return isAsked && 'authorized' in socket && socket.authorized ? socket.getPeerX509Certificate() : undefined
  }

  /** Its handshake began under other authorities. A caller with a valid certificate can connect again. */
  #isOutdated(socket: TLSSocket): boolean {
    return this.#pending.isOutdated(socket) && socket.getPeerX509Certificate() !== undefined
  }

  setTls(tls: TlsMaterial): void {
    if (!('setSecureContext' in this.#server)) throw new TypeError('this listener has no TLS')
    this.#server.setSecureContext(tlsDefaults(tls))
    staple(this.#server, tls)
    const before = this.#authorities
    this.#authorities = tls.ca
    if (!dropsAny(before, tls.ca)) return
    this.#certified.end()
    this.#pending.outdate()
  }

  async close({ graceMs = 10_000, last = false, onStop }: ListenerCloseOptions = {}): Promise<void> {
    checkDuration('graceMs', graceMs)
    const stop = async () => {
      await stopListening(this.#server, this.#options)
      await onStop?.()
    }
    await this.#connections.close(graceMs, last, stop)
    this.#closed = true
  }
}

/** Staples the response only to the certificate that it is for, and not to another that a server name selects. */
function staple(server: TlsServer, { cert, ocsp }: TlsMaterial): void {
  server.removeAllListeners('OCSPRequest')
  if (ocsp === undefined) return
  const ours = new X509Certificate(cert as string | Buffer).raw
  const guard = logGuard(noLogger, '')
  const give = guard((shown: Buffer, _issuer: Buffer, callback: (error: null, response: Buffer | null) => void) =>
    callback(null, ours.equals(shown) ? ocsp : null),
  )
  server.on('OCSPRequest', give)
}

function certified(handler: Handler): Handler {
  return (request, response) => {
    request.certified = true
    return handler(request, response)
  }
}

function tlsDefaults(tls: TlsMaterial): TlsOptions {
  if (tls.requestCert !== true) return { ...INTERMEDIATE, ...tls }
  return { ...INTERMEDIATE, ...tls, secureOptions: ASKING.secureOptions | (tls.secureOptions ?? 0) }
}

/** A caller that has already reset the connection no longer has an address. There is nobody to serve. */
function hasGone(socket: Socket): boolean {
  return socket.remoteAddress === undefined
}
