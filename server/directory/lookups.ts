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
  /** Whether any other replica can be asked. */
  canAskOthers(): boolean
  /** Asks the other replicas, and learns their answers. Resolves to whether any of them knows the runtime. */
  askOthers(runtime: string): Promise<boolean>
  now(): number
}

const ASK_AGAIN_MS = 100
/** How soon the other replicas are asked about the same runtime again. They tell by themselves if they learn of it meanwhile. */
const ASK_OTHERS_AGAIN_MS = 2000
/** How soon a runtime that nobody knows is a miss again. Until then, whoever waits for it may go on asking. */
const MISS_AGAIN_MS = 10_000
/** Most runtimes that the others are asked about at a time, and for which it is remembered when they were. */
const MAX_ASKED = 1000
const MAX_REMEMBERED = 10_000

/** When the other replicas were last asked about a runtime. */
interface OthersAsked {
  readonly askedMs: number
  /** When it last was a miss, unless somebody knew it. */
  readonly missedMs: number
}

export class Lookups {
  readonly #owner: LookupOwner
  readonly #asked = new Map<string, Promise<Found>>()
  #pausing: Promise<void> | undefined
  readonly #othersAsked = new AgedMap<OthersAsked>()
  /** Since when each replica that can be reached could be. Earlier questions did not reach all of them. */
  #reachedMs = Number.NEGATIVE_INFINITY
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
    await this.#othersAskable(runtime)
    const isMiss = owner.find(runtime) === 'unknown' && (await this.#isMiss(runtime))
    if (owner.find(runtime) === 'unknown') await this.later()
    const found = owner.find(runtime)
    return found === 'unknown' && isMiss ? undefined : found
  }

  /**
   * While the store cannot be asked, waits until the other replicas can be asked, or asked again, but not for longer than that takes. They
   * tell the answer by themselves if they learn it meanwhile. Whoever waits for the runtime would else ask again and again.
   */
  async #othersAskable(runtime: string): Promise<void> {
    const owner = this.#owner
    const untilMs = owner.now() + ASK_OTHERS_AGAIN_MS
    const isPointless = () => this.#isEarly(runtime) || !owner.canAskOthers()
    while (!owner.isOpen() && owner.find(runtime) === 'unknown' && owner.now() < untilMs && isPointless())
      await this.later()
  }

  /** A replica can be reached that could not, so the others may be asked again at once. */
  reached(): void {
    this.#reachedMs = this.#owner.now()
  }

  /** Whether all other replicas that can be reached were asked a moment ago. */
  #isEarly(runtime: string): boolean {
    const askedMs = this.#othersAsked.get(runtime)?.askedMs ?? Number.NEGATIVE_INFINITY
    return askedMs >= this.#reachedMs && this.#owner.now() - askedMs < ASK_OTHERS_AGAIN_MS
  }

  /** Asks the other replicas, if they can be asked. True if none of them knows the runtime, and that is not said again too soon. */
  async #isMiss(runtime: string): Promise<boolean> {
    const owner = this.#owner
    if (this.#isEarly(runtime) || this.#askingOthers >= MAX_ASKED || !owner.canAskOthers()) return false
    const askedMs = owner.now()
    const missedMs = this.#othersAsked.get(runtime)?.missedMs ?? Number.NEGATIVE_INFINITY
    const isAgain = askedMs - missedMs < MISS_AGAIN_MS
    this.#othersAsked.putWithin(MAX_REMEMBERED, runtime, { askedMs, missedMs: isAgain ? missedMs : askedMs })
    this.#askingOthers++
    const isKnown = await owner.askOthers(runtime).finally(() => this.#askingOthers--)
    return !isKnown && !isAgain
  }

  /** Callers will ask again, after a pause that they share. */
  later(): Promise<void> {
    this.#pausing ??= new Promise<void>(resolve => setTimeout(resolve, ASK_AGAIN_MS).unref()).finally(() => {
      this.#pausing = undefined
    })
    return this.#pausing
  }
}
