/** HTTP/1.1 connections to one target. The one that became idle last is used first, unless the target ends them early. */

import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { ByteCache } from '../../protocol/base/byte-cache.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { resetSocket } from '../../protocol/base/reset-socket.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { Http1ClientConnection } from '../../protocol/http/http1/client-connection.ts'
import type { Head } from '../../protocol/http/http1/head-parser.ts'
import type { SocketReader } from '../../protocol/http/http1/socket-reader.ts'
import { INNER_LIMITS } from '../../protocol/http/limits.ts'
import type { UpstreamTarget } from '../target.ts'
import { dialUpstream, type SecureContexts } from './dial.ts'
import type { Place, TargetConnections } from './places.ts'
import { endOfLife, type OnOpened, type Pool, type PooledUpstream } from './pool.ts'
import type { UpstreamRequest } from './types.ts'
import { UnansweredConnections } from './unanswered-connections.ts'

/**
 * Some servers end each connection behind its answer and do not say so (uWSGI). A request that comes before that is lost, unless it may be
 * sent again. So once a target has ended a connection this early, behind its first answer, only those are used that it has left open for a
 * while, until it has answered on one of them. This is remembered for ten minutes. One that restarts ends mostly connections that have been
 * used again. It must not get many new ones for that, since each may hold one of its workers.
 */
const EARLY_MS = 1_000
const LEFT_OPEN_MS = 250
const WARY_MS = 600_000

/** If the handshakes of a target are slow, each connection that ends for one causes the next one. */
const ROOMS_PER_HANDSHAKE = 4

export class Http1Pool implements Pool {
  readonly #target: UpstreamTarget
  readonly #contexts: SecureContexts
  readonly #connections: TargetConnections
  readonly #idleMs: number
  readonly #reader: SocketReader
  readonly #heads = new ByteCache<Head>()
  readonly #idle: PooledConnection[] = []
  readonly #unanswered = new UnansweredConnections()
  #open = 0
  #dialling = 0
  #waryUntil = 0
  #closed = false

  constructor(
    target: UpstreamTarget,
    contexts: SecureContexts,
    connections: TargetConnections,
    idleMs: number,
    reader: SocketReader,
  ) {
    this.#target = target
    this.#contexts = contexts
    this.#connections = connections
    this.#idleMs = idleMs
    this.#reader = reader
  }

  get size(): number {
    return this.#open + this.#dialling
  }

  get idle(): number {
    return this.#idle.length
  }

