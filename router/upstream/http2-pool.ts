/**
 * HTTP/2 sessions to one target. Each carries many exchanges of one network of callers at a time, so that what a caller does to its
 * session hurts no others. Another is opened when there is none for a network, or all of its own are full.
 */

import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { TLSSocket } from 'node:tls'
import { networkOf } from '../../protocol/base/address.ts'
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { resetSocket } from '../../protocol/base/reset-socket.ts'
import { heardFirst } from '../../protocol/base/socket-turns.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { Http2ClientSession } from '../../protocol/http/http2/client-session.ts'
import { INNER_LIMITS } from '../../protocol/http/limits.ts'
import type { UpstreamTarget } from '../target.ts'
import { dialUpstream, type SecureContexts } from './dial.ts'
import type { Http1Pool } from './http1-pool.ts'
import type { Place, TargetConnections } from './places.ts'
import { endOfLife, type OnOpened, type Pool, type PooledUpstream } from './pool.ts'
import { SessionsByNetwork } from './sessions-by-network.ts'
import type { UpstreamRequest } from './types.ts'

/** Servers of gRPC end a session that is pinged more often than every 5 minutes while they send nothing (`too_many_pings`). */
const PING_MS = 330_000
const LIMITS = { ...INNER_LIMITS, http2PingMs: PING_MS }
/**
 * Some servers end a session, and all requests on it, because of one request: nginx does for trailers, and for a field larger than it
 * takes. So that nobody can end the requests of others again and again, exchanges share no session for this long afterwards.
 */
const ALONE_MS = 600_000
/**
 * From this many connections on, exchanges that would have their own, and networks, share those that take what is sent: nginx allows 512
 * in all, and would answer 502 beyond them. One network gets at most three quarters of them.
 */
const MOST_APART = 100
const USED_PER_FREE = 3
/** How long a target that could not be dialled, while it had sessions, counts as one that takes no more connections. */
const FULL_MS = 60_000

/** An exchange that waits for a session, across all dials made for it. */
interface Waiter {
  readonly caller: string
  readonly connectMs: number
  readonly endsMs: number
  readonly done: OnOpened
  /** Abandons what it waits for. */
  leave: () => void
  /** Set if its time ends before that of the dial it waits for. */
  timer: NodeJS.Timeout | undefined
  gone: boolean
}

/** A session that is being opened. */
interface Dial {
  readonly waiting: Set<Waiter>
  readonly endsMs: number
  readonly giveUp: () => void
}

export class Http2Pool implements Pool {
  readonly #target: UpstreamTarget
  readonly #contexts: SecureContexts
  readonly #connections: TargetConnections
  readonly #idleMs: number
  /** Gets the connections for which the target chooses HTTP/1.1. */
  readonly #http1: Http1Pool | undefined
  readonly #sessions = new Set<PooledSession>()
  /** Those of them that have not ended. */
  readonly #usable = new SessionsByNetwork<PooledSession>()
  /** One dial for all waiters of a network with the same deadline. */
  readonly #dials = new Map<string | symbol, Dial>()
  #aloneUntil = 0
  #fullUntil = 0
  #closed = false

  constructor(
    target: UpstreamTarget,
    contexts: SecureContexts,
    connections: TargetConnections,
    idleMs: number,
    http1?: Http1Pool,
  ) {
    this.#target = target
    this.#contexts = contexts
    this.#connections = connections
    this.#idleMs = idleMs
    this.#http1 = http1
  }

  get size(): number {
    return this.#sessions.size + this.#dials.size
  }

  get dialling(): boolean {
    return this.#dials.size > 0
  }

