/** A running client: its connections, their sessions, the token and the target. */

import { isDeepStrictEqual } from 'node:util'
import { type BufferBudget, createBufferBudget } from '../protocol/base/budget.ts'
import { formatDuration } from '../protocol/base/durations.ts'
import { SallyportError } from '../protocol/base/errors.ts'
import { Events } from '../protocol/base/events.ts'
import { graceOf } from '../protocol/base/grace.ts'
import { detached, type Guard, hook, logGuard, safeLogger } from '../protocol/base/guard.ts'
import { TokenBucket } from '../protocol/base/token-bucket.ts'
import { MAX_DURATION_MS, type Notice } from '../protocol/wire/control.ts'
import { webSocketTransport } from '../protocol/wire/transport-websocket.ts'
import { Causes } from './causes.ts'
import { readOwnClaims } from './claims.ts'
import { Backoff } from './dial/backoff.ts'
import type { Dialled } from './dial/dial.ts'
import { Dialler } from './dial/dialler.ts'
import { NetworkWatch } from './dial/network.ts'
import { OpenWebSockets } from './dial/open-websockets.ts'
import { Exchanges } from './exchanges.ts'
import { RingInspector } from './inspect/inspector.ts'
import {
  type Announcement,
  type ClientOptions,
  checkHello,
  checkOptions,
  checkOptionTypes,
  type ResolvedClientOptions,
  readInboxKeys,
} from './options.ts'
import { SeenExchanges } from './seen-exchanges.ts'
import { ClientSession } from './session.ts'
import { SessionKeeper, type SessionKeeperOwner, type SessionListener } from './session-keeper.ts'
import { TargetChecks } from './target-checks.ts'
import { type OpenTarget, openTarget } from './targets/index.ts'
import { TokenKeeper } from './token.ts'
import type { CloseOptions, Tunnel, TunnelEvents, TunnelStats } from './tunnel.ts'

const CLOSING = 'the client is closing'
/** The server closes WebSockets this long before the end of a grace, but at most a fifth of the grace before it. */
const FAREWELL_MS = 1000

/** Log lines that a server can cause: in a burst, and per second in the long run. */
const SERVER_LINES_BURST = 20
const SERVER_LINES_PER_SECOND = 0.5

const NOT_STORED =
  'routes have an inbox, but there is no key to seal webhooks for (--inbox.key.file): the server does not store them, unless it has --inbox.plaintext'

const NO_STANDING =
  'the server cannot register this instance yet, as while its directory is away: it is not ready, and gets no traffic, until then'

export class Client implements Tunnel, SessionKeeperOwner {
  readonly #options: ClientOptions
  readonly #settings: ResolvedClientOptions
  readonly #target: OpenTarget
  readonly #checks: TargetChecks
  readonly #exchanges: Exchanges
  readonly inspector: RingInspector | undefined
  readonly #tokens: TokenKeeper
  readonly #dialler: Dialler
  readonly #network: NetworkWatch
  readonly #events: Events<TunnelEvents>
  readonly #connections: SessionKeeper[]
  /** All sessions, including those that drain, with the index of their connection. */
  readonly #sessions = new Map<ClientSession, number>()
  readonly #sockets: OpenWebSockets
  /**
   * By connection. A server may make it open more sessions by asking us to leave others, but together they hold no more than two may: one
   * that is left and the one that replaces it. A lying server takes nothing from other connections.
   */
  readonly #budgets: readonly BufferBudget[]
  /** Guards work outside the sessions. A failure is logged and ends nothing. */
  readonly guard: Guard
  readonly #stop = new AbortController()
  readonly #first = Promise.withResolvers<void>()
  /** Limits the log lines that a server can cause. */
  readonly #serverLines = new TokenBucket(SERVER_LINES_BURST, SERVER_LINES_PER_SECOND)
  #runtime = ''
  #url: string | undefined
  #epoch = 0
  #active = false
  /** The last valid rules of the target, as sent in `hello`. */
  #published: Announcement = { cors: [] }
  /** What each session was opened with, and cannot be told later: inbox rules, as text, and the certificate that its token names. */
  readonly #openedWith = new WeakMap<ClientSession, { inbox: string; certificate: string | undefined }>()
  /** By connection, the last session that came into service. */
  readonly #latest = new Map<number, ClientSession>()
  #reconnects = 0
  readonly #causes = new Causes()
  #closing: Promise<void> | undefined
  /** When the grace ends. A later call to `close` may bring it forward. */
  #closesAt = Number.POSITIVE_INFINITY

