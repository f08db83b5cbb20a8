/** The tunnel server, which ties the parts together. */
import { once } from 'node:events'
import type { Server as HttpServer } from 'node:http'
import { Server as TlsServer } from 'node:tls'
import type { Dispatcher } from 'undici'
import { parseCidrs } from '../protocol/base/address.ts'
import { Events } from '../protocol/base/events.ts'
import { type GraceOptions, graceOf } from '../protocol/base/grace.ts'
import { detached } from '../protocol/base/guard.ts'
import { demand } from '../protocol/base/limit.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { ReplayBudget } from '../protocol/base/replay-budget.ts'
import { patienceOf } from '../protocol/http/connection-set.ts'
import { mount } from '../protocol/http/http1/mount.ts'
import { BodyBytes, recordRefused } from '../protocol/http/record.ts'
import { CONNECT_PATH, MAX_DURATION_MS } from '../protocol/wire/control.ts'
import { CLOSE } from '../protocol/wire/transport.ts'
import { type Access, openAccess } from './access/access.ts'
import { Authenticator, openKeys } from './auth/authenticator.ts'
import { type ListedRevocation, RevocationStore } from './auth/revocation-store.ts'
import type { Revocation } from './auth/revocations.ts'
import type { HandshakeRefusal } from './control/handshake.ts'
import type { RuntimeSession } from './control/runtime-session.ts'
import { untilFarewell } from './control/session-drain.ts'
import { Carriers } from './edge/carriers.ts'
import { createEdge, type Edge } from './edge/edge.ts'
import { Hold } from './edge/hold.ts'
import { Hosts } from './edge/hosts.ts'
import { Policies } from './edge/policies.ts'
import { QuotaBook } from './edge/quotas.ts'
import { RuntimeDispatcher } from './embed/dispatcher.ts'
import { fetchRuntime } from './embed/fetch.ts'
import { type CallOptions, checkCall } from './embed/request.ts'
import type { ServerEvents } from './events.ts'
import { Inbox } from './inbox/inbox.ts'
import { type OpenedInbox, openStore } from './inbox/open.ts'
import type { InboxOperations } from './inbox/operations.ts'
import { type Address, Listeners } from './listeners.ts'
import { Opened } from './opened.ts'
import { checkGrace, type ResolvedServerOptions } from './options.ts'
import { OwnHosts } from './own-hosts.ts'
import { pause } from './pause.ts'
import type { Hop } from './peer/hop.ts'
import { publicUrl } from './public-url.ts'
import { Questions } from './questions.ts'
import { Registry } from './registry.ts'
import { closeReplicas, openReplicas, openSharedRevocations, type Replicas } from './replicas.ts'
import type { DrainOptions, InstanceTargets, Server } from './server.ts'
import { Sessions } from './sessions.ts'
import { describeSession, type ServerStats, type SessionInfo, sumSessions } from './stats.ts'
import { checkTlsFiles, type TlsFiles } from './tls.ts'

const DEFAULT_GRACE_MS = 30_000
const DRAIN: Members<DrainOptions> = { reason: 'string', afterMs: 'number', graceMs: 'number' }

/** Embedders see it as {@link Server}. */
export class TunnelServer implements Server {
  readonly #settings: ResolvedServerOptions
  readonly #replicas: Replicas
  readonly #events: Events<ServerEvents>
  readonly #authenticator: Authenticator
  readonly #access: Access | undefined
  readonly #revocations: RevocationStore
  readonly #registry: Registry<RuntimeSession, Hop>
  readonly #sessions: Sessions
  readonly #hosts: Hosts
  readonly #ownHosts: OwnHosts | undefined
  readonly #edge: Edge
  readonly #hold: Hold
  readonly #quotas: QuotaBook
  readonly #replayBudget: ReplayBudget
  readonly #inbox: Inbox | undefined
  readonly #refused: Record<string, number> = {}
  readonly #bodyBytes = new BodyBytes()
  readonly #listeners: Listeners
  readonly #mounts = new Set<() => void>()
  #draining: Promise<void> | undefined
  #closing: Promise<void> | undefined
  /** Aborted when the grace is over. */
  readonly #over = new AbortController()