  get idle(): number {
    let count = 0
    for (const { wire } of this.#sessions) if (wire.streams === 0) count++
    return count
  }

  take(caller: string): PooledUpstream | undefined {
    const now = performance.now()
    const isGreedy = this.#connections.isGreedy(caller)
    const own = this.#takeOwn(caller, now) ?? (isGreedy ? undefined : this.#takeIdle(now))
    if (own !== undefined) return own
    const mustShare = this.#mustShare(caller, now)
    const its = this.#usable.of(networkOf(caller))
    if (!mustShare && its.length < USED_PER_FREE * (MOST_APART - this.size)) return undefined
    // A network that has sessions shares those, also where they are starved or worn: it may be why.
    let least = leastBurdened(its, isGreedy, now)
    if (least !== undefined || (its.length > 0 && !mustShare)) return least
    least = leastBurdened(this.#sessions, isGreedy, now)
    return mustShare || least?.isGood(now) ? least : undefined
  }

  #takeOwn(caller: string, now: number): PooledSession | undefined {
    if (now < this.#aloneUntil) return undefined
    for (const session of this.#usable.of(networkOf(caller)))
      if (session.wire.available && session.isGood(now)) return session
    return undefined
  }

  /** The one that became idle last. */
  #takeIdle(now: number): PooledSession | undefined {
    const idle = this.#usable.of(undefined)
    for (let i = idle.length - 1; i >= 0; i--) {
      const session = idle[i]!
      if (now >= session.idleUntil) session.wire.close()
      else if (session.wire.available && session.isGood(now)) return session
    }
    return undefined
  }

  /** Neither we nor the target allow more connections, for `caller`. */
  #mustShare(caller: string, now: number): boolean {
    return now < this.#fullUntil || this.#connections.refuse(caller) !== undefined
  }

  open(caller: string, connectMs: number, done: OnOpened): () => void {
    const now = performance.now()
    const leave = () => {}
    const endsMs = now + connectMs
    const waiter: Waiter = { caller, connectMs, endsMs, done, leave, timer: undefined, gone: false }
    this.#wait(waiter, now)
    return () => {
      waiter.gone = true
      waiter.leave()
    }
  }

  #wait(waiter: Waiter, now: number): void {
    const { caller, connectMs, done } = waiter
    const { captured } = this.#target
    const key = now < this.#aloneUntil ? Symbol('alone') : `${connectMs} ${networkOf(caller)}`
    let known = this.#dials.get(key)
    const refused = known === undefined ? this.#connections.refuse(caller) : undefined
    if (refused !== undefined || (!captured && this.#dials.size >= MOST_APART)) known ??= this.#leastAwaited
    if ((known === undefined && refused !== undefined) || this.#closed) {
      done(refused ?? new SallyportError('overloaded', 'the router is closed'), undefined)
      return
    }
    const dial = known ?? this.#dial(key, caller, connectMs, now)
    dial.waiting.add(waiter)
    waiter.leave = () => {
      clearTimeout(waiter.timer)
      if (dial.waiting.delete(waiter) && dial.waiting.size === 0) dial.giveUp()
    }
    if (waiter.endsMs >= dial.endsMs) return
    const guard = guardWith(waiter.leave)
    const onLate = guard(() => {
      if (!dial.waiting.has(waiter)) return
      waiter.leave()
      done(new SallyportError('upstream-timeout', `no session with room within ${connectMs} ms`), undefined)
    })
    waiter.timer = setTimeout(heardFirst(onLate), Math.max(0, waiter.endsMs - now))
  }

  get #leastAwaited(): Dial | undefined {
    let least: Dial | undefined
    for (const dial of this.#dials.values())
      if (least === undefined || dial.waiting.size < least.waiting.size) least = dial
    return least
  }

  #dial(key: string | symbol, caller: string, connectMs: number, now: number): Dial {
    const waiting = new Set<Waiter>()
    const endsMs = now + connectMs
    const place = this.#connections.add(caller)
    const over = (): Waiter[] => {
      this.#dials.delete(key)
      const waiters = [...waiting]
      waiting.clear()
      for (const { timer } of waiters) clearTimeout(timer)
      return waiters
    }
    const failed = (error: SallyportError | undefined): void => {
      if (this.#sessions.size > 0) this.#fullUntil = performance.now() + FULL_MS
      for (const { gone, caller, done } of over()) {
        if (gone) continue
        const session = this.take(caller)
        done(session === undefined ? error : undefined, session)
      }
    }
    let giveUpStep = dialUpstream(this.#target, caller, connectMs, this.#contexts, (error, socket) => {
      if (socket === undefined) {
        place.end()
        failed(error)
        return
      }
      if (this.#http1 !== undefined && (socket as TLSSocket).alpnProtocol !== 'h2') {
        handOver(this.#http1, socket, place, over())
        return
      }
      const refused = this.#connections.refuseFor(caller, this.#connections.keptPorts.addressOf(socket))
      if (refused !== undefined) {
        resetSocket(socket)
        place.end()
        this.#turnAway(caller, refused, over())
      } else {
        giveUpStep = this.#greet(socket, place, caller, endsMs, (unwelcome, session) => {
          if (session === undefined) failed(unwelcome)
          else this.#share(session, over())
        })
      }
    })
    const giveUp = () => {
      this.#dials.delete(key)
      giveUpStep()
      place.end()
    }
    const dial = { waiting, endsMs, giveUp }
    this.#dials.set(key, dial)
    return dial
  }

