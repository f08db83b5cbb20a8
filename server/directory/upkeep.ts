/**
 * Keeps the store up to date after each renewal. It reports instances that left while the store could not be told, and what the
 * store may have forgotten. It regularly confirms all sessions that are live here. If a notice about a runtime was odd, it asks the
 * store.
 */
import { inBatches } from '../batches.ts'
import type { Registration } from './directory.ts'
import type { KnownRuntimes } from './known-runtimes.ts'
import type { Lease } from './lease.ts'

interface UpkeepOptions {
  readonly leaseMs: number
  readonly known: KnownRuntimes
  readonly lease: Lease
}

/** What it needs from the directory. */
interface UpkeepOwner {
  /** The sessions that are live here. */
  live(): Iterable<Registration>
  ready(registration: Registration): Promise<unknown>
  gone(runtime: string, instance: string): void
  refresh(runtime: string): Promise<unknown>
  /** Called when the store has been told everything that it may have forgotten. */
  toldAll(): void
}

const CONFIRM_EVERY_MS = 3_600_000
/** How many sessions are written back at a time. */
const BATCH = 128
const MAX_LEAVING = 100_000

export class Upkeep {
  readonly #options: UpkeepOptions
  readonly #owner: UpkeepOwner
  /** Instances that left without the store knowing. */
  readonly #leaving = new Map<string, { readonly runtime: string; readonly instance: string }>()
  /** Runtimes with an odd notice. */
  readonly #doubted = new Set<string>()
  /** Sessions that are yet to be confirmed in this round. */
  #confirming: Registration[] = []
  /** The round that tells the store what it may have forgotten, until it is done. A later round replaces it. */
  #telling: object | undefined

  constructor(options: UpkeepOptions, owner: UpkeepOwner) {
    this.#options = options
    this.#owner = owner
  }

  /** An instance left, and the store could not be told. False if there are too many; then it stays in the record until that expires. */
  left(runtime: string, instance: string): boolean {
    if (this.#leaving.size >= MAX_LEAVING) return false
    this.#leaving.set(keyOf(runtime, instance), { runtime, instance })
    return true
  }

  /** The instance is back. */
  returned({ runtime, instance }: Registration): void {
    this.#leaving.delete(keyOf(runtime, instance))
  }

  doubt(runtime: string): void {
    this.#doubted.add(runtime)
  }

  /** The store itself has answered for the runtime. */
  trust(runtime: string): void {
    this.#doubted.delete(runtime)
  }

  /** Whether the store may lack something that it has not been told again yet. */
  get isTelling(): boolean {
    return this.#telling !== undefined
  }

  async run(mayHaveForgotten: boolean, isCurrent: () => boolean): Promise<void> {
    const round = {}
    if (mayHaveForgotten) this.#telling = round
    this.#reportLeft()
    await this.#recheckDoubted(isCurrent)
    const live = [...this.#owner.live()]
    const confirmed = mayHaveForgotten ? this.#all(live) : this.#due(live)
    await inBatches(confirmed, BATCH, each => this.#owner.ready(each).catch(() => {}), isCurrent)
    if (this.#telling !== round || !isCurrent()) return
    this.#telling = undefined
    this.#owner.toldAll()
  }

  #reportLeft(): void {
    const left = [...this.#leaving.values()]
    this.#leaving.clear()
    for (const { runtime, instance } of left) this.#owner.gone(runtime, instance)
  }

  async #recheckDoubted(isCurrent: () => boolean): Promise<void> {
    const doubted = [...this.#doubted]
    this.#doubted.clear()
    await inBatches(doubted, BATCH, runtime => this.#owner.refresh(runtime), isCurrent)
  }

  #all(live: readonly Registration[]): readonly Registration[] {
    this.#confirming = []
    return live
  }

  /** A share of all sessions, so that each is confirmed once an hour, and all that wait for an epoch. */
  #due(live: Registration[]): readonly Registration[] {
    const waiting = live.filter(registration => this.#isWaiting(registration))
    if (this.#confirming.length === 0) this.#confirming = live
    const share = Math.ceil((live.length * this.#options.leaseMs) / 4 / CONFIRM_EVERY_MS)
    // A session that has left since the round began must not be entered again.
    const isLive = new Set(live.map(({ runtime, instance }) => keyOf(runtime, instance)))
    const next = this.#confirming
      .splice(0, share)
      .filter(({ runtime, instance }) => isLive.has(keyOf(runtime, instance)))
    return [...waiting, ...next]
  }

  /** It has none yet, or the active instance of its runtime is gone. */
  #isWaiting({ runtime, instance }: Registration): boolean {
    const { known, lease } = this.#options
    const state = known.last(runtime)
    if ((state?.instances.get(instance)?.epoch ?? 0) === 0) return true
    const replicas = state?.instances.get(state.active)?.replicas ?? []
    return replicas.every(replica => lease.isDead(replica))
  }
}

function keyOf(runtime: string, instance: string): string {
  return `${runtime} ${instance}`
}