  /** Starts connecting at once. Throws TypeError for options that can never work. */
  constructor(options: ClientOptions) {
    checkOptionTypes(options)
    this.#options = options
    this.#target = openTarget(options.target, safeLogger(options.logger))
    this.#checks = new TargetChecks(async ms => (await this.#target.check?.(ms)) ?? { targets: [], more: 0 })
    this.#settings = checkOptions(options, this.#announcement())
    this.#events = new Events(this.logger)
    this.guard = logGuard(this.logger, 'the client failed')
    this.#sockets = new OpenWebSockets(this.guard)
    this.#events.onAll(options.on ?? {})
    const { inspect = 'off' } = options
    this.inspector = inspect === 'off' ? undefined : new RingInspector(inspect, this.logger)
    const { connections, limits } = this.#settings
    this.#budgets = Array.from({ length: connections }, () => createBufferBudget(2 * limits.sessionBufferBytes))
    this.#exchanges = new Exchanges({
      inspect: this.inspector?.layer,
      target: this.#target.handler,
      layers: options.layers ?? [],
      inboxKeys: readInboxKeys(options.inboxKeys),
      seen: new SeenExchanges(),
      cors: this.#settings.cors,
      onExchange: hook('onExchange', options.onExchange, this.logger),
      logger: this.logger,
    })
    this.#tokens = new TokenKeeper({
      source: options.token,
      onFresh: (token, before) => this.#freshToken(token, before),
      logger: this.logger,
    })
    this.#dialler = new Dialler(options, this.#settings, this.#tokens)
    this.#network = new NetworkWatch({
      guard: this.guard,
      onChange: (reason, lost) => this.#networkChanged(reason, lost),
      onSetBack: byMs => this.#tokens.setBack(byMs),
    })
    this.#publish()
    this.#first.promise.catch(() => {})
    this.#connections = Array.from({ length: this.#settings.connections }, (_, index) => {
      return new SessionKeeper(index, this, new Backoff(options.backoff, this.#settings.random))
    })
    for (const connection of this.#connections) detached(this.logger, 'a connection ended', connection.run())
  }

  get signal(): AbortSignal {
    return this.#stop.signal
  }

  get logger() {
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

  get url(): string | undefined {
    return this.#url
  }

  ready(): boolean {
    return !this.signal.aborted && this.#live.some(({ hasStanding }) => hasStanding)
  }

  /** The server may not know the instance yet. */
  get #live(): ClientSession[] {
    return [...this.#sessions.keys()].filter(({ state }) => state === 'ready')
  }

  /** Whether the server can still give us exchanges, perhaps only on a session that it drains. */
  get #isServed(): boolean {
    return [...this.#sessions.keys()].some(({ state }) => state === 'ready' || state === 'draining')
  }

  setToken(token: string): void {
    this.#tokens.set(token)
    this.#renew()
    this.#retry()
  }

  async refreshToken(): Promise<void> {
    await this.#tokens.refresh()
  }

  setTrust(trust: Pick<ClientOptions, 'ca' | 'tls'>): void {
    this.#dialler.setTrust(trust)
    this.#renew()
    this.#retry()
  }

  close(options: CloseOptions = {}): Promise<void> {
    const graceMs = graceOf(options, 30_000, MAX_DURATION_MS)
    const isNearer = performance.now() + graceMs < this.#closesAt
    if (isNearer) this.#closesAt = performance.now() + graceMs
    if (this.#closing !== undefined && isNearer)
      detached(this.logger, 'the grace could not be shortened', this.#drain(Math.floor(graceMs)))
    this.#closing ??= this.#close(Math.floor(graceMs))
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
      active: this.#active && this.#isServed,
      ready: this.ready(),
      sessions: [...this.#sessions].map(([session, connection]) => session.stats(connection)),
      connections: this.#connections.map(({ index, attempts, lastError, lastErrorMs }) => ({
        connection: index,
        attempts,
        lastError,
        lastErrorMs,
      })),
      reconnects: this.#reconnects,
      exchanges: { live: this.#exchanges.live, total: this.#exchanges.total },
      ...this.#exchanges.bodyBytes,
      tokenExpiresMs: this.#tokens.inForceMs,
    }
  }

  // For the connections (SessionKeeperOwner).

  get machines(): number {
    return this.#dialler.machines
  }

  dial(turn: number): Promise<Dialled> {
    return this.#dialler.dial(turn, this.signal)
  }

  hasReplica(replica: string, connection: number): boolean {
    for (const [session, other] of this.#sessions) {
      if (other !== connection && session.replica === replica && session.inService) return true
    }
    return false
  }

  isAlone(session: ClientSession): boolean {
    const connection = this.#sessions.get(session)
    return [...this.#sessions.values()].filter(index => index === connection).length === 1
  }

  #announcement(): Announcement {
    const { cors } = this.#options
    return { ...this.#target.announcement(), ...(cors !== undefined && { cors: [...cors] }) }
  }

  /** The rules of the target for `hello`. If they changed and `hello` cannot carry the new ones, the last valid rules are used. */
  #publish(): Announcement {
    try {
      const announcement = this.#announcement()
      checkHello(this.#options, announcement)
      this.#warnIfNotStored(announcement)
      this.#published = announcement
    } catch (error) {
      this.logger.error({ err: error }, 'the rules of the target cannot be published; the old ones stay in force')
    }
    return this.#published
  }

  /** Without a key, the server does not keep webhooks. Says so once for the same rules. */
  #warnIfNotStored({ inbox = [] }: Announcement): void {
    const routes = inbox.filter(({ mode }) => mode !== 'off').map(({ route }) => route)
    if (routes.length === 0 || this.#settings.hello.inboxKey !== undefined) return
    if (!isDeepStrictEqual(inbox, this.#published.inbox)) this.logger.warn({ routes }, NOT_STORED)
  }

  republish(): void {
    this.#publish()
    this.#renew()
  }

  outdated(session: ClientSession): string | undefined {
    if (!this.#takes(session, this.#tokens.latest)) return 'the token is bound to another certificate'
    const { inbox } = this.#openedWith.get(session) ?? {}
    return inbox === JSON.stringify(this.#published.inbox) ? undefined : 'the inbox rules have changed'
  }

  /** A session keeps the certificate that it began with, so the server would refuse a token that is bound to another one. */
  #takes(session: ClientSession, token = ''): boolean {
    const certificate = readOwnClaims(token)?.certificate
    return certificate === undefined || certificate === this.#openedWith.get(session)?.certificate
  }

  openSession({ socket, tcp, token }: Dialled, connection: number, listener: SessionListener): ClientSession {
    this.#sockets.add(socket)
    const hello = { ...this.#settings.hello, ...this.#publish(), lastEpoch: this.#epoch, connection }
    const session: ClientSession = new ClientSession(webSocketTransport(socket), tcp.localAddress, hello, {
      logger: this.logger,
      session: { ...this.#options.limits, processBudget: this.#budgets[connection] },
      tracing: this.#settings.tracing,
      accept: (stream, view) => this.#exchanges.accept(stream, view, this.#isFull(connection)),
      onStanding: (epoch, active) => this.#standing(epoch, active),
      onReauth: (which, token, accepted, requestId) =>
        this.#reauthenticated(which, connection, token, accepted, requestId),
      onNotice: (which, notice) => this.#notice(which, notice),
      onCheck: (which, id) => detached(this.logger, 'the targets could not be checked', this.#check(which, id)),
      onWelcome: which => this.#isFor(token, which) && listener.onWelcome(which),
      onReady: which => {
        listener.onReady(which)
        // A fresh token may have arrived while this session was being opened.
        const { latest } = this.#tokens
        if (latest !== undefined && latest !== token && this.#takes(which, latest)) which.reauth(latest)
      },
      onLeave: (which, reason) => {
        this.logger.info({ session: which.id, connection, reason }, 'the server is draining the session')
        this.#events.emit('draining', { connection, session: which.id, reason })
        listener.onLeave(which, reason)
      },
      onClosed: (which, reason) => {
        this.#sessions.delete(which)
        listener.onClosed(which, reason)
      },
    })
    const inbox = JSON.stringify(this.#published.inbox)
    this.#openedWith.set(session, { inbox, certificate: readOwnClaims(token)?.certificate })
    if (session.state !== 'closed') this.#sessions.set(session, connection)
    return session
  }

  /** Sessions that are left may together be as full as the one in service. */
  #isFull(connection: number): boolean {
    let streams = 0
    for (const [session, index] of this.#sessions) if (index === connection) streams += session.streams
    return streams > 2 * this.#settings.limits.maxStreams
  }

  /** The server reads our runtime from the token, and so can we. We leave a server that takes us for a different runtime. */
  #isFor(token: string, session: ClientSession): boolean {
    if (readOwnClaims(token)?.names.has(session.runtime) !== false) return true
    session.destroy(`the server took us for the runtime "${session.runtime}", which the token does not name`)
    return false
  }

  /** The limit is shared by all sessions, since a server can make us open any number of them. */
  #notice(session: ClientSession, { code, message }: Notice): void {
    if (this.#serverLines.take(performance.now())) this.logger.warn({ session: session.id, code }, message)
  }

  async #check(session: ClientSession, id: number): Promise<void> {
    if (this.#serverLines.take(performance.now()))
      this.logger.info({ session: session.id }, 'the server asks which targets accept connections')
    session.checked({ id, ...(await this.#checks.ask()) })
  }

  onConnected(session: ClientSession, connection: number): void {
    this.#runtime = session.runtime
    this.#url = session.url !== undefined && /^https?:/.test(session.url) ? session.url : undefined
    const { id, replica, runtime } = session
    // One that came too late to be of use is left at once.
    if (session.inService) {
      // A session that was left for another one is not lost.
      if (this.#latest.get(connection)?.state === 'closed') this.#reconnects++
      this.#latest.set(connection, session)
    }
    this.#causes.clear()
    this.logger.info({ session: id, connection, replica, runtime }, 'connected')
    if (!session.hasStanding) this.logger.warn({ session: id, connection }, NO_STANDING)
    this.#events.emit('connected', { connection, session: id, replica, runtime })
    this.#first.resolve()
  }

  onDisconnected(session: ClientSession, connection: number, reason: string): void {
    this.logger.info({ session: session.id, connection, reason }, 'disconnected')
    this.#events.emit('disconnected', { connection, session: session.id, reason })
  }

  onReconnecting(connection: number, inMs: number, reason: string): void {
    const what = this.#live.length > 0 ? 'a session is missing' : 'no session'
    this.logger[this.#isNews(reason) ? 'warn' : 'debug'](
      { connection, inMs: Math.round(inMs), reason },
      `${what}: ${reason}; next attempt in ${formatDuration(inMs)}`,
    )
    this.#events.emit('reconnecting', { connection, inMs, reason })
  }

  onRefused(connection: number, reason: string, status: number, requestId: string | undefined): void {
    const level = this.#isNews(reason) ? 'error' : 'debug'
    this.logger[level]({ connection, status, requestId, reason }, `the server refused this client: ${reason}`)
    this.#events.emit('refused', { connection, reason, status, requestId })
  }

  /** A cause is told again when it takes the last session. */
  #isNews(reason: string): boolean {
    return this.#causes.isNews(reason, performance.now(), String(this.#live.length > 0))
  }

  // Token, network and shutdown.

  #freshToken(token: string, before: string): void {
    for (const session of this.#sessions.keys()) if (this.#takes(session, token)) session.reauth(token)
    // Another token for the same certificate waits with the connections, which try less and less often.
    if (readOwnClaims(token)?.certificate !== readOwnClaims(before)?.certificate) this.#renew()
    this.#retry()
  }

  #reauthenticated(
    session: ClientSession,
    connection: number,
    token: string,
    accepted: boolean,
    requestId: string | undefined,
  ): void {
    if (accepted) {
      this.#tokens.accepted(token)
      this.logger.info({ session: session.id, expiresMs: this.#tokens.expiresMs }, 'the session has a fresh token')
      return
    }
    this.#tokens.refused(token)
    this.onRefused(connection, 'the server did not accept the fresh token; the old one stays in force', 401, requestId)
  }

  #standing(epoch: number, active: boolean): void {
    if (epoch < this.#epoch || (epoch === this.#epoch && active === this.#active)) return
    this.#epoch = epoch
    this.#active = active
    if (this.#serverLines.take(performance.now()))
      this.logger.info({ epoch, active }, active ? 'this instance is active' : 'this instance is a standby')
    this.#events.emit('standing', { epoch, active })
  }

  /** Replaces the sessions that are outdated. */
  #renew(): void {
    for (const connection of this.#connections) connection.renew()
  }

  #retry(): void {
    for (const connection of this.#connections) connection.retry()
  }

  /** After a network change, open sessions must prove that they still work, and connections that wait for the network retry. */
  #networkChanged(reason: string, lost: ReadonlySet<string>): void {
    this.logger.info({ reason }, `${reason}; testing the sessions`)
    this.#tokens.look()
    for (const session of this.#sessions.keys()) {
      if (lost.has(session.localAddress ?? '')) session.destroy(`${reason}: the local address is gone`)
      else session.test(reason)
    }
    for (const connection of this.#connections) connection.networkChanged()
  }

  #underWay() {
    const { live, webSockets } = this.#exchanges
    return { exchanges: live - webSockets, webSockets }
  }

  #warnOfLate(): void {
    const late = this.#underWay()
    if (late.exchanges + late.webSockets === 0) return
    this.logger.warn(late, 'the grace is over: WebSockets are closed (1001), other exchanges are cut')
  }

  async #drain(graceMs: number): Promise<void> {
    await Promise.all([...this.#sessions.keys()].map(session => session.drain(CLOSING, graceMs)))
  }

  async #close(graceMs: number): Promise<void> {
    this.#stop.abort(new SallyportError('runtime-offline', CLOSING))
    this.#first.reject(new SallyportError('runtime-offline', 'the tunnel was closed before its first session'))
    this.logger.info({ ...this.#underWay(), graceMs }, 'draining: no new exchanges; open ones may finish')
    const grace = setTimeout(
      this.guard(() => this.#warnOfLate()),
      graceMs - Math.min(FAREWELL_MS, graceMs / 5),
    )
    await this.#drain(graceMs)
    // Until then, sessions need fresh tokens: the server ends them with their token, and the grace may be longer.
    this.#tokens.close()
    this.#network.close()
    clearTimeout(grace)
    await this.#sockets.closed()
    this.#exchanges.close()
    this.inspector?.close()
    this.#target.close()
  }
}
