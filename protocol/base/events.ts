import { hook } from './guard.ts'
import type { Logger } from './log.ts'

type Listener = (event: never) => unknown

/** Typed events of a handle. `Map` maps names to arguments. A listener that throws or rejects affects nothing else. */
export class Events<Map extends object> {
  /** By event: each listener as given, mapped to its guarded form. */
  readonly #listeners = new globalThis.Map<keyof Map, globalThis.Map<Listener, Listener>>()
  readonly #logger: Logger

  constructor(logger: Logger) {
    this.#logger = logger
  }

  on<Name extends keyof Map>(name: Name, listener: (event: Map[Name]) => void): void {
    const safe = hook(`a listener of "${String(name)}"`, listener as Listener, this.#logger)
    const known = this.#listeners.get(name)
    if (known === undefined) this.#listeners.set(name, new globalThis.Map([[listener as Listener, safe]]))
    else known.set(listener as Listener, safe)
  }

  /** Registers all given listeners, as with `on`. */
  onAll(listeners: { readonly [Name in keyof Map]?: ((event: Map[Name]) => void) | undefined }): void {
    for (const name of Object.keys(listeners) as (keyof Map)[]) {
      const listener = listeners[name]
      if (listener !== undefined) this.on(name, listener)
    }
  }

  off<Name extends keyof Map>(name: Name, listener: (event: Map[Name]) => void): void {
    this.#listeners.get(name)?.delete(listener as Listener)
  }

  emit<Name extends keyof Map>(name: Name, event: Map[Name]): void {
    for (const listener of [...(this.#listeners.get(name)?.values() ?? [])]) {
      ;(listener as (event: Map[Name]) => unknown)(event)
    }
  }
}
