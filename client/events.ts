type Listener = (...args: unknown[]) => void

/** Typed events of a small handle: names and their arguments are one interface. */
export class Events<Map extends { [Name in keyof Map]: unknown[] }> {
  readonly #listeners = new Map<keyof Map, Set<Listener>>()

  /** Calls `listener` at each `name` until `off`. */
  on<Name extends keyof Map>(name: Name, listener: (...args: Map[Name]) => void): void {
    const known = this.#listeners.get(name)
    if (known === undefined) this.#listeners.set(name, new Set([listener as Listener]))
    else known.add(listener as Listener)
  }

  off<Name extends keyof Map>(name: Name, listener: (...args: Map[Name]) => void): void {
    this.#listeners.get(name)?.delete(listener as Listener)
  }

  emit<Name extends keyof Map>(name: Name, ...args: Map[Name]): void {
    const known = this.#listeners.get(name)
    if (known === undefined) return
    for (const listener of [...known]) listener(...args)
  }
}
