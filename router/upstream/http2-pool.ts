/** HTTP/2 sessions to one target: each carries many exchanges; another is opened when all are full. */

import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { performance } from 'node:perf_hooks'
import { SallyportError } from '../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { Http2ClientSession } from '../../protocol/http/http2/client-session.ts'
import { INNER_LIMITS } from '../../protocol/http/limits.ts'
import type { UpstreamTarget } from '../target.ts'
import { dialUpstream, type SecureContexts } from './dial.ts'
import type { Http1Pool } from './http1-pool.ts'
import type { PooledUpstream, ConnectionBudget, Opened, Pool } from './pool.ts'
import type { UpstreamRequest } from './types.ts'

/** One who waits for a session, and how it gives up what it waits for instead. */
interface Waiter {
  readonly connectMs: number
  readonly done: Opened
  elsewhere: (() => void) | undefined
  gone: boolean
}

export class Http2Pool implements Pool {
  readonly #target: UpstreamTarget
  readonly #contexts: SecureContexts
  readonly #budget: ConnectionBudget
  readonly #idleMs: number
  /** Takes the connection where its target chooses HTTP/1.1. */
  readonly #http1: Http1Pool | undefined
  readonly #sessions = new Set<PooledSession>()
  /** Who waits for the one session that is being opened. */
  readonly #waiting = new Set<Waiter>()
  #giveUpDial: (() => void) | undefined
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
    return this.#sessions.size + (this.#giveUpDial === undefined ? 0 : 1)
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

  open(connectMs: number, done: Opened): () => void {
    const refused = this.#giveUpDial === undefined ? this.#budget.refuse(this.size) : undefined
    if (refused !== undefined || this.#closed) {
      done(refused ?? new SallyportError('overloaded', 'the router is closed'), undefined)
      return () => {}
    }
    const waiter: Waiter = { connectMs, done, elsewhere: undefined, gone: false }
    this.#waiting.add(waiter)
    if (this.#giveUpDial === undefined) this.#dial(connectMs)
    return () => {
      waiter.gone = true
      waiter.elsewhere?.()
      if (this.#waiting.delete(waiter) && this.#waiting.size === 0) this.#giveUp()
    }
  }

  #dial(connectMs: number): void {
    this.#budget.used++
    this.#giveUpDial = dialUpstream(this.#target, connectMs, this.#contexts, (error, socket) => {
      this.#giveUpDial = undefined
      const waiting = [...this.#waiting]
      this.#waiting.clear()
      if (socket === undefined) {
        this.#budget.used--
        for (const { done } of waiting) done(error, undefined)
      } else if (this.#http1 !== undefined && (socket as TLSSocket).alpnProtocol !== 'h2') {
        handOver(this.#http1, socket, waiting)
      } else this.#share(this.#adopt(socket), waiting)
    })
  }

  /** Those for whom the new session has no room open another. */
  #share(session: PooledSession, waiting: readonly Waiter[]): void {
    for (const waiter of waiting) {
      if (waiter.gone) continue
      if (session.wire.available) waiter.done(undefined, session)
      else waiter.elsewhere = this.open(waiter.connectMs, waiter.done)
    }
  }

  #giveUp(): void {
    if (this.#giveUpDial === undefined) return
    this.#giveUpDial()
    this.#giveUpDial = undefined
    this.#budget.used--
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
    else if (!waiter.gone) waiter.elsewhere = http1.open(waiter.connectMs, waiter.done)
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
