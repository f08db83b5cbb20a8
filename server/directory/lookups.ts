/** Asks the store about runtimes: one question per runtime at a time, and a pause after a question without an answer. */
import type { RuntimeState } from './directory.ts'

type Found = RuntimeState | 'unknown' | undefined

interface LookupOwner {
  /** Whether the store can be asked. */
  isOpen(): boolean
  /** Asks the store, and learns its answer. Rejects if the link breaks. */
  look(runtime: string): Promise<void>
  /** What may be acted on now. */
  find(runtime: string): Found
}

const ASK_AGAIN_MS = 100

export class Lookups {
  readonly #owner: LookupOwner
  readonly #asked = new Map<string, Promise<Found>>()
  #pausing: Promise<void> | undefined

  constructor(owner: LookupOwner) {
    this.#owner = owner
  }

  /** Asks the store. Resolves, in bounded time, to what `find` says then. */
  refresh(runtime: string): Promise<Found> {
    if (!this.#owner.isOpen()) return this.later().then(() => this.#owner.find(runtime))
    let asked = this.#asked.get(runtime)
    if (asked === undefined) {
      asked = this.#ask(runtime).finally(() => this.#asked.delete(runtime))
      this.#asked.set(runtime, asked)
    }
    return asked
  }

  async #ask(runtime: string): Promise<Found> {
    try {
      await this.#owner.look(runtime)
    } catch {
      // The link broke. We go on with what is known.
    }
    if (this.#owner.find(runtime) === 'unknown') await this.later()
    return this.#owner.find(runtime)
  }

  /** Callers will ask again, after a pause that they share. */
  later(): Promise<void> {
    this.#pausing ??= new Promise<void>(resolve => setTimeout(resolve, ASK_AGAIN_MS).unref()).finally(() => {
      this.#pausing = undefined
    })
    return this.#pausing
  }
}
