/** HTTP/2 sessions to one target: each carries many exchanges; another is opened when all are full. */

import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { performance } from 'node:perf_hooks'
import { networkOf } from '../../protocol/base/address.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { Http2ClientSession } from '../../protocol/http/http2/client-session.ts'
import { INNER_LIMITS } from '../../protocol/http/limits.ts'
import type { UpstreamTarget } from '../target.ts'
import { dialUpstream, type SecureContexts } from './dial.ts'
import type { Http1Pool } from './http1-pool.ts'
import type { PooledUpstream, ConnectionBudget, OnOpened, Pool } from './pool.ts'
import type { UpstreamRequest } from './types.ts'

/** One who waits for a session, and how it gives up what it waits for instead. */
interface Waiter {
  readonly caller: string
  readonly connectMs: number
  readonly done: OnOpened
  elsewhere: (() => void) | undefined
  gone: boolean
}

/** A session that is being opened. */
interface Dial {
  readonly waiting: Set<Waiter>
  readonly giveUp: () => void
}

export class Http2Pool implements Pool {
  readonly #target: UpstreamTarget
  readonly #contexts: SecureContexts
  readonly #budget: ConnectionBudget
  readonly #idleMs: number
  /** Takes the connection where its target chooses HTTP/1.1. */
  readonly #http1: Http1Pool | undefined
  readonly #sessions = new Set<PooledSession>()
  /** One for all who wait; to a captured name one for each network, as their lookups may not take equally long. */
  readonly #dials = new Map<string, Dial>()
  #closed = false

  constructor(
    target: UpstreamTarget,
    contexts: SecureContexts,
    budget: ConnectionBudget,
    idleMs: number,
    http1?: Http1Pool,
  ) {
    this.#target = target
    this.#contexts = contexts
    this.#budget = budget
    this.#idleMs = idleMs
    this.#http1 = http1
  }

  get size(): number {
    return this.#sessions.size + this.#dials.size
  }

  get idle(): number {
    let count = 0
    for (const { wire } of this.#sessions) if (wire.streams === 0) count++
    return count
  }

  take(): PooledUpstream | undefined {
    const now = performance.now()
    for (const session of this.#sessions) {
      if (!session.wire.available) continue
      if (session.wire.streams > 0 || now < session.idleUntil) return session
      session.wire.close()
    }
    return undefined
  }

  open(caller: string, connectMs: number, done: OnOpened): () => void {
    const key = this.#target.captured ? networkOf(caller) : ''
    const dial = this.#dials.get(key)
    const refused = dial === undefined ? this.#budget.refuse(this.size) : undefined
    if (refused !== undefined || this.#closed) {
      done(refused ?? new SallyportError('overloaded', 'the router is closed'), undefined)
      return () => {}
    }
    const waiter: Waiter = { caller, connectMs, done, elsewhere: undefined, gone: false }
    const { waiting, giveUp } = dial ?? this.#dial(key, caller, connectMs)
    waiting.add(waiter)
    return () => {
      waiter.gone = true
      waiter.elsewhere?.()
      if (waiting.delete(waiter) && waiting.size === 0) giveUp()
    }
  }

  #dial(key: string, caller: string, connectMs: number): Dial {
    const waiting = new Set<Waiter>()
    this.#budget.used++
    const giveUpDial = dialUpstream(this.#target, caller, connectMs, this.#contexts, (error, socket) => {
      this.#dials.delete(key)
      const waiters = [...waiting]
      waiting.clear()
      if (socket === undefined) {
        this.#budget.used--
        for (const { done } of waiters) done(error, undefined)
      } else if (this.#http1 !== undefined && (socket as TLSSocket).alpnProtocol !== 'h2') {
        handOver(this.#http1, socket, waiters)
      } else this.#share(this.#adopt(socket), waiters)
    })
    const giveUp = () => {
      this.#dials.delete(key)
      this.#budget.used--
      giveUpDial()
    }
    const dial = { waiting, giveUp }
    this.#dials.set(key, dial)
    return dial
  }

  /** Those for whom the new session has no room open another. */
  #share(session: PooledSession, waiting: readonly Waiter[]): void {
    for (const waiter of waiting) {
      if (waiter.gone) continue
      if (session.wire.available) waiter.done(undefined, session)
      else waiter.elsewhere = this.open(waiter.caller, waiter.connectMs, waiter.done)
    }
  }

  #adopt(socket: Socket): PooledSession {
    const scheme = this.#target.protocol === 'https' ? 'https' : 'http'
    const session = new PooledSession(socket, scheme, performance.now() + this.#idleMs, this.#onIdle, this.#onClose)
    this.#sessions.add(session)
    return session
  }

  readonly #onIdle = (session: PooledSession): void => {
    session.idleUntil = performance.now() + this.#idleMs
    if (this.#closed) session.wire.close()
  }

  readonly #onClose = (session: PooledSession): void => {
    if (this.#sessions.delete(session)) this.#budget.used--
  }

  sweep(now: number): boolean {
    for (const { wire, idleUntil } of this.#sessions) if (wire.streams === 0 && idleUntil <= now) wire.close()
    return this.size === 0
  }

  close(): void {
    this.#closed = true
    for (const { wire } of this.#sessions) wire.close()
  }
}

/** The target speaks HTTP/1.1: one of them gets the connection, each other one of its own. */
function handOver(http1: Http1Pool, socket: Socket, waiting: readonly Waiter[]): void {
  const connection = http1.adopt(socket)
  for (const [i, waiter] of waiting.entries()) {
    if (i === 0) waiter.done(undefined, connection)
    else if (!waiter.gone) waiter.elsewhere = http1.open(waiter.caller, waiter.connectMs, waiter.done)
  }
}

class PooledSession implements PooledUpstream {
  /** Exchanges share the session: each tells for itself whether it was answered. */
  readonly responseStarted = false
  readonly wire: Http2ClientSession
  idleUntil: number

  constructor(
    socket: Socket,
    scheme: 'http' | 'https',
    idleUntil: number,
    onIdle: (session: PooledSession) => void,
    onClose: (session: PooledSession) => void,
  ) {
    this.idleUntil = idleUntil
    this.wire = new Http2ClientSession(socket, {
      limits: INNER_LIMITS,
      scheme,
      onIdle: () => onIdle(this),
      onClose: () => onClose(this),
    })
  }

  send(request: UpstreamRequest, response: ResponseSink, headMs: number): RequestSink {
    return this.wire.send(request, response, { headTimeoutMs: headMs })
  }
}