  static async start(settings: ResolvedServerOptions): Promise<TunnelServer> {
    const opened = new Opened(settings.signal, settings.logger)
    try {
      return await TunnelServer.#open(settings, opened)
    } catch (error) {
      await opened.close()
      opened.check()
      throw error
    }
  }

  static async #open(settings: ResolvedServerOptions, opened: Opened): Promise<TunnelServer> {
    const { auth, logger, clock } = settings
    const shared = await openSharedRevocations(settings)
    const revocations = opened.add(new RevocationStore(auth.revocations ?? {}, shared, logger, clock))
    // Together, since each may take as long as its server does not answer.
    const [keys, access] = await Promise.all([
      openKeys(auth.jwks, logger, opened, auth.algorithms),
      openAccess(settings, opened),
      revocations.start(),
    ])
    opened.check()
    const authenticator = new Authenticator(settings, keys, revocations)
    const replicas = await openReplicas(settings, opened, () => revocations.reread())
    opened.check()
    const keeping = await openStore(settings, opened)
    opened.check()
    const server = new TunnelServer(settings, authenticator, revocations, replicas, keeping, access)
    opened.only({ close: () => server.close({ graceMs: 0 }) })
    await server.#listeners.open()
    opened.keep()
    return server
  }

  private constructor(
    settings: ResolvedServerOptions,
    authenticator: Authenticator,
    revocations: RevocationStore,
    replicas: Replicas,
    keeping: OpenedInbox | undefined,
    access: Access | undefined,
  ) {
    const { logger, limits } = settings
    const cors = settings.cors === undefined ? undefined : { origins: settings.cors.origins }
    const policies = new Policies(cors, limits.corsKeepMs, () => performance.now())
    this.#settings = settings
    this.#replicas = replicas
    this.#authenticator = authenticator
    this.#access = access
    this.#revocations = revocations
    this.#events = new Events(logger)
    // A shared directory remembers the runtimes from before this start.
    const hold = new Hold(replicas.shared ? { ...settings.hold, startupMs: 0 } : settings.hold)
    this.#hold = hold
    this.#quotas = new QuotaBook(limits)
    this.#replayBudget = new ReplayBudget(limits.replayBytes, limits.replayTotalBytes)
    const { directory } = replicas
    const questions = new Questions(directory)
    const { forgetMs: keepMs, startupMs } = hold.limits
    if (settings.ownHosts) this.#ownHosts = new OwnHosts({ directory, questions, logger, keepMs, startupMs })
    this.#registry = new Registry({
      directory,
      questions,
      hosts: this.#ownHosts,
      hops: replicas.peers,
      logger,
      record: settings.record,
      onLive: runtime => {
        hold.wake(runtime)
        this.#inbox?.wake(runtime)
      },
      onAgain: runtime => {
        hold.tryFew(runtime, carriers)
        this.#inbox?.wake(runtime)
      },
      onRoom: runtime => hold.tryFew(runtime, carriers),
    })
    const carriers = new Carriers(this.#registry, hold)
    this.#inbox = keeping && this.#openInbox(keeping, carriers)
    replicas.pick = (...wanted) => this.#handOver(...wanted)
    this.#sessions = new Sessions({
      settings,
      authenticator,
      registry: this.#registry,
      policies,
      hold,
      inbox: this.#inbox,
      hosts: this.#ownHosts,
      events: this.#events,
      urlOf: runtime => publicUrl(settings.public, settings.domains, this.publicAddress?.port, runtime),
    })
    if (replicas.peers !== undefined) replicas.peers.returned = this.#sessions.returned
    revocations.onChange = () => this.#sessions.endRevoked()
    this.#hosts = new Hosts(settings.domains, settings.control?.hostName?.toLowerCase(), this.#ownHosts)
    this.#edge = createEdge({
      hosts: this.#hosts,
      carriers,
      policies,
      trustedProxies: parseCidrs(settings.trustedProxies),
      healthPath: settings.healthPath,
      ready: () => this.ready(),
      replayBudget: this.#replayBudget,
      hold,
      quotas: this.#quotas,
      access,
      inbox: this.#inbox,
      responseHeadMs: limits.responseHeadMs,
      onExchange: settings.onExchange,
      bodyBytes: this.#bodyBytes,
      tracing: settings.tracing,
      layers: settings.layers,
      logger,
    })
    this.#listeners = new Listeners({
      settings,
      handler: this.#edge.handler,
      onBadRequest: recordRefused(settings.onExchange),
      corsOf: this.#edge.corsOf,
      authenticate: (token, certificate) => authenticator.authenticate(token, certificate),
      gate: (identity, address) => this.#sessions.gate(identity, address),
      onArrival: arrival => this.#sessions.arrive(arrival),
      onRefused: refusal => this.#onRefused(refusal),
      onAuthorityDropped: () => this.#sessions.renewCertificates(),
    })
  }

  #openInbox(keeping: OpenedInbox, carriers: Carriers): Inbox {
    const { inbox, logger, keptClock, tracing } = this.#settings
    return new Inbox({
      ...{ ...keeping, limits: inbox!.limits, plaintext: inbox!.plaintext, logger, now: keptClock, tracing },
      isLive: runtime => carriers.pick(runtime) !== undefined || carriers.isFull(runtime),
      isHere: runtime => carriers.isOnline(runtime),
      isOvertaken: (announced, anywhere) => this.#registry.isOvertaken(announced, anywhere),
      look: runtime => {
        carriers.ask(runtime, undefined, undefined)
      },
    })
  }

  get inbox(): InboxOperations | undefined {
    return this.#inbox?.operations
  }

  get publicAddress(): Address | undefined {
    return this.#listeners.publicAddress
  }

  get controlAddress(): Address | undefined {
    return this.#listeners.controlAddress
  }

  /** A session for an exchange that another replica hands over. */
  #handOver(runtime: string, epoch: number, ownHost?: string): RuntimeSession | undefined {
    const session = this.#registry.pickOn(runtime, epoch, ownHost)
    return session?.usable === true ? session : undefined
  }

  #onRefused(refusal: HandshakeRefusal): void {
    this.#refused[refusal.reason] = (this.#refused[refusal.reason] ?? 0) + 1
    const { reason, detail, requestId, address } = refusal
    this.#settings.logger.warn({ reason, err: { message: detail }, requestId, address }, 'handshake refused')
    this.#events.emit('refused', refusal)
  }

  on<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this {
    this.#events.on(name, listener)
    return this
  }

  off<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this {
    this.#events.off(name, listener)
    return this
  }

  async fetch(runtime: string, request: Request | string | URL, options: CallOptions = {}): Promise<Response> {
    checkCall(options)
    const made = typeof request === 'string' ? new Request(this.#urlOf(runtime, request)) : request
    return fetchRuntime(this.#edge.embedded, runtime, made instanceof URL ? new Request(made) : made, options)
  }

  #urlOf(runtime: string, text: string): string {
    const url = text.startsWith('/') ? `https://${runtime}.${this.#settings.domains[0] ?? 'invalid'}${text}` : text
    if (URL.canParse(url)) return url
    throw new TypeError(`${JSON.stringify(text)} is neither a URL nor a path that begins with a slash`)
  }

  dispatcher(runtime: string, options: CallOptions = {}): Dispatcher {
    checkCall(options)
    return new RuntimeDispatcher(this.#edge.embedded, runtime, options)
  }

  attach(httpServer: HttpServer, options: object = {}): () => void {
    checkMembers('', options, {})
    const { control } = this.#listeners
    const encrypted = httpServer instanceof TlsServer || this.#settings.control?.plaintext === true
    if (control !== undefined && !encrypted) {
      throw new TypeError('the control endpoint needs TLS: attach to an https.Server, or set control.plaintext')
    }
    const unmount = mount(httpServer, {
      handler: this.#edge.handler,
      logger: this.#settings.logger,
      serves: authority => this.#hosts.match(authority).kind !== 'unknown',
      control: control && { path: CONNECT_PATH, upgrade: (...args) => control.upgrade(...args) },
    })
    this.#mounts.add(unmount)
    return () => {
      this.#mounts.delete(unmount)
      unmount()
    }
  }

  ready(): boolean {
    return (
      this.#draining === undefined && this.#authenticator.ready && this.#replicas.directory.stats().state !== 'lost'
    )
  }

  sessions(): SessionInfo[] {
    return [...this.#registry.members()].map(session =>
      describeSession(session, this.#settings.replica, this.#ownHosts),
    )
  }

  stats(): ServerStats {
    const totals = sumSessions(this.#sessions.all)
    return {
      replica: this.#settings.replica,
      runtimes: this.#registry.runtimes,
      sessions: this.#registry.sessions,
      streams: totals.streams,
      exchanges: totals.exchanges,
      bufferedBytes: this.#sessions.bufferedBytes,
      replayBytes: this.#replayBudget.used,
      callers: this.#listeners.callers,
      quotaExchanges: this.#quotas.exchanges,
      held: this.#hold.requests,
      heldBytes: this.#hold.bytes,
      heldOutcomes: { ...this.#hold.outcomes },
      ...this.#bodyBytes,
      sessionBytesIn: this.#sessions.pastBytesIn + totals.bytesIn,
      sessionBytesOut: this.#sessions.pastBytesOut + totals.bytesOut,
      roundTripsMs: totals.roundTripsMs,
      handshakesWaiting: this.#listeners.control?.waiting ?? 0,
      handshakesRefused: { ...this.#refused },
      directory: this.#replicas.directory.stats(),
      peers: this.#replicas.peers?.stats(),
      certificates: {
        ...this.#listeners.certificates,
        ...(this.#replicas.keeper && { peer: this.#replicas.keeper.expiresAt }),
      },
      hosts: this.#ownHosts?.stats(),
      access: this.#access && { ...this.#access.stats },
      inbox: this.#inbox?.stats(),
      spansReturned: this.#sessions.returned && { ...this.#sessions.returned.stats },
      sessionsOpened: this.#sessions.opened,
      sessionsEnded: this.#sessions.ended,
    }
  }

  async revoke(rule: Revocation): Promise<{ ended: number; kept: boolean }> {
    const before = this.#sessions.revoked
    const adding = this.#revocations.add(rule)
    const ended = this.#sessions.revoked - before
    return { ended, kept: await adding }
  }

  async checkTargets(runtime: string): Promise<InstanceTargets[]> {
    const asked = this.#sessions.instancesOf(runtime).map(async session => {
      const { instance, active, software, id } = session
      return { instance, active, software, session: id, ...(await session.askTargets()) }
    })
    return await Promise.all(asked)
  }

  async askOthers(what: string, body: object = {}): Promise<unknown[]> {
    return (await this.#replicas.operators?.ask(what, body)) ?? []
  }

  answerOthers(answer: (what: string, body: object, by: string) => Promise<unknown>): void {
    if (this.#replicas.operators !== undefined) this.#replicas.operators.answer = answer
  }

  revocations(): readonly ListedRevocation[] {
    return this.#revocations.list
  }

  removeRevocation(id: string): Promise<boolean> {
    return this.#revocations.remove(id)
  }

  drainSession(id: string, options: DrainOptions = {}): boolean {
    checkMembers('', options, DRAIN)
    const session = this.#sessions.find(id)
    if (session !== undefined) drainOne(session, options)
    return session !== undefined
  }

  drainRuntime(runtime: string, options: DrainOptions = {}): number {
    checkMembers('', options, DRAIN)
    const sessions = [...this.#sessions.of(runtime)]
    for (const session of sessions) drainOne(session, options)
    return sessions.length
  }

  closeSession(id: string, reason = 'closed by an operator'): boolean {
    demand(typeof reason === 'string', 'reason must be text')
    const session = this.#sessions.find(id)
    session?.end(reason, CLOSE.goingAway)
    return session !== undefined
  }

  drain(options: GraceOptions = {}): Promise<void> {
    const graceMs = graceOf(options, DEFAULT_GRACE_MS, MAX_DURATION_MS)
    this.#draining ??= this.#drain(graceMs)
    return this.#draining
  }

  async #drain(graceMs: number): Promise<void> {
    const { drainDelayMs } = this.#settings
    if (graceMs > 0 && drainDelayMs > 0) await pause(drainDelayMs, this.#over.signal)
    const { directory, reusePort } = this.#settings
    // Without other servers, callers have nowhere else to go. So we serve them to the end, and keep the clients for that.
    const alone = directory === undefined && !reusePort
    const endMs = performance.now() + graceMs
    const over = new AbortController()
    const { closed, callersGone } = this.#listeners.stop(graceMs, alone)
    if (alone) await closed
    const leftMs = Math.max(0, Math.floor(endMs - performance.now()))
    const callersSilent = Promise.race([callersGone, pause(patienceOf(graceMs), over.signal)])
    // Exchanges that other replicas hand over until our sessions accept no more need time to finish.
    const until = this.#replicas.peers === undefined ? callersGone : callersSilent
    const { logger } = this.#settings
    const farewell = pause(untilFarewell(leftMs), over.signal).then(() => this.#replicas.peers?.leave())
    detached(logger, 'telling the other replicas failed', farewell)
    const stay = { until, elsewhere: directory !== undefined }
    await Promise.all([callersGone, this.#sessions.drain('the server stops', leftMs, stay)])
    over.abort()
  }

  async reload(fresh: { publicTls?: TlsFiles; controlTls?: TlsFiles } = {}): Promise<boolean> {
    checkMembers('', fresh, { publicTls: 'object', controlTls: 'object' })
    checkTlsFiles('publicTls', fresh.publicTls)
    checkTlsFiles('controlTls', fresh.controlTls)
    return this.#listeners.reload(fresh)
  }

  close(options: GraceOptions = {}): Promise<void> {
    const graceMs = graceOf(options, DEFAULT_GRACE_MS, MAX_DURATION_MS)
    const { logger, drainDelayMs } = this.#settings
    detached(logger, 'shortening a close failed', this.#overAfter(graceMs > 0 ? drainDelayMs + graceMs : 0))
    this.#closing ??= this.#close(graceMs)
    return this.#closing
  }

  /** If `close` is called several times, the earliest deadline cuts what is left. */
  async #overAfter(ms: number): Promise<void> {
    await pause(ms, this.#over.signal)
    this.#over.abort()
  }

  async #close(graceMs: number): Promise<void> {
    const drained = this.drain({ graceMs }).then(() => this.#inbox?.finish())
    await Promise.race([drained, once(this.#over.signal, 'abort')])
    this.#over.abort()
    for (const unmount of this.#mounts) unmount()
    this.#hold.close()
    this.#sessions.close()
    this.#ownHosts?.close()
    await this.#listeners.close(graceMs)
    this.#authenticator.close()
    this.#access?.close()
    await this.#inbox?.close()
    await closeReplicas(this.#replicas)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

/** Checks the times first: a drain that fails half-way would leave a session that neither gets requests nor ends. */
function drainOne(session: RuntimeSession, options: DrainOptions): void {
  const { reason = 'asked to leave', afterMs = 0, graceMs = DEFAULT_GRACE_MS } = options
  checkGrace('afterMs', afterMs)
  checkGrace('afterMs + graceMs', afterMs + checkGrace('graceMs', graceMs))
  session.drain(reason, afterMs, afterMs + graceMs)
}
