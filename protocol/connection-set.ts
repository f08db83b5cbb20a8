/** The connections of one listener, whatever their protocol, for bounds and for a graceful end. */
export interface ManagedConnection {
  /** Whether no exchange is in progress. */
  readonly idle: boolean
  /**
   * Ends once the exchanges in progress have ended; where there are none, `patienceMs` later: a request may be on its
   * way. What is answered from now on says that the connection ends.
   */
  close(patienceMs: number): void
  /** Ends at once. */
  destroy(): void
}

/** Callers who send now and then meet the end of their connection in an answer, not in place of one. */
const MOST_PATIENCE_MS = 2000

/** How long connections still bring requests, of the `graceMs` in which they close. */
export function patienceOf(graceMs: number): number {
  return Math.min(MOST_PATIENCE_MS, graceMs / 2)
}

export class ConnectionSet {
  readonly #all = new Set<ManagedConnection>()
  #closing = false
  #patienceMs = 0
  #onEmpty: (() => void) | undefined

  get size(): number {
    return this.#all.size
  }

  get closing(): boolean {
    return this.#closing
  }

  add(connection: ManagedConnection): void {
    this.#all.add(connection)
    if (this.#closing) connection.close(this.#patienceMs)
  }

  delete(connection: ManagedConnection): void {
    this.#all.delete(connection)
    if (this.#all.size === 0) this.#onEmpty?.()
  }

  closeIdle(): void {
    for (const connection of this.#all) if (connection.idle) connection.close(0)
  }

  destroyAll(): void {
    for (const connection of this.#all) connection.destroy()
  }

  /** Resolves once all connections are gone, which is after `graceMs` at the latest. */
  close(graceMs: number): Promise<void> {
    this.#closing = true
    this.#patienceMs = patienceOf(graceMs)
    for (const connection of this.#all) connection.close(this.#patienceMs)
    if (this.#all.size === 0) return Promise.resolve()
    return new Promise(resolve => {
      const timer = setTimeout(() => this.destroyAll(), graceMs)
      this.#onEmpty = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }
}
