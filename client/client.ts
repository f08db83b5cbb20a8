/** A running client: its connections, their sessions, the token, the target. */
import type { SecureContext } from 'node:tls'
import type { WebSocket } from 'ws'
import { SallyportError } from '../protocol/errors.ts'
import { noLogger } from '../protocol/log.ts'
import { webSocketTransport } from '../protocol/transport-websocket.ts'
import { Backoff } from './backoff.ts'
import { BegunExchanges } from './begun.ts'
import { Connection, type ConnectionOwner, type SessionListener, Unreachable } from './connection.ts'
import { DialError, dial } from './dial.ts'
import { spoken } from './durations.ts'
import { Events } from './events.ts'
import { Exchanges } from './exchanges.ts'
import { type DialContext, explain, isRefusal } from './explain.ts'
import { type ClientOptions, checkOptions, type Settings } from './options.ts'
import { chooseProxy, type OutboundProxy } from './proxy.ts'
import { ClientSession } from './session.ts'
import { type OpenTarget, openTarget } from './targets/index.ts'
import { TokenKeeper } from './token.ts'
import { createTrust } from './trust.ts'
import type { CloseOptions, SessionStats, Tunnel, TunnelEvents, TunnelStats } from './tunnel.ts'

const CLOSED = 'the client closes'
/** How long a server may take to close its side. */
const CLOSE_MS = 2000

export class Client implements Tunnel, ConnectionOwner {
  readonly #options: ClientOptions
  readonly #settings: Settings
  #trust: SecureContext
  readonly #target: OpenTarget
  readonly #exchanges: Exchanges
  readonly #tokens: TokenKeeper
  readonly #events: Events<TunnelEvents>
  readonly #connections: Connection[]
  /** Also those that drain; the index of their connection beside them. */
  readonly #sessions = new Map<ClientSession, number>()
  readonly #sockets = new Set<WebSocket>()
  readonly #stop = new AbortController()
  readonly #first = Promise.withResolvers<void>()
  #runtime = ''
  #epoch = 0
  #active = false
  /** Connections that had a session in service. */
  readonly #served = new Set<number>()
  #reconnects = 0
  #closing: Promise<void> | undefined
  #socketsGone: (() => void) | undefined