  /** The network of `caller`, for which a connection was opened, may use none. Others that waited for it open their own. */
  #turnAway(caller: string, refused: SallyportError, waiting: readonly Waiter[]): void {
    const [now, network] = [performance.now(), networkOf(caller)]
    for (const waiter of waiting) {
      if (waiter.gone) continue
      if (networkOf(waiter.caller) === network) waiter.done(refused, undefined)
      else this.#wait(waiter, now)
    }
  }

  /**
   * Waits for the upstream's settings, its first frame. It would refuse streams sent before that and above its limit. The
   * returned function abandons the wait; `done` is then not called.
   */
  #greet(
    socket: Socket,
    place: Place,
    caller: string,
    endsMs: number,
    done: (error: SallyportError | undefined, session: PooledSession | undefined) => void,
  ): () => void {
    let over = false
    let why = new SallyportError('upstream-broken', 'the upstream closed a new connection')
    const finish = (error: SallyportError | undefined): void => {
      if (over) return
      over = true
      clearTimeout(timer)
      if (error === undefined) this.#add(session)
      done(error, error === undefined ? session : undefined)
    }
    /** It has carried nothing, so its upstream has nothing left to take. */
    const refuse = (error: SallyportError): void => {
      why = error
      resetSocket(socket)
      session.wire.destroy()
    }
    const guard = guardWith(error => refuse(toSallyportError(error)))
    const onSettings = () => {
      if (session.wire.available) finish(undefined)
      else refuse(new SallyportError('upstream-broken', 'the upstream allows no streams'))
    }
    const onEnd = (): void => {
      this.#usable.delete(session)
      place.endWith(socket)
      finish(why)
    }
    const { keptPorts } = this.#connections
    const address = keptPorts.addressOf(socket)
    const onClose = (): void => {
      this.#sessions.delete(session)
      if (session.wire.keepsPort && address !== undefined) keptPorts.add(address, session.caller)
    }
    const onFault = (): void => {
      this.#aloneUntil = performance.now() + ALONE_MS
    }
    const onIdle = (): void => this.#onIdle(session)
    const scheme = this.#target.protocol === 'https' ? 'https' : 'http'
    const events = { onSettings, onFault, onIdle, onEnd, onClose }
    const session = new PooledSession(socket, place, caller, this.#usable, scheme, this.#idleMs, events)
    // Its settings may have come meanwhile.
    const late = guard(() => {
      if (!over) refuse(new SallyportError('upstream-timeout', 'the upstream sent no settings in time'))
    })
    const timer = setTimeout(heardFirst(late), Math.max(0, endsMs - performance.now()))
    return () => {
      over = true
      clearTimeout(timer)
      resetSocket(socket)
    }
  }

  #add(session: PooledSession): void {
    this.#sessions.add(session)
    this.#usable.add(session)
  }

  /** Hands the new session, or another, to its waiters. Those for which there is no room open another one, in their remaining time. */
  #share(session: PooledSession, waiting: readonly Waiter[]): void {
    const now = performance.now()
    let next: PooledUpstream | undefined = session
    for (const waiter of waiting) {
      if (waiter.gone) continue
      next = this.#isFor(waiter.caller, session, now) ? session : next && this.take(waiter.caller)
      if (next === undefined) this.#wait(waiter, now)
      else waiter.done(undefined, next)
    }
    // An exchange that it cannot carry, such as a WebSocket, leaves no end to wait for.
    session.restIfIdle()
    if (this.#closed) session.wire.close()
  }

  #isFor(caller: string, session: PooledSession, now: number): boolean {
    if (!session.wire.available) return false
    if (session.wire.streams === 0) return true
    return session.network === networkOf(caller) && session.isGood(now) && now >= this.#aloneUntil
  }

  #onIdle(session: PooledSession): void {
    const now = performance.now()
    session.idleUntil = now + this.#idleMs
    session.restIfIdle()
    if (this.#closed || session.isSpent(now)) session.wire.close()
  }

  sweep(now: number): boolean {
    for (const { wire, idleUntil } of this.#sessions) if (wire.streams === 0 && idleUntil <= now) wire.close()
    // Captured names could otherwise make any number of targets that are kept.
    return this.#connections.open === 0 && (this.#target.captured || now >= this.#aloneUntil)
  }

  close(): void {
    this.#closed = true
    for (const { wire } of this.#sessions) wire.close()
  }
}

function leastBurdened(sessions: Iterable<PooledSession>, isGreedy: boolean, now: number): PooledSession | undefined {
  let least: PooledSession | undefined
  let leastBurden = Number.POSITIVE_INFINITY
  for (const session of sessions) {
    if (!session.wire.available || (isGreedy && session.wire.streams === 0)) continue
    const burden = session.burden(now)
    if (burden >= leastBurden) continue
    least = session
    leastBurden = burden
  }
  return least
}

/** The target chose HTTP/1.1. One waiter gets this connection, and each of the others opens its own. */
function handOver(http1: Http1Pool, socket: Socket, place: Place, waiting: readonly Waiter[]): void {
  const now = performance.now()
  for (const [i, waiter] of waiting.entries()) {
    if (i === 0) http1.adopt(socket, place, waiter.caller, waiter.done)
    else if (!waiter.gone)
      waiter.leave = http1.open(waiter.caller, Math.max(Math.ceil(waiter.endsMs - now), 1), waiter.done)
  }
}

/** Events of a session, for its pool. */
interface SessionEvents {
  readonly onSettings: () => void
  readonly onFault: () => void
  readonly onIdle: () => void
  readonly onEnd: () => void
  readonly onClose: () => void
}

class PooledSession implements PooledUpstream {
  /** Always false: exchanges share the session, so each tracks for itself whether it was answered. */
  readonly responseStarted = false
  readonly wire: Http2ClientSession
  readonly #place: Place
  readonly #usable: SessionsByNetwork<PooledSession>
  readonly #endsAt: number
  idleUntil: number
  /** Of the callers that use it: the one that opened it, or found it idle, until it is idle again. */
  network: string | undefined
  /** Who opened it, or used it last. */
  caller: string

  constructor(
    socket: Socket,
    place: Place,
    caller: string,
    usable: SessionsByNetwork<PooledSession>,
    scheme: 'http' | 'https',
    idleMs: number,
    events: SessionEvents,
  ) {
    const now = performance.now()
    this.#endsAt = endOfLife(now)
    this.idleUntil = now + idleMs
    this.#usable = usable
    this.caller = caller
    this.wire = new Http2ClientSession(socket, { limits: LIMITS, scheme, ...events })
    this.#place = place
    place.close = () => {
      this.wire.destroy()
      socket.destroy()
    }
  }

  /** Whether another exchange neither waits for an upload that the upstream does not use, nor is likely to be ended with the session. */
  isGood(now: number): boolean {
    return !this.wire.isStarved && !this.isSpent(now)
  }

  /** Whether it should carry no more once it is idle. */
  isSpent(now: number): boolean {
    return this.wire.isWorn || now >= this.#endsAt
  }

  /** How much an exchange would share with others. */
  burden(now: number): number {
    return this.wire.streams + (this.isGood(now) ? 0 : this.wire.limits.http2Streams)
  }

  restIfIdle(): void {
    if (this.wire.streams > 0) return
    this.#place.rest(performance.now())
    this.#usable.move(this, undefined)
  }

  send(request: UpstreamRequest, response: ResponseSink, headMs: number): RequestSink {
    this.caller = request.caller
    if (this.wire.streams === 0) {
      this.#place.use(request.caller)
      this.#usable.move(this, networkOf(request.caller))
    }
    const sink = this.wire.send(request, response, { headTimeoutMs: headMs })
    this.restIfIdle()
    return sink
  }
}
