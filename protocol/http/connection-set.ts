/** The connections of one listener, whatever their protocol: limits and graceful end. */

import { networkOf } from '../base/address.ts'
import { type BufferBudget, createBufferBudget } from '../base/budget.ts'
import { ConnectionSlots, type SlotHolder } from '../base/connection-slots.ts'
import type { ErrorCode } from '../base/errors.ts'
import { guardWith, ignore } from '../base/guard.ts'

/** A connection, as its set sees it. It is idle while no exchange is in progress. */
export interface ManagedConnection extends SlotHolder {
  /**
   * Ends once the exchanges in progress have ended. Answers that begin from now on announce that. If there is none, a request may
   * be on its way, so the connection ends `patienceMs` later; but at once if that is after `patientUntil`.
   */
  close(patienceMs: number, patientUntil: number): void
  /** Ends at once. Exchanges in progress end with `why`. */
  destroy(why: ErrorCode): void
}

/** Callers that send now and then should learn of the end of their connection from an answer, not instead of one. */
const MOST_PATIENCE_MS = 2000

/** How long connections may still bring requests while they close within `graceMs`. */
export function patienceOf(graceMs: number): number {
  return Math.min(MOST_PATIENCE_MS, graceMs / 2)
}

/** The most that all connections may hold for requests and for answers, and those over HTTP/2 also for their sockets. */
const MAX_UNREAD_BYTES = 256 * 1024 * 1024

/** Time for connections that arrive late, but at most half of the grace. */
const MOST_LATE_MS = 10_000
/** How long we wait for a moment without any connection if new ones keep arriving. */
const QUIET_MS = 1000

/** An error in ending one connection must not keep the others. */
const guard = guardWith(ignore)
const close = guard((connection: ManagedConnection, ...patience: [number, number]) => connection.close(...patience))
const destroy = guard((connection: ManagedConnection) => connection.destroy('shutting-down'))
const destroyAll = guard((set: ConnectionSet) => set.destroyAll())

export class ConnectionSet {
  /** What they hold for requests, and for answers that their callers do not take. At the ceiling, the network that holds the most loses some. */
  readonly unread: BufferBudget
  readonly #unreadOf = new Map<string, BufferBudget>()
  readonly #all = new Set<ManagedConnection>()
  readonly #slots: ConnectionSlots
  #closing = false
  #patience: [ms: number, until: number] = [0, 0]
  /** Connections that were open when closing began. */
  readonly #present = new Set<ManagedConnection>()
  /** Called whenever a connection has gone. */
  readonly #waiting = new Set<() => void>()

  /** `most`: most connections at a time, enforced by {@link makeRoom}. */
  constructor(most: number, unreadBytes = MAX_UNREAD_BYTES) {
    this.#slots = new ConnectionSlots(most)
    this.unread = createBufferBudget(unreadBytes)
  }

  get size(): number {
    return this.#all.size
  }

  /** Whether one more from this address may come; see {@link ConnectionSlots.makeRoom}. */
  makeRoom(address: string): boolean {
    return this.#slots.makeRoom(address)
  }

  /** The part of {@link unread} that connections from this address belong to. Of them, the one that holds the most loses some first. */
  unreadOf(address: string): BufferBudget {
    const network = networkOf(address)
    const known = this.#unreadOf.get(network)
    if (known !== undefined) return known
    const { unread } = this
    const budget = createBufferBudget(unread.limitBytes, unread, () => this.#unreadOf.delete(network))
    this.#unreadOf.set(network, budget)
    return budget
  }

  add(connection: ManagedConnection): void {
    this.#all.add(connection)
    this.#slots.add(connection)
    if (this.#closing) connection.close(...this.#patience)
  }

  delete(connection: ManagedConnection): void {
    this.#all.delete(connection)
    this.#slots.delete(connection)
    this.#present.delete(connection)
    for (const waiting of this.#waiting) waiting()
  }

  destroyAll(): void {
    for (const connection of this.#all) destroy(connection)
  }

  /**
   * Asks all connections to end, and calls `stop` so that no more arrive: at once, or with `last` once the present ones have ended
   * and no other is open, but early enough to leave late ones half of `graceMs`, at most 10 s. Resolves when all are gone, after
   * `graceMs` at the latest.
   */
  async close(graceMs: number, last: boolean, stop: () => Promise<void>): Promise<void> {
    this.#closing = true
    this.#patience = [patienceOf(graceMs), performance.now() + graceMs / 2]
    for (const connection of this.#all) {
      this.#present.add(connection)
      close(connection, ...this.#patience)
    }
    const timer = setTimeout(destroyAll, graceMs, this)
    if (last) {
      const quietMs = Math.min(QUIET_MS, graceMs / 8)
      const openMs = graceMs - Math.min(MOST_LATE_MS, graceMs / 2)
      await this.#until(() => this.#present.size === 0, openMs - quietMs)
      await this.#until(() => this.#all.size === 0, quietMs)
    }
    await stop()
    await this.#until(() => this.#all.size === 0)
    clearTimeout(timer)
  }

  /** Resolves when `condition` holds, which is checked as connections end, or after `mostMs`. */
  async #until(condition: () => boolean, mostMs?: number): Promise<void> {
    if (condition()) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiting = () => condition() && resolve()
    this.#waiting.add(waiting)
    const late = mostMs === undefined ? undefined : setTimeout(resolve, mostMs)
    await promise
    clearTimeout(late)
    this.#waiting.delete(waiting)
  }
}
