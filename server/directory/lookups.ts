/**
 * Asks the store about runtimes: one question per runtime at a time, and a pause after a question without an answer. If the store cannot
 * say, the other replicas are asked, since they know at least the runtimes that have sessions there.
 */
import { AgedMap } from '../aged-map.ts'
import type { RuntimeState } from './directory.ts'

type Found = RuntimeState | 'unknown' | undefined

interface LookupOwner {
  /** Whether the store can be asked. */
  isOpen(): boolean
  /** Asks the store, and learns its answer. Rejects if it cannot say. */
  look(runtime: string): Promise<void>
  /** What may be acted on now. */
  find(runtime: string): Found
  /** Asks the other replicas, and learns their answers. Resolves to whether any of them knows the runtime. `undefined` if none can be asked. */
  askOthers(runtime: string): Promise<boolean> | undefined
  now(): number
}

const ASK_AGAIN_MS = 100
/** How soon the other replicas are asked about the same runtime again. They tell by themselves if they learn of it meanwhile. */
const ASK_OTHERS_AGAIN_MS = 2000
/** Most runtimes that the others are asked about at a time, and for which it is remembered when they were. */
const MAX_ASKED = 1000
const MAX_REMEMBERED = 10_000

export class Lookups {
  readonly #owner: LookupOwner
  readonly #asked = new Map<string, Promise<Found>>()
  #pausing: Promise<void> | undefined
  /** When the other replicas were last asked about a runtime. */
  readonly #othersAskedMs = new AgedMap<number>()
  #askingOthers = 0

  constructor(owner: LookupOwner) {
    this.#owner = owner
  }

  /**
   * Asks the store. Resolves, in bounded time, to what `find` says then, or to `undefined` if the store cannot say and the other replicas
   * do not know the runtime either.
   */
  refresh(runtime: string): Promise<Found> {
    const owner = this.#owner
    if (!owner.isOpen() && owner.find(runtime) !== 'unknown') return this.later().then(() => owner.find(runtime))
    let asked = this.#asked.get(runtime)
    if (asked === undefined) {
      asked = this.#ask(runtime).finally(() => this.#asked.delete(runtime))
      this.#asked.set(runtime, asked)
    }
    return asked
  }

  async #ask(runtime: string): Promise<Found> {
    const owner = this.#owner
    try {
      if (owner.isOpen()) await owner.look(runtime)
    } catch {
      // The link broke, or the store may have forgotten it. We go on with what is known.
    }
    const isMiss = owner.find(runtime) === 'unknown' && (await this.#isNowhere(runtime))
    if (owner.find(runtime) === 'unknown') await this.later()
    const found = owner.find(runtime)
    return found === 'unknown' && isMiss ? undefined : found
  }

  /** Asks the other replicas, unless they were asked a moment ago. True the first time that none of them knows the runtime. */
  async #isNowhere(runtime: string): Promise<boolean> {
    const nowMs = this.#owner.now()
    const askedMs = this.#othersAskedMs.get(runtime)
    const isEarly = askedMs !== undefined && nowMs - askedMs < ASK_OTHERS_AGAIN_MS
    const answers = isEarly || this.#askingOthers >= MAX_ASKED ? undefined : this.#owner.askOthers(runtime)
    if (answers === undefined) return false
    this.#othersAskedMs.putWithin(MAX_REMEMBERED, runtime, nowMs)
    this.#askingOthers++
    const isKnown = await answers.finally(() => this.#askingOthers--)
    return !isKnown && askedMs === undefined
  }

  /** Callers will ask again, after a pause that they share. */
  later(): Promise<void> {
    this.#pausing ??= new Promise<void>(resolve => setTimeout(resolve, ASK_AGAIN_MS).unref()).finally(() => {
      this.#pausing = undefined
    })
    return this.#pausing
  }
}
