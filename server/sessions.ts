/** All sessions of this server: sets them up, keeps checking their tokens, drains and counts them. */

import { randomUUID } from 'node:crypto'
import { networkOf } from '../protocol/base/address.ts'
import type { Events } from '../protocol/base/events.ts'
import { type Guard, guardWith, logGuard, starting } from '../protocol/base/guard.ts'
import { oneAtATime } from '../protocol/base/one-at-a-time.ts'
import { Tally } from '../protocol/base/tally.ts'
import { FEATURE, type Hello } from '../protocol/wire/control.ts'
import { CLOSE } from '../protocol/wire/transport.ts'
import { webSocketTransport } from '../protocol/wire/transport-websocket.ts'
import { resolveSessionLimits } from '../protocol/wire/yamux/limits.ts'
import { BufferPool } from '../protocol/wire/yamux/pool.ts'
import { TickClock } from '../protocol/wire/yamux/tick-clock.ts'
import type { Authenticator } from './auth/authenticator.ts'
import type { Identity } from './auth/claims.ts'
import type { ControlUpgrade } from './control/endpoint.ts'
import type { RefusalReason } from './control/handshake.ts'
import { ReturnedSpans } from './control/returned-spans.ts'
import { RuntimeSession, type RuntimeSessionContext } from './control/runtime-session.ts'
import type { Stay } from './control/session-drain.ts'
import type { Hold } from './edge/hold.ts'
import type { Policies } from './edge/policies.ts'
import type { ServerEvents } from './events.ts'
import type { Inbox } from './inbox/inbox.ts'
import type { ResolvedServerOptions } from './options.ts'
import type { OwnHosts } from './own-hosts.ts'
import { within } from './pause.ts'
import type { Hop } from './peer/hop.ts'
import type { Registry } from './registry.ts'
import { RuntimeBudgets } from './runtime-budgets.ts'
import { describeSession } from './stats.ts'

/**
 * How often all tokens are checked. One timer per token would run on the monotonic clock, which does not notice when the wall clock
 * is set or the machine sleeps. An expired session would then get no new exchanges, but stay open.
 */
const TOKEN_CHECK_MS = 1000
const REVOCATION_CHECK_MS = 5000
/** How long exchanges go on once their client is to show its certificate anew, and the time between two clients: handshakes take time. */
const RENEWAL_MS = 30_000
const RENEWAL_PACE_MS = 20
const POOLED_BUFFERS = 256
/** Most instances of a runtime that are asked about their targets at once. */
const MAX_INSTANCES = 16

interface SessionsOptions {
  readonly settings: ResolvedServerOptions
  readonly authenticator: Authenticator
  readonly registry: Registry<RuntimeSession, Hop>
  readonly policies: Policies
  readonly hold: Hold
  readonly inbox: Inbox | undefined
  /** Absent if runtimes cannot have hosts of their own. */
  readonly hosts: OwnHosts | undefined
  readonly events: Events<ServerEvents>
  /** Where callers reach a runtime. */
  readonly urlOf: (runtime: string) => string | undefined
}

export class Sessions {
  readonly #options: SessionsOptions
  readonly #context: RuntimeSessionContext
  /** Every session that has a WebSocket, whether or not it has sent `hello`. */
  readonly #all = new Set<RuntimeSession>()
  /** Those that announced what only the active instance decides. */
  readonly #hellos = new WeakMap<RuntimeSession, Hello>()
  /** Those whose inbox rules were ignored, since another instance was active or may have been. */
  readonly #unpublished = new WeakSet<RuntimeSession>()
  /**
   * Open sockets: in total, by network, and by runtime. They include those of ended sessions whose clients have not closed them
   * yet.
   */
  #sockets = 0
  readonly #ofNetwork = new Tally()
  readonly #ofRuntime = new Tally()
  readonly #budgets: RuntimeBudgets
  readonly #guard: Guard
  readonly #tokenTimer: NodeJS.Timeout
  readonly #revocationTimer: NodeJS.Timeout | undefined
  #draining = false
  #onEmpty: (() => void) | undefined
  opened = 0
  ended = 0
  /** Sessions that ended because their token was revoked. */
  revoked = 0
  /** Spans that clients return for recorded requests. `undefined` without tracing. */
  readonly returned: ReturnedSpans | undefined
  /** Bytes of sessions that have ended. */
  pastBytesIn = 0
  pastBytesOut = 0

