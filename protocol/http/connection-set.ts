/** The connections of one listener, whatever their protocol, for bounds and for a graceful end. */

import { ConnectionSlots, type SlotHolder } from '../base/connection-slots.ts'
import { stepOf } from '../base/guard.ts'

/** A connection as its set sees it: idle while no exchange is in progress. */
export interface ManagedConnection extends SlotHolder {
  /**
   * Ends once the exchanges in progress have ended; where there are none, `patienceMs` later: a request may be on its
   * way. What is answered from now on says that the connection ends.
   */
  close(patienceMs: number): void
}

/** Callers who send now and then meet the end of their connection in an answer, not in place of one. */
const MOST_PATIENCE_MS = 2000

/** How long connections still bring requests, of the `graceMs` in which they close. */
export function patienceOf(graceMs: number): number {
  return Math.min(MOST_PATIENCE_MS, graceMs / 2)
}

/** What begins behind those who were there has so long to end, at most half of the grace. */
const MOST_LATE_MS = 10_000
/** So long we wait for a moment without any connection, where new ones come all the time. */
const QUIET_MS = 1000

const destroyAll = stepOf<ConnectionSet>(set => set.destroyAll())

export class ConnectionSet {
  readonly #all = new Set<ManagedConnection>()
  readonly #places: ConnectionSlots
  #closing = false
  #patienceMs = 0
  /** Connections that were there when it began to close. */
  readonly #elders = new Set<ManagedConnection>()
  /** Called whenever a connection has gone. */
  readonly #waiting = new Set<() => void>()

  /** `most`: connections at a time, as far as whoever accepts them asks with {@link makeRoom}. */
  constructor(most: number) {
    this.#places = new ConnectionSlots(most)
  }

  get size(): number {
    return this.#all.size
  }

  /** Whether one more from this address may come; see {@link ConnectionSlots.makeRoom}. */
  makeRoom(address: string): boolean {
    return this.#places.makeRoom(address)
  }

  add(connection: ManagedConnection): void {
    this.#all.add(connection)
    this.#places.add(connection)
    if (this.#closing) connection.close(this.#patienceMs)
  }

  delete(connection: ManagedConnection): void {
    this.#all.delete(connection)
    this.#places.delete(connection)
    this.#elders.delete(connection)
    for (const waiting of this.#waiting) waiting()
  }

  destroyAll(): void {
    for (const connection of this.#all) connection.destroy()
  }

  /**
   * Asks all to end, and `stop`s that more come: at once, or with `last` when those that there are have ended and no other
   * one happens to be open, as far as those who come last have half of `graceMs`, or 10 s. Resolves when all are gone, after `graceMs` at the latest.
   */
  async close(graceMs: number, last: boolean, stop: () => Promise<void>): Promise<void> {
    this.#closing = true
    this.#patienceMs = patienceOf(graceMs)
    for (const connection of this.#all) {
      this.#elders.add(connection)
      connection.close(this.#patienceMs)
    }
    const timer = setTimeout(destroyAll, graceMs, this)
    if (last) {
      const quietMs = Math.min(QUIET_MS, graceMs / 8)
      const openMs = graceMs - Math.min(MOST_LATE_MS, graceMs / 2)
      await this.#until(() => this.#elders.size === 0, openMs - quietMs)
      await this.#until(() => this.#all.size === 0, quietMs)
    }
    await stop()
    await this.#until(() => this.#all.size === 0)
    clearTimeout(timer)
  }

  /** Resolves when `condition` holds, which changes as connections go; or after `mostMs`. */
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

  /** The grace is over: what goes wrong with one does not keep the others. */
  threw(): void {}
}
