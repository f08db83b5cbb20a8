/** The tunnel server: the parts, put together. */
import type { Server as HttpServer } from 'node:http'
import { createServer as createNetServer, type Server as NetServer } from 'node:net'
import { Server as TlsServer } from 'node:tls'
import type { Dispatcher } from 'undici'
import type { ExchangeRecord } from '../protocol/exchange.ts'
import { parseCidrs } from '../protocol/forwarded.ts'
import { type Listener, listen } from '../protocol/listener.ts'
import { Authenticator, openKeys } from './auth/authenticator.ts'
import type { Revocation } from './auth/revocations.ts'
import { ControlEndpoint, type Refusal } from './control/endpoint.ts'
import type { RuntimeSession } from './control/runtime-session.ts'
import type { Directory } from './directory/directory.ts'
import { MemoryDirectory } from './directory/memory.ts'
import { Edge } from './edge/handler.ts'
import { Hold } from './edge/hold.ts'
import { Hosts } from './edge/hosts.ts'
import { Policies } from './edge/policies.ts'
import { recordOfBadRequest } from './edge/record.ts'
import { RuntimeDispatcher } from './embed/dispatcher.ts'
import { fetchRuntime } from './embed/fetch.ts'
import { mount } from './embed/mount.ts'
import type { CallOptions } from './embed/request.ts'
import { Events, type ServerEvents } from './events.ts'
import { Front } from './front.ts'
import type { Settings } from './options.ts'
import { Registry } from './registry.ts'
import { Sessions } from './sessions.ts'
import { listenOn } from './socket/listen.ts'
import { describeSession, type ServerStats, type SessionInfo, sumSessions } from './stats.ts'
import { loadTls, type TlsFiles, TlsKeeper, type TlsPair } from './tls.ts'

export interface Address {
  readonly host: string
  readonly port: number
}

const DEFAULT_GRACE_MS = 30_000
/** How long a client has to open another session before its old one gets no new exchanges. */
const MOVE_MS = 5000
/** Of callers, where they share their address with clients. */
const MAX_EDGE_CONNECTIONS = 10_000

/** A running tunnel server. Made by `createServer`. */
export class Server {
  readonly #settings: Settings
  readonly #directory: Directory
  readonly #events: Events<ServerEvents>
  readonly #authenticator: Authenticator
  readonly #registry: Registry<RuntimeSession>
  readonly #sessions: Sessions
  readonly #hosts: Hosts
  readonly #edge: Edge
  readonly #refused: Record<string, number> = {}
  readonly #keepers: TlsKeeper[] = []
  #control: ControlEndpoint | undefined
  #listener: Listener | undefined
  #front: NetServer | undefined
  #publicKeeper: TlsKeeper | undefined
  #controlKeeper: TlsKeeper | undefined
  #unmount: Array<() => void> = []
  #closing: Promise<void> | undefined
  /** Where callers arrive; undefined without a listener of its own. */
  publicAddress: Address | undefined
  /** Where clients dial in; the same as `publicAddress` when both share one; undefined when it is off. */
  controlAddress: Address | undefined

  /** @internal Use `createServer`. */
  static async start(settings: Settings, directory: Directory | undefined): Promise<Server> {
    const authenticator = new Authenticator(settings, await openKeys(settings, settings.logger))
    const server = new Server(settings, authenticator, directory ?? new MemoryDirectory())
    try {
      await server.#start()
      return server
    } catch (error) {
      await server.close({ graceMs: 0 })
      throw error
    }
  }

