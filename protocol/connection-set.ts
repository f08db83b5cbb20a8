/** The connections of one listener, whatever their protocol, for bounds and for a graceful end. */
import { type Guest, Places } from './places.ts'

/** It is idle while no exchange is in progress. */
export interface ManagedConnection extends Guest {
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

export class ConnectionSet {
  readonly #all = new Set<ManagedConnection>()
  readonly #places: Places
  #closing = false
  #patienceMs = 0
  readonly #onEmpty: (() => void)[] = []

  /** `most`: connections at a time, as far as whoever accepts them asks with {@link makeRoom}. */
  constructor(most: number) {
    this.#places = new Places(most)
  }

  get size(): number {
    return this.#all.size
  }

  /** Whether one more from this address may come; see {@link Places.makeRoom}. */
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
    if (this.#all.size === 0) for (const resolve of this.#onEmpty.splice(0)) resolve()
  }

  closeIdle(): void {
    for (const connection of this.#all) if (connection.idle) connection.close(0)
  }

  destroyAll(): void {
    for (const connection of this.#all) connection.destroy()
  }

  /** Resolves once `lastComes` has and all connections are gone, which they are after `graceMs` at the latest. */
  async close(graceMs: number, lastComes?: Promise<void>): Promise<void> {
    this.#closing = true
    this.#patienceMs = patienceOf(graceMs)
    for (const connection of this.#all) connection.close(this.#patienceMs)
    const timer = setTimeout(() => this.destroyAll(), graceMs)
    await lastComes
    await new Promise<void>(resolve => {
      if (this.#all.size === 0) resolve()
      else this.#onEmpty.push(resolve)
    })
    clearTimeout(timer)
  }
}
