/**
 * What is told to the store again, after a renewal: instances that left while it could not be told, what it may have
 * forgotten, and in turn all sessions that are live here. What was told of a runtime and is odd is asked for.
 */
import type { Registration } from './directory.ts'
import type { KnownRuntimes } from './known-runtimes.ts'
import type { Lease } from './lease.ts'

interface UpkeepOptions {
  readonly leaseMs: number
  readonly known: KnownRuntimes
  readonly lease: Lease
}

/** What it does at the directory. */
interface Told {
  /** The sessions that are live here. */
  live(): Iterable<Registration>
  ready(registration: Registration): Promise<unknown>
  gone(runtime: string, instance: string): void
  refresh(runtime: string): Promise<unknown>
  /** All that the store may have forgotten was told. */
  toldAll(): void
}

const CONFIRM_EVERY_MS = 3_600_000
/** Sessions that are written back at once. */
const BATCH = 128
const MAX_LEAVING = 100_000

export class Upkeep {
  readonly #options: UpkeepOptions
  readonly #told: Told
  /** Instances that left while the store could not be told, or was being told of too many. */
  readonly #leaving = new Map<string, { readonly runtime: string; readonly instance: string }>()
  /** Runtimes of which something odd was told. */
  readonly #doubted = new Set<string>()
  /** Sessions that are yet to be confirmed in this round. */
  #confirming: Registration[] = []
  /** All that the store may have forgotten, until it was told; a later round takes its place. */
  #telling: object | undefined

  constructor(options: UpkeepOptions, told: Told) {
    this.#options = options
    this.#told = told
  }

  /** An instance left, untold. False: there are too many of them, and it stays behind until its record ends. */
  left(runtime: string, instance: string): boolean {
    if (this.#leaving.size >= MAX_LEAVING) return false
    this.#leaving.set(keyOf(runtime, instance), { runtime, instance })
    return true
  }

  /** It is back. */
  returned({ runtime, instance }: Registration): void {
    this.#leaving.delete(keyOf(runtime, instance))
  }

  doubt(runtime: string): void {
    this.#doubted.add(runtime)
  }

  /** The store itself has said what is so. */
  trust(runtime: string): void {
    this.#doubted.delete(runtime)
  }

  /** The store may have forgotten something that it has not been told again. */
  get isTelling(): boolean {
    return this.#telling !== undefined
  }

  async run(mayHaveForgotten: boolean, isCurrent: () => boolean): Promise<void> {
    const round = {}
    if (mayHaveForgotten) this.#telling = round
    this.#tellLeft()
    await this.#lookInto(isCurrent)
    const live = [...this.#told.live()]
    await this.#confirmAll(mayHaveForgotten ? this.#all(live) : this.#due(live), isCurrent)
    if (this.#telling !== round || !isCurrent()) return
    this.#telling = undefined
    this.#told.toldAll()
  }

  #tellLeft(): void {
    const left = [...this.#leaving.values()]
    this.#leaving.clear()
    for (const { runtime, instance } of left) this.#told.gone(runtime, instance)
  }

  async #lookInto(isCurrent: () => boolean): Promise<void> {
    const doubted = [...this.#doubted]
    this.#doubted.clear()
    for (let at = 0; at < doubted.length && isCurrent(); at += BATCH) {
      await Promise.all(doubted.slice(at, at + BATCH).map(runtime => this.#told.refresh(runtime)))
    }
  }

  async #confirmAll(sessions: readonly Registration[], isCurrent: () => boolean): Promise<void> {
    for (let at = 0; at < sessions.length && isCurrent(); at += BATCH) {
      await Promise.all(sessions.slice(at, at + BATCH).map(each => this.#told.ready(each).catch(() => {})))
    }
  }

  #all(live: readonly Registration[]): readonly Registration[] {
    this.#confirming = []
    return live
  }

  /** A part of all sessions, so that each is confirmed once an hour; and at once those that wait for an epoch. */
  #due(live: Registration[]): readonly Registration[] {
    const waiting = live.filter(registration => this.#isWaiting(registration))
    if (this.#confirming.length === 0) this.#confirming = live
    const share = Math.ceil((live.length * this.#options.leaseMs) / 4 / CONFIRM_EVERY_MS)
    // Those that have left since the round began would be entered again.
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