  private constructor(settings: Settings, authenticator: Authenticator, directory: Directory) {
    const { logger, limits } = settings
    const cors = settings.cors === undefined ? undefined : { origins: settings.cors.origins }
    const policies = new Policies(cors, limits.corsKeepMs, settings.clock)
    this.#settings = settings
    this.#directory = directory
    this.#authenticator = authenticator
    this.#events = new Events(error => logger.error({ err: error }, 'an event listener threw'))
    const hold = new Hold(settings.hold)
    this.#registry = new Registry({ directory, logger, onLive: runtime => hold.wake(runtime) })
    this.#sessions = new Sessions({
      settings,
      authenticator,
      registry: this.#registry,
      policies,
      hold,
      events: this.#events,
    })
    this.#hosts = new Hosts(settings.domains, settings.control?.hostName?.toLowerCase())
    this.#edge = new Edge({
      hosts: this.#hosts,
      registry: this.#registry,
      policies,
      trustedProxies: parseCidrs(settings.trustedProxies),
      healthPath: settings.healthPath,
      replayBytes: limits.replayBytes,
      replayTotalBytes: limits.replayTotalBytes,
      hold,
      responseHeadMs: limits.responseHeadMs,
      onExchange: this.#onExchange(),
    })
  }

  async #start(): Promise<void> {
    await this.#openControl()
    await this.#openPublic()
  }

  async #openControl(): Promise<void> {
    const { control } = this.#settings
    if (control === undefined) return
    const files = control.plaintext === true ? undefined : control.tls
    const pair = files === undefined ? undefined : await loadTls(files)
    this.#control = this.#createEndpoint(pair)
    if (files !== undefined) {
      this.#controlKeeper = this.#keep(files, fresh => this.#control!.setTls(fresh))
    }
    if (control.port === undefined) return
    this.controlAddress = await this.#control.listen(control.host ?? '127.0.0.1', control.port)
    this.#say('control', this.controlAddress)
  }

  #createEndpoint(tls: TlsPair | undefined): ControlEndpoint {
    return new ControlEndpoint({
      control: this.#settings.control!,
      tls,
      limits: this.#settings.limits,
      logger: this.#settings.logger,
      authenticate: (token, certificate) => this.#authenticator.authenticate(token, certificate),
      gate: identity => this.#sessions.gate(identity),
      onArrival: arrival => this.#sessions.arrive(arrival),
      onRefused: refusal => this.#onRefused(refusal),
    })
  }

  /** The embedder's hook: what it throws is its own affair. */
  #onExchange(): ((record: ExchangeRecord) => void) | undefined {
    const { onExchange, logger } = this.#settings
    if (onExchange === undefined) return undefined
    return record => {
      try {
        onExchange(record)
      } catch (error) {
        logger.error({ err: error }, 'onExchange threw')
      }
    }
  }

  #onRefused(refusal: Refusal): void {
    this.#refused[refusal.reason] = (this.#refused[refusal.reason] ?? 0) + 1
    const { reason, detail, requestId, address } = refusal
    this.#settings.logger.warn({ reason, detail, requestId, address }, 'handshake refused')
    this.#events.emit('refused', refusal)
  }

  async #openPublic(): Promise<void> {
    const options = this.#settings.public
    if (options === undefined) return
    const host = options.host ?? '127.0.0.1'
    const tls = options.tls === undefined ? undefined : await loadTls(options.tls)
    const shared = this.#settings.control?.hostName
    const { handler } = this.#edge
    const { logger } = this.#settings
    this.#listener = await listen({
      tls,
      handler,
      logger,
      limits: options.limits,
      onBadRequest: (error, caller) => this.#edge.onExchange?.(recordOfBadRequest(error, caller)),
      ...(shared === undefined ? { host, port: options.port } : {}),
    })
    if (options.tls !== undefined) this.#publicKeeper = this.#keep(options.tls, fresh => this.#listener!.setTls(fresh))
    this.publicAddress =
      shared === undefined ? this.#listener.address : await this.#openFront(shared, host, options.port)
    this.#say('public', this.publicAddress)
    if (this.controlAddress !== undefined || shared === undefined) return
    this.controlAddress = this.publicAddress
    this.#say('control', this.controlAddress)
  }

  /** One address for both: the server name decides. */
  async #openFront(controlName: string, host: string, port: number): Promise<Address> {
    const front = new Front({
      controlName: controlName.toLowerCase(),
      control: socket => this.#control!.accept(socket, true),
      edge: socket => this.#listener!.accept(socket),
    })
    const options = { pauseOnConnect: true, noDelay: true, allowHalfOpen: true }
    this.#front = createNetServer(options, socket => front.accept(socket))
    this.#front.maxConnections = MAX_EDGE_CONNECTIONS + this.#settings.limits.sessions
    return listenOn(this.#front, host, port, this.#settings.logger)
  }

  #keep(files: TlsFiles, apply: (pair: TlsPair) => void): TlsKeeper {
    const keeper = new TlsKeeper(files, apply, this.#settings.logger)
    this.#keepers.push(keeper)
    return keeper
  }

  #say(name: string, address: Address): void {
    const host = address.host.includes(':') ? `[${address.host}]` : address.host
    this.#settings.logger.info({ name, address: `${host}:${address.port}` }, 'listening')
  }

  on<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this {
    this.#events.on(name, listener)
    return this
  }

  off<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this {
    this.#events.off(name, listener)
    return this
  }

  /**
   * Calls into a runtime. Redirects are not followed; our own refusals are answers too (see the header
   * `sallyport-error`). Rejects only when an answer broke off before its head, or on an aborted signal.
   */
  fetch(runtime: string, request: Request | string | URL, options: CallOptions = {}): Promise<Response> {
    const made = typeof request === 'string' || request instanceof URL ? new Request(request) : request
    return fetchRuntime(this.#edge, runtime, made, options)
  }

  /** An undici Dispatcher whose requests go into `runtime`, whatever their origin says. */
  dispatcher(runtime: string, options: CallOptions = {}): Dispatcher {
    return new RuntimeDispatcher(this.#edge, runtime, options)
  }

  /**
   * Serves our hosts, and the control endpoint's path where `control` is not off, on a server of the embedder's. What
   * is not ours goes to the listeners that the server has now. Returns a function that takes it back.
   */
  attach(httpServer: HttpServer): () => void {
    const control = this.#control
    const encrypted = httpServer instanceof TlsServer || this.#settings.control?.plaintext === true
    if (control !== undefined && !encrypted) {
      throw new TypeError('the control endpoint needs TLS: attach to an https.Server, or set control.plaintext')
    }
    const unmount = mount(httpServer, {
      handler: this.#edge.handler,
      serves: authority => this.#hosts.match(authority).kind !== 'unknown',
      control: control === undefined ? undefined : (request, socket, head) => control.upgrade(request, socket, head),
    })
    this.#unmount.push(unmount)
    return unmount
  }

  /** Whether it can serve: it listens, has a key set to judge clients by, and is not closing. */
  ready(): boolean {
    return this.#closing === undefined && this.#authenticator.ready
  }

  sessions(): SessionInfo[] {
    return [...this.#registry.members()].map(session => describeSession(session, this.#settings.replica))
  }

  stats(): ServerStats {
    const totals = sumSessions(this.#sessions.all)
    return {
      replica: this.#settings.replica,
      runtimes: this.#registry.runtimes,
      sessions: this.#registry.sessions,
      streams: totals.streams,
      exchanges: totals.exchanges,
      bufferedBytes: totals.bufferedBytes,
      replayBytes: this.#edge.replayBudget.used,
      held: this.#edge.hold.requests,
      heldBytes: this.#edge.hold.bytes,
      heldOutcomes: { ...this.#edge.hold.outcomes },
      sessionBytesIn: this.#sessions.pastBytesIn + totals.bytesIn,
      sessionBytesOut: this.#sessions.pastBytesOut + totals.bytesOut,
      roundTripsMs: totals.roundTripsMs,
      handshakesWaiting: this.#control?.waiting ?? 0,
      handshakesRefused: { ...this.#refused },
      sessionsOpened: this.#sessions.opened,
      sessionsEnded: this.#sessions.ended,
    }
  }

  /** Ends the sessions that `rule` covers at once, and refuses such tokens from now on. Returns how many it ended. */
  revoke(rule: Revocation): number {
    return this.#sessions.revoke(rule)
  }

  /**
   * Asks the clients of a runtime, or one session, to leave and come again: each has `afterMs` (default 5,000) for its new
   * session, and `graceMs` (default 30,000) for what is open. Returns how many were asked.
   */
  drain(
    what: { runtime?: string; session?: string },
    { reason = 'asked to leave', afterMs = MOVE_MS, graceMs = DEFAULT_GRACE_MS } = {},
  ): number {
    let count = 0
    for (const session of this.#sessions.all) {
      const { runtime = session.runtime, session: id = session.id } = what
      if (session.runtime !== runtime || session.id !== id) continue
      session.drain(reason, afterMs, graceMs)
      count++
    }
    return count
  }

  /**
   * Reads the certificates again, or takes new ones, for connections from now on. Resolves to false if any was bad:
   * then the old one stays.
   */
  async reload(fresh: { publicTls?: TlsFiles; controlTls?: TlsFiles } = {}): Promise<boolean> {
    const results = await Promise.all([
      this.#publicKeeper?.reload(fresh.publicTls),
      this.#controlKeeper?.reload(fresh.controlTls),
    ])
    return !results.includes(false)
  }

  /**
   * Takes no new connections, asks the clients to leave, lets exchanges end within `graceMs` (default 30,000), and
   * closes. `ready()` is false from its call on.
   */
  close({ graceMs = DEFAULT_GRACE_MS }: { graceMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(graceMs)
    return this.#closing
  }

  async #close(graceMs: number): Promise<void> {
    for (const keeper of this.#keepers) keeper.close()
    this.#front?.close()
    this.#control?.stop()
    await Promise.all([this.#listener?.close({ graceMs }), this.#sessions.drain('the server stops', graceMs)])
    for (const unmount of this.#unmount) unmount()
    this.#sessions.close()
    this.#control?.close()
    this.#authenticator.close()
    await this.#directory.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}
