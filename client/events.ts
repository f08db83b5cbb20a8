type Listener = (event: never) => void

/** Typed events of a handle: `Map` has a name and what is told for each. A listener that throws harms nobody. */
export class Events<Map extends object> {
  readonly #listeners = new globalThis.Map<keyof Map, Set<Listener>>()
  readonly #onError: (error: unknown) => void

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError
  }

  on<Name extends keyof Map>(name: Name, listener: (event: Map[Name]) => void): void {
    const known = this.#listeners.get(name)
    if (known === undefined) this.#listeners.set(name, new Set([listener]))
    else known.add(listener)
  }

  /** As `on`, for each listener that is given. */
  onAll(listeners: { readonly [Name in keyof Map]?: ((event: Map[Name]) => void) | undefined }): void {
    for (const name of Object.keys(listeners) as (keyof Map)[]) {
      const listener = listeners[name]
      if (listener !== undefined) this.on(name, listener)
    }
  }

  off<Name extends keyof Map>(name: Name, listener: (event: Map[Name]) => void): void {
    this.#listeners.get(name)?.delete(listener)
  }

  emit<Name extends keyof Map>(name: Name, event: Map[Name]): void {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        ;(listener as (event: Map[Name]) => void)(event)
      } catch (error) {
        this.#onError(error)
      }
    }
  }
}
