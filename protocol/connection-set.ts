/** The connections of one listener, whatever their protocol, for bounds and for a graceful end. */
export interface ManagedConnection {
  /** Whether no exchange is in progress. */
  readonly idle: boolean
  /** Ends once the exchanges in progress have ended; at once if there are none. New ones are told to go elsewhere. */
  close(): void
  /** Ends at once. */
  destroy(): void
}

export class ConnectionSet {
  readonly #all = new Set<ManagedConnection>()
  #closing = false
  #onEmpty: (() => void) | undefined

  get size(): number {
    return this.#all.size
  }

  get closing(): boolean {
    return this.#closing
  }

  add(connection: ManagedConnection): void {
    this.#all.add(connection)
    if (this.#closing) connection.close()
  }

  delete(connection: ManagedConnection): void {
    this.#all.delete(connection)
    if (this.#all.size === 0) this.#onEmpty?.()
  }

  closeIdle(): void {
    for (const connection of this.#all) if (connection.idle) connection.close()
  }

  destroyAll(): void {
    for (const connection of this.#all) connection.destroy()
  }

  /** Resolves once all connections are gone, which is after `graceMs` at the latest. */
  close(graceMs: number): Promise<void> {
    this.#closing = true
    for (const connection of this.#all) connection.close()
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