  take(caller: string): PooledUpstream | undefined {
    if (this.#connections.isGreedy(caller)) return undefined
    const now = performance.now()
    const isWary = now < this.#waryUntil && this.#connections.refuse(caller) === undefined
    for (;;) {
      if (isWary && (this.#idle[0]?.idleAt ?? now) > now - LEFT_OPEN_MS) return undefined
      const connection = isWary ? this.#idle.shift() : this.#idle.pop()
      if (connection === undefined) return undefined
      if (connection.wire.fresh(now)) return connection
      connection.wire.destroy()
    }
  }

  open(caller: string, connectMs: number, done: OnOpened): () => void {
    const refused = this.#connections.refuse(caller)
    if (refused !== undefined || this.#closed) {
      done(refused ?? new SallyportError('overloaded', 'the router is closed'), undefined)
      return () => {}
    }
    const place = this.#connections.add(caller)
    this.#dialling++
    const handshake = { responseStarted: false, openedAt: 0, rooms: ROOMS_PER_HANDSHAKE }
    const onTls = (): void => {
      handshake.openedAt = performance.now()
      this.#unanswered.add(handshake)
    }
    const onOver = (): void => {
      this.#dialling--
      this.#unanswered.delete(handshake)
    }
    const opened = (error: SallyportError | undefined, socket: Socket | undefined): void => {
      onOver()
      if (socket === undefined) {
        place.end()
        done(error, undefined)
      } else this.adopt(socket, place, caller, done)
    }
    const giveUp = dialUpstream(this.#target, caller, connectMs, this.#contexts, opened, onTls)
    return () => {
      onOver()
      giveUp()
      place.end()
    }
  }

  /** Adds a connection for `caller`, which has its place already. */
  adopt(socket: Socket, place: Place, caller: string, done: OnOpened): void {
    const address = this.#connections.keptPorts.addressOf(socket)
    const refused = this.#connections.refuseFor(caller, address)
    if (refused !== undefined) {
      resetSocket(socket)
      place.end()
      done(refused, undefined)
      return
    }
    this.#open++
    place.use(caller)
    const onPortKept = ({ caller }: PooledConnection): void => {
      if (address !== undefined) this.#connections.keptPorts.add(address, caller)
    }
    const onClose = (connection: PooledConnection): void => {
      place.endWith(socket)
      this.#onClose(connection)
    }
    const hooks = [this.#onIdle, onClose, onPortKept] as const
    const connection = new PooledConnection(socket, place, this.#reader, this.#heads, ...hooks)
    this.#unanswered.add(connection)
    place.close = () => {
      const at = this.#idle.indexOf(connection)
      if (at !== -1) this.#idle.splice(at, 1)
      connection.wire.cut()
    }
    done(undefined, connection)
  }

  readonly #onIdle = (connection: PooledConnection): void => {
    connection.idleAt = performance.now()
    this.#unanswered.delete(connection)
    if (connection.wire.exchanges > 1) this.#waryUntil = 0
    const mayStay =
      !this.#closed &&
      connection.idleAt < connection.endsAt &&
      connection.wire.rest(this.#idleMs) &&
      !this.#unanswered.needsRoom(connection.sentAt)
    if (!mayStay) {
      connection.wire.destroy()
      return
    }
    this.#idle.push(connection)
    connection.place.rest(connection.idleAt)
  }

  readonly #onClose = (connection: PooledConnection): void => {
    this.#open--
    this.#unanswered.delete(connection)
    const at = this.#idle.lastIndexOf(connection)
    if (at === -1) return
    this.#idle.splice(at, 1)
    const now = performance.now()
    // Those that may not be used any more are closed by us.
    const byTarget = now < connection.wire.idleUntil
    const early = connection.wire.exchanges === 1 && now < connection.idleAt + EARLY_MS
    if (byTarget && early) this.#waryUntil = now + WARY_MS
  }

  sweep(now: number): boolean {
    for (const connection of this.#idle.filter(({ wire }) => !wire.fresh(now))) connection.wire.destroy()
    const settled = now - LEFT_OPEN_MS
    while ((this.#idle[0]?.idleAt ?? now) <= settled && this.#unanswered.needsRoom(now))
      this.#idle.shift()!.wire.destroy()
    // Captured names could otherwise make any number of targets that are kept.
    return this.#connections.open === 0 && (this.#target.captured || now >= this.#waryUntil)
  }

  close(): void {
    this.#closed = true
    for (const connection of this.#idle.slice()) connection.wire.destroy()
  }
}

class PooledConnection implements PooledUpstream {
  readonly wire: Http1ClientConnection
  readonly place: Place
  /** Of its last exchange. */
  caller = ''
  /** When that was sent, and when it ended. */
  sentAt = 0
  idleAt = 0
  readonly openedAt = performance.now()
  readonly endsAt = endOfLife(this.openedAt)
  readonly rooms = 1

  constructor(
    socket: Socket,
    place: Place,
    reader: SocketReader,
    heads: ByteCache<Head>,
    onIdle: (connection: PooledConnection) => void,
    onClose: (connection: PooledConnection) => void,
    onPortKept: (connection: PooledConnection) => void,
  ) {
    this.place = place
    this.wire = new Http1ClientConnection(socket, {
      limits: INNER_LIMITS,
      reader,
      heads,
      onIdle: () => onIdle(this),
      onClose: () => onClose(this),
      onPortKept: () => onPortKept(this),
    })
  }

  get responseStarted(): boolean {
    return this.wire.responseStarted
  }

  send(request: UpstreamRequest, response: ResponseSink, headMs: number): RequestSink {
    this.caller = request.caller
    this.place.use(request.caller)
    this.sentAt = performance.now()
    return this.wire.send(request, response, { headTimeoutMs: headMs })
  }
}