  constructor(options: SessionsOptions) {
    this.#options = options
    const { processBufferBytes, bufferBytesPerRuntime } = options.settings.limits
    this.#budgets = new RuntimeBudgets(processBufferBytes, bufferBytesPerRuntime || processBufferBytes)
    const add = options.settings.tracing?.tracer.add
    if (add !== undefined) this.returned = new ReturnedSpans(add)
    this.#context = this.#createContext()
    resolveSessionLimits(this.#context.session)
    if (options.inbox !== undefined) options.inbox.announceAgain = () => this.#announceAgain()
    const { logger } = options.settings
    this.#guard = logGuard(logger, 'checking tokens of sessions failed')
    const look = this.#guard(() => {
      for (const session of this.#all) session.checkToken()
    })
    this.#tokenTimer = setInterval(look, TOKEN_CHECK_MS).unref()
    if (options.authenticator.hasHook) {
      // However long the hook takes.
      const alone = oneAtATime(() => this.#checkRevocations())
      const round = starting(logger, 'checking revocations failed', alone)
      this.#revocationTimer = setInterval(round, REVOCATION_CHECK_MS).unref()
    }
  }

  /** Bytes held for callers, including those of ended sessions. */
  get bufferedBytes(): number {
    return this.#budgets.usedBytes
  }

  get all(): ReadonlySet<RuntimeSession> {
    return this.#all
  }

  #createContext(): RuntimeSessionContext {
    const { settings, authenticator, registry, hold, urlOf } = this.#options
    const { limits, logger } = settings
    return {
      replica: settings.replica,
      logger,
      clockToleranceS: settings.auth.clockToleranceS,
      session: {
        clock: new TickClock(logger),
        pool: new BufferPool(POOLED_BUFFERS),
        sessionBufferBytes: limits.sessionBufferBytes,
        maxWindowBytes: limits.maxWindowBytes,
        maxStreams: limits.streams,
        pingIntervalMs: limits.pingIntervalMs,
        pingTimeoutMs: limits.pingTimeoutMs,
      },
      now: settings.clock,
      features: featuresOf(settings),
      returned: this.returned,
      urlOf,
      reauthenticate: (token, session) => authenticator.reauthenticate(token, session.runtime, session.thumbprint),
      onHello: (session, hello) => this.#hello(session, hello),
      onReady: session => this.#ready(session),
      onActive: session => this.#active(session),
      onRenewed: session => {
        this.#claimHosts(session)
        // A request may be waiting for a session that claims its host.
        hold.wake(session.runtime)
      },
      onDrain: session => registry.drain(session),
      onRoom: session => hold.room(session.runtime, session),
      onClosed: (session, reason) => this.#closed(session, reason),
    }
  }

  /** Why this client is refused now. `undefined` if it may come in. */
  gate(identity: Identity, address: string): RefusalReason | undefined {
    const { limits } = this.#options.settings
    const { sessions, sessionsPerAddress, sessionsPerRuntime } = limits
    if (this.#draining) return 'shutting-down'
    const isFull =
      this.#sockets >= sessions ||
      this.#ofRuntime.of(identity.runtime) >= sessionsPerRuntime ||
      (sessionsPerAddress > 0 && this.#ofNetwork.of(networkOf(address)) >= sessionsPerAddress)
    return isFull ? 'too-many-sessions' : undefined
  }

  arrive(arrival: ControlUpgrade): void {
    const { ws, ...client } = arrival
    const budgets = this.#budgets.of(client.identity.runtime)
    const connectedAt = this.#options.settings.keptClock()
    const session = new RuntimeSession(this.#context, webSocketTransport(ws), {
      ...{ id: randomUUID(), budgets, connectedAt },
      ...client,
    })
    this.#all.add(session)
    this.#count(session, 1)
    const gone = this.#guard(() => this.#count(session, -1))
    ws.once('close', gone)
    this.opened++
  }

  /** Counts a socket. It outlives its session until the client closes it, or the time for that is up. */
  #count({ address, runtime }: RuntimeSession, change: 1 | -1): void {
    this.#sockets += change
    this.#ofNetwork.add(networkOf(address), change)
    this.#ofRuntime.add(runtime, change)
  }