  /** Begins at once. Throws TypeError. */
  constructor(options: ClientOptions) {
    this.#options = options
    this.#target = openTarget(options.target, options.logger ?? noLogger)
    this.#settings = checkOptions(options, this.#target.cors())
    this.#trust = trustOf(options)
    this.#events = new Events(error => this.#logger.error({ error: String(error) }, 'a listener threw'))
    this.#events.onAll(options.on ?? {})
    this.#exchanges = new Exchanges({
      handler: this.#target.handler,
      begun: new BegunExchanges(),
      cors: this.#settings.cors,
      onExchange: options.onExchange,
      logger: this.#logger,
    })
    this.#tokens = new TokenKeeper({
      source: options.token,
      onFresh: token => this.#freshToken(token),
      logger: this.#logger,
    })
    this.#first.promise.catch(() => {})
    this.#connections = Array.from({ length: this.#settings.connections }, (_, index) => {
      return new Connection(index, this, new Backoff(options.backoff, this.#settings.random))
    })
    for (const connection of this.#connections) void connection.run()
  }

  get signal(): AbortSignal {
    return this.#stop.signal
  }

  get #logger() {
    return this.#settings.logger
  }

  on<Name extends keyof TunnelEvents>(name: Name, listener: (event: TunnelEvents[Name]) => void): void {
    this.#events.on(name, listener)
  }

  off<Name extends keyof TunnelEvents>(name: Name, listener: (event: TunnelEvents[Name]) => void): void {
    this.#events.off(name, listener)
  }

  connected(): Promise<void> {
    return this.#first.promise
  }

  ready(): boolean {
    if (this.signal.aborted) return false
    for (const session of this.#sessions.keys()) if (session.state === 'ready') return true
    return false
  }

  setToken(token: string): void {
    this.#tokens.set(token)
    this.#retry()
  }

  async refreshToken(): Promise<void> {
    await this.#tokens.refresh()
  }

  setTrust({ ca, tls }: Pick<ClientOptions, 'ca' | 'tls'>): void {
    this.#trust = trustOf({ ...this.#options, ca, tls })
    this.#retry()
  }

  close(options: CloseOptions = {}): Promise<void> {
    this.#closing ??= this.#close(options.graceMs ?? 30_000)
    return this.#closing
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  stats(): TunnelStats {
    return {
      instance: this.#settings.hello.instance,
      runtime: this.#runtime,
      epoch: this.#epoch,
      active: this.#active,
      ready: this.ready(),
      sessions: [...this.#sessions].map(([session, connection]) => sessionStats(session, connection)),
      connections: this.#connections.map(({ index, attempts, lastError }) => ({
        connection: index,
        attempts,
        lastError,
      })),
      reconnects: this.#reconnects,
      exchanges: { live: this.#exchanges.live, total: this.#exchanges.total },
      tokenExpiresMs: this.#tokens.expiresMs,
    }
  }

  // What the connections ask for.

  async dial(connection: number, attempt: number): Promise<WebSocket> {
    const { servers, handshakeTimeoutMs } = this.#settings
    const turn = connection + attempt
    const server = servers[turn % servers.length]!
    const token = await this.#token()
    const proxy = chooseProxy(server, this.#options.proxy, process.env)
    try {
      const { socket, dateMs } = await dial({
        server,
        token,
        trust: this.#trust,
        proxy,
        timeoutMs: handshakeTimeoutMs,
        turn,
        lookup: this.#options.lookup,
        signal: this.signal,
      })
      if (dateMs !== undefined) this.#tokens.serverTime(dateMs)
      return socket
    } catch (error) {
      throw this.#unreachable(error, this.#context(server, token, proxy))
    }
  }

  async #token(): Promise<string> {
    try {
      return await this.#tokens.get()
    } catch (cause) {
      throw new Unreachable(`there is no token: ${messageOf(cause)}`, undefined, { cause })
    }
  }

  #context(server: URL, token: string, proxy: OutboundProxy | undefined): DialContext {
    return {
      server,
      token,
      audience: this.#settings.audience,
      nowMs: Date.now(),
      proxy: proxy && { address: `${proxy.host}:${proxy.port}`, credentials: proxy.authorization !== undefined },
      clientCertificate: this.#options.tls !== undefined,
    }
  }

  #unreachable(error: unknown, context: DialContext): Unreachable {
    if (!(error instanceof DialError)) return new Unreachable(messageOf(error), undefined, { cause: error })
    const { failure } = error
    const reason = explain(failure, context)
    if (!isRefusal(failure)) return new Unreachable(reason, undefined, { cause: error })
    const answer = failure.kind === 'answer' ? failure : { status: 101, requestId: undefined, dateMs: undefined }
    if (answer.dateMs !== undefined) this.#tokens.serverTime(answer.dateMs)
    if (answer.status === 401) this.#tokens.refused()
    return new Unreachable(reason, { status: answer.status, requestId: answer.requestId }, { cause: error })
  }

  openSession(socket: WebSocket, connection: number, listener: SessionListener): ClientSession {
    this.#sockets.add(socket)
    socket.once('close', () => {
      this.#sockets.delete(socket)
      if (this.#sockets.size === 0) this.#socketsGone?.()
    })
    const cors = [...(this.#options.cors ?? this.#target.cors())]
    const hello = { ...this.#settings.hello, cors, lastEpoch: this.#epoch, connection }
    const session: ClientSession = new ClientSession(webSocketTransport(socket), hello, {
      logger: this.#logger,
      session: this.#options.limits ?? {},
      accept: (stream, view) => this.#exchanges.accept(stream, view),
      onStanding: (epoch, active) => this.#standing(epoch, active),
      onReauth: (which, accepted, requestId) => this.#reauthenticated(which, connection, accepted, requestId),
      onReady: listener.onReady,
      onLeave: (which, reason) => {
        this.#logger.info({ session: which.id, connection, reason }, 'the server drains the session')
        listener.onLeave(which, reason)
      },
      onClosed: (which, reason) => {
        this.#sessions.delete(which)
        listener.onClosed(which, reason)
      },
    })
    if (session.state !== 'closed') this.#sessions.set(session, connection)
    return session
  }

  onConnected(session: ClientSession, connection: number): void {
    this.#runtime = session.runtime
    const { id, replica, runtime } = session
    if (this.#served.has(connection)) this.#reconnects++
    this.#served.add(connection)
    this.#logger.info({ session: id, connection, replica, runtime }, 'connected')
    this.#events.emit('connected', { connection, session: id, replica, runtime })
    this.#first.resolve()
  }

  onDisconnected(session: ClientSession, connection: number, reason: string): void {
    this.#logger.info({ session: session.id, connection, reason }, 'disconnected')
    this.#events.emit('disconnected', { connection, session: session.id, reason })
  }

  onReconnecting(connection: number, inMs: number, reason: string): void {
    this.#logger.warn(
      { connection, inMs: Math.round(inMs), reason },
      `no session: ${reason}; next attempt in ${spoken(inMs)}`,
    )
    this.#events.emit('reconnecting', { connection, inMs, reason })
  }

  onRefused(connection: number, reason: string, status: number, requestId: string | undefined): void {
    this.#logger.error({ connection, status, requestId, reason }, `not let in: ${reason}`)
    this.#events.emit('refused', { connection, reason, status, requestId })
  }

  // The token, and the end.

  #freshToken(token: string): void {
    for (const session of this.#sessions.keys()) session.reauth(token)
    this.#retry()
  }

  #reauthenticated(session: ClientSession, connection: number, accepted: boolean, requestId: string | undefined): void {
    if (accepted) {
      this.#logger.info({ session: session.id, expiresMs: this.#tokens.expiresMs }, 'the session has a fresh token')
      return
    }
    this.#tokens.refused()
    this.onRefused(connection, 'the server did not take the fresh token; the old one stays in force', 401, requestId)
  }

  #standing(epoch: number, active: boolean): void {
    if (epoch < this.#epoch || (epoch === this.#epoch && active === this.#active)) return
    this.#epoch = epoch
    this.#active = active
    this.#logger.info({ epoch, active }, active ? 'this instance is active' : 'this instance stands by')
  }

  #retry(): void {
    for (const connection of this.#connections) connection.retry()
  }

  /** A server that is gone answers no Close frame; it gets a moment. */
  async #closeSockets(): Promise<void> {
    if (this.#sockets.size === 0) return
    const gone = new Promise<void>(resolve => {
      this.#socketsGone = resolve
    })
    const timer = setTimeout(() => {
      for (const socket of this.#sockets) socket.terminate()
    }, CLOSE_MS)
    await gone
    clearTimeout(timer)
  }

  async #close(graceMs: number): Promise<void> {
    this.#stop.abort(new SallyportError('runtime-offline', CLOSED))
    this.#first.reject(new SallyportError('runtime-offline', 'the tunnel was closed before its first session'))
    this.#tokens.close()
    await Promise.all([...this.#sessions.keys()].map(session => session.drain(CLOSED, graceMs)))
    await this.#closeSockets()
    this.#exchanges.close()
    this.#target.close()
  }
}

function trustOf({ ca, caOnly, tls, tlsMin }: ClientOptions): SecureContext {
  return createTrust({ ca, caOnly, tls, minVersion: tlsMin })
}

function sessionStats(session: ClientSession, connection: number): SessionStats {
  const { yamux } = session
  return {
    connection,
    session: session.id,
    replica: session.replica,
    peer: yamux.peer,
    state: session.state,
    openedMs: session.openedMs,
    rttMs: yamux.rttMs,
    streams: yamux.streams,
    bufferedBytes: yamux.bufferedBytes,
    bytesIn: yamux.bytesIn,
    bytesOut: yamux.bytesOut,
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
