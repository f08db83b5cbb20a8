/** What a server tells its embedder, as typed events. */
import type { Refusal } from './control/endpoint.ts'
import type { SessionInfo } from './stats.ts'

export interface ServerEvents {
  /** A client said hello. */
  session: SessionInfo
  /** Its session may now carry traffic. */
  ready: SessionInfo
  sessionEnded: SessionInfo & { readonly reason: string }
  /** A client was not let in. `detail` is for logs: it is never told to the client. */
  refused: Refusal
}

type Listener<T> = (event: T) => void

/** A listener that throws is logged; it harms nobody. */
export class Events<Map extends object> {
  readonly #listeners = new globalThis.Map<keyof Map, Set<Listener<never>>>()
  readonly #onError: (error: unknown) => void

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError
  }

  on<Name extends keyof Map>(name: Name, listener: Listener<Map[Name]>): void {
    const listeners = this.#listeners.get(name) ?? new Set()
    this.#listeners.set(name, listeners.add(listener as Listener<never>))
  }

  off<Name extends keyof Map>(name: Name, listener: Listener<Map[Name]>): void {
    this.#listeners.get(name)?.delete(listener as Listener<never>)
  }

  emit<Name extends keyof Map>(name: Name, event: Map[Name]): void {
    for (const listener of this.#listeners.get(name) ?? []) {
      try {
        ;(listener as Listener<Map[Name]>)(event)
      } catch (error) {
        this.#onError(error)
      }
    }
  }
}