  #hello(session: RuntimeSession, hello: Hello): void {
    const { registry, settings, events } = this.#options
    registry.add(session)
    session.epoch = registry.epochOf(session)
    if (hello.cors !== undefined || this.#options.inbox !== undefined) this.#hellos.set(session, hello)
    // A standby may be of another version, and connect last.
    if (registry.activeBeside(session, false) === undefined) this.#publishCors(session, hello)
    this.#publishRules(session, hello)
    const info = describeSession(session, settings.replica, this.#options.hosts)
    settings.logger.info(
      {
        session: info.id,
        runtime: info.runtime,
        instance: info.instance,
        address: info.address,
        software: info.software,
      },
      'session opened',
    )
    events.emit('session', info)
  }

  #publishCors({ runtime }: RuntimeSession, { cors }: Hello): void {
    const policies = cors?.map(({ path, ...policy }) => ({ path, policy }))
    if (policies !== undefined) this.#options.policies.publish(runtime, policies)
  }

  #publishRules(session: RuntimeSession, hello: Hello): void {
    const { inbox } = this.#options
    if (inbox === undefined) return
    const active = this.#activeBeside(session, inbox)
    const shared = hello.features?.includes(FEATURE.sharedSeals)
    const { runtime, instance, identity } = session
    const by = { instance, active }
    const isApplied = inbox.rules.publish(runtime, hello.inbox ?? [], hello.inboxKey, shared, identity.hosts, by)
    if (isApplied) this.#unpublished.delete(session)
    else this.#unpublished.add(session)
  }

  /**
   * Where servers share a store, one that could write only late may have replaced the rules of the active instance. Its newest session comes
   * last, and has its newest rules.
   */
  #announceAgain(): void {
    const replaced = [...this.#all].filter(session => this.#isReplaced(session))
    for (const session of replaced) this.#publishRules(session, this.#hellos.get(session)!)
  }

  /** False if its instance may no longer be the active one, since the directory cannot be asked. */
  #isReplaced(session: RuntimeSession): boolean {
    const { rules, operations } = this.#options.inbox!
    const { inbox = [], inboxKey } = this.#hellos.get(session) ?? {}
    if (!session.usable || !session.active) return false
    if (!rules.isReplaced(session.runtime, session.instance, inbox, inboxKey)) return false
    return this.#options.registry.activeBeside(session, operations.shared) === undefined
  }

  /** If each server has a store of its own, the active instance may not be connected to ours. */
  #activeBeside(session: RuntimeSession, { operations }: Inbox): string | undefined {
    return session.active ? undefined : this.#options.registry.activeBeside(session, operations.shared)
  }

  /** An instance that becomes active again after another one has left has announced nothing since. */
  #active(session: RuntimeSession): void {
    const hello = this.#hellos.get(session)
    if (hello === undefined) return
    this.#publishCors(session, hello)
    const isLast = this.#options.inbox?.rules.publisherOf(session.runtime) === session.instance
    if (!isLast || this.#unpublished.has(session)) this.#publishRules(session, hello)
  }

  #ready(session: RuntimeSession): void {
    const { registry, settings, events } = this.#options
    const refused = (error: unknown) => {
      session.end('the directory is not available', CLOSE.tryLater)
      settings.logger.error({ session: session.id, err: error }, 'the directory refused a session')
    }
    const guard = guardWith(refused)
    const ready = guard(() => {
      // It may have ended while the directory was asked.
      if (session.usable) events.emit('ready', describeSession(session, settings.replica, this.#options.hosts))
    })
    registry.ready(session, session.lastEpoch).then(ready, guard(refused))
    this.#claimHosts(session)
  }

  #claimHosts(session: RuntimeSession): void {
    const { hosts } = session.identity
    const { inbox } = this.#options
    if (inbox !== undefined && this.#activeBeside(session, inbox) === undefined)
      inbox.rules.renewed(session.runtime, hosts)
    if (this.#options.hosts !== undefined) this.#options.hosts.claim(session, hosts)
    else if (hosts.length > 0)
      session.tell('host-refused', "this server does not allow hosts of runtimes' own (--own-hosts)")
  }

  #closed(session: RuntimeSession, reason: string): void {
    const { registry, policies, hold, settings, events } = this.#options
    if (!this.#all.delete(session)) return
    this.ended++
    this.pastBytesIn += session.session.bytesIn
    this.pastBytesOut += session.session.bytesOut
    registry.remove(session)
    this.#options.hosts?.left(session)
    policies.touch(session.runtime)
    if (registry.countOf(session.runtime) === 0) hold.remember(session.runtime)
    const info = describeSession(session, settings.replica, this.#options.hosts)
    settings.logger.info({ session: info.id, runtime: info.runtime, reason }, 'session ended')
    events.emit('sessionEnded', { ...info, reason })
    if (this.#all.size === 0) this.#onEmpty?.()
  }

  /** Ends the sessions whose token a revocation covers. */
  endRevoked(): void {
    for (const session of this.#all) if (this.#options.authenticator.covers(session.identity)) this.#revoked(session)
  }

  async #checkRevocations(): Promise<void> {
    const { authenticator } = this.#options
    const check = async (session: RuntimeSession) => {
      if (await authenticator.isRevokedNow(session.identity)) this.#revoked(session)
    }
    await Promise.allSettled([...this.#all].map(check))
  }

  #revoked(session: RuntimeSession): void {
    if (session.session.closed) return
    this.revoked++
    this.#options.settings.logger.warn({ session: session.id, runtime: session.runtime }, 'the token is revoked')
    this.#options.hosts?.revoked(session)
    session.end('the token is revoked', CLOSE.refused)
  }

  /** An authority was dropped, so the clients that showed a certificate have to show a valid one, one after the other. */
  renewCertificates(): void {
    let afterMs = 0
    for (const session of this.#all) {
      if (session.thumbprint === undefined) continue
      session.drain("the authorities of clients' certificates have changed", afterMs, afterMs + RENEWAL_MS)
      afterMs += RENEWAL_PACE_MS
    }
  }

  *of(runtime: string): IterableIterator<RuntimeSession> {
    for (const session of this.#all) if (session.runtime === runtime) yield session
  }

  /** The oldest session of each instance of a runtime, for at most `MAX_INSTANCES`. */
  instancesOf(runtime: string): RuntimeSession[] {
    const found = new Map<string, RuntimeSession>()
    for (const session of this.of(runtime)) {
      if (session.usable && !found.has(session.instance)) found.set(session.instance, session)
    }
    return [...found.values()].slice(0, MAX_INSTANCES)
  }

  find(id: string): RuntimeSession | undefined {
    for (const session of this.#all) if (session.id === id) return session
    return undefined
  }

  /**
   * Asks all clients to leave, spread over time if there are other replicas. Resolves when none is left, at the latest after
   * `graceMs`.
   */
  async drain(reason: string, graceMs: number, stay: Stay): Promise<void> {
    this.#draining = true
    const spreadMs = stay.elsewhere ? Math.min(this.#options.settings.drainSpreadMs, graceMs / 2) : 0
    for (const session of this.#all) session.drain(reason, Math.floor(Math.random() * spreadMs), graceMs, stay)
    if (this.#all.size === 0) return
    const { promise: emptied, resolve } = Promise.withResolvers<void>()
    this.#onEmpty = resolve
    await within(graceMs, emptied)
  }

  close(): void {
    this.#draining = true
    clearInterval(this.#tokenTimer)
    clearInterval(this.#revocationTimer)
    for (const session of this.#all) session.destroy('the server has closed')
  }
}

function featuresOf({ tracing, inbox }: ResolvedServerOptions): readonly string[] {
  const features: string[] = [FEATURE.checks]
  if (inbox !== undefined) features.push(FEATURE.sharedSeals)
  if (tracing?.tracer.add !== undefined) features.push(FEATURE.spans)
  return features
}
