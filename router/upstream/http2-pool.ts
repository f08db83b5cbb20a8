/** HTTP/2 sessions to one `h2c:` target: each carries many exchanges; another is opened when all are full. */

import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { SallyportError } from '../../protocol/errors.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { Http2ClientSession } from '../../protocol/http2/client-session.ts'
import { INNER_LIMITS } from '../../protocol/limits.ts'
import type { Target } from '../target.ts'
import { dial, type SecureContexts } from './dial.ts'
import type { Connection, ConnectionBudget, Opened, Pool } from './pool.ts'
import type { UpstreamRequest } from './types.ts'

export class Http2Pool implements Pool {
  readonly #target: Target
  readonly #contexts: SecureContexts
  readonly #budget: ConnectionBudget
  readonly #idleMs: number
  readonly #sessions = new Set<PooledSession>()
  /** Who waits for the one session that is being opened. */
  readonly #waiting = new Set<Opened>()
  #giveUpDial: (() => void) | undefined
  #closed = false

  constructor(target: Target, contexts: SecureContexts, budget: ConnectionBudget, idleMs: number) {
    this.#target = target
    this.#contexts = contexts
    this.#budget = budget
    this.#idleMs = idleMs
  }

  get size(): number {
    return this.#sessions.size + (this.#giveUpDial === undefined ? 0 : 1)
  }

  get idle(): number {
    let count = 0
    for (const { wire } of this.#sessions) if (wire.streams === 0) count++
    return count
  }

  take(): Connection | undefined {
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
    this.#waiting.add(done)
    if (this.#giveUpDial === undefined) this.#dial(connectMs)
    return () => {
      this.#waiting.delete(done)
      if (this.#waiting.size === 0) this.#giveUp()
    }
  }

  #dial(connectMs: number): void {
    this.#budget.used++
    this.#giveUpDial = dial(this.#target, connectMs, this.#contexts, (error, socket) => {
      this.#giveUpDial = undefined
      const waiting = [...this.#waiting]
      this.#waiting.clear()
      if (socket === undefined) {
        this.#budget.used--
        for (const done of waiting) done(error, undefined)
      } else this.#share(this.#adopt(socket), waiting, connectMs)
    })
  }

  /** Those for whom the new session has no room open another. */
  #share(session: PooledSession, waiting: readonly Opened[], connectMs: number): void {
    for (const done of waiting) {
      if (session.wire.available) done(undefined, session)
      else this.open(connectMs, done)
    }
  }

  #giveUp(): void {
    if (this.#giveUpDial === undefined) return
    this.#giveUpDial()
    this.#giveUpDial = undefined
    this.#budget.used--
  }

  #adopt(socket: Socket): PooledSession {
    const session = new PooledSession(socket, performance.now() + this.#idleMs, this.#onIdle, this.#onClose)
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

class PooledSession implements Connection {
  /** Exchanges share the session: each tells for itself whether it was answered. */
  readonly responseStarted = false
  readonly wire: Http2ClientSession
  idleUntil: number

  constructor(
    socket: Socket,
    idleUntil: number,
    onIdle: (session: PooledSession) => void,
    onClose: (session: PooledSession) => void,
  ) {
    this.idleUntil = idleUntil
    this.wire = new Http2ClientSession(socket, {
      limits: INNER_LIMITS,
      onIdle: () => onIdle(this),
      onClose: () => onClose(this),
    })
  }

  send(request: UpstreamRequest, response: ResponseSink, headMs: number): RequestSink {
    return this.wire.send(request, response, { headTimeoutMs: headMs })
  }
}
