/**
 * What a replica knows of runtimes. It is bounded: those that were asked for longest ago go first. What was learned on an
 * earlier connection counts only for a while, since changes may have been missed.
 *
 * Names that nobody serves are kept apart. Anybody can make them up, so they must not drive out anything else.
 */
import { AgedMap } from '../aged-map.ts'
import type { RuntimeState } from './directory.ts'

interface Entry {
  readonly state: RuntimeState
  readonly connection: number
}

const MAX_ENTRIES = 250_000
const MAX_NAMES = 10_000

export class KnownRuntimes {
  readonly #entries = new AgedMap<Entry>()
  /** Names that were asked for, and the connection on which the directory knew nothing of them; -1: no answer yet. */
  readonly #names = new AgedMap<number>()
  readonly #now: () => number
  readonly #isVouched: () => boolean
  #connection = 0
  /** The last connection on which the directory confirmed that we heard of all changes. */
  #confirmed = 0
  /** The last connection on which all that is live here was learned anew. */
  #whole = 0
  /** What was learned on the connection before this one holds until then. */
  #earlierUntilMs = 0

  /** `isVouched`: others have told of every change since everything was last learned anew. */
  constructor(now: () => number, isVouched: () => boolean) {
    this.#now = now
    this.#isVouched = isVouched
  }

  get size(): number {
    return this.#entries.size
  }

  /** Names that are remembered though nobody serves them. */
  get names(): number {
    return this.#names.size
  }

  /** Each is the latest when it is yielded, since the caller may take its time. */
  *all(): IterableIterator<RuntimeState> {
    for (const [runtime] of [...this.#entries]) {
      const state = this.last(runtime)
      if (state !== undefined) yield state
    }
  }

  /**
   * A new connection, or a directory that has forgotten: what is known holds until `untilMs`, or until it is learned anew.
   */
  renew(untilMs: number): void {
    this.#connection++
    this.#earlierUntilMs = untilMs
  }

  /** The directory has confirmed that we heard of all changes since this connection began. */
  confirmed(): void {
    this.#confirmed = this.#connection
  }

  /** All that is live here has been learned anew on this connection. */
  completed(): void {
    this.#whole = this.#connection
  }

  get isWhole(): boolean {
    return this.#whole === this.#connection || this.#entries.size === 0
  }

  /** `presumed`: nothing can have changed since the directory last confirmed anything. */
  find(runtime: string, presumed: boolean): RuntimeState | 'unknown' | undefined {
    if (this.#names.get(runtime) === this.#connection) return undefined
    const entry = this.#entries.get(runtime)
    if (entry === undefined) return 'unknown'
    const { state, connection } = entry
    if (connection >= (presumed ? this.#confirmed : this.#connection)) return state
    if (connection >= this.#whole && this.#isVouched()) return state
    return connection === this.#connection - 1 && this.#now() < this.#earlierUntilMs ? state : 'unknown'
  }

  /** What was last known, whether or not it still holds. */
  last(runtime: string): RuntimeState | undefined {
    return this.#entries.get(runtime)?.state
  }

  /** Returns false for a state that is not new, or is older than what is known. `certain`: it cannot be older, whatever its version says. */
  learn(state: RuntimeState, certain = false): boolean {
    if (!certain && this.older(state)) return false
    return this.#put(state, this.#connection)
  }

  /** The same for a state that does not come from the directory. With the epoch that is known, it does not show that there is no later one. */
  add(state: RuntimeState): boolean {
    const known = this.#entries.get(state.runtime)
    return this.#put(state, known?.state.epoch === state.epoch ? known.connection : this.#connection)
  }

  #put(state: RuntimeState, connection: number): boolean {
    const { runtime, version } = state
    if (this.outdated(state)) return false
    const known = this.last(runtime)
    this.#names.delete(runtime)
    this.#entries.putWithin(MAX_ENTRIES, runtime, { state, connection })
    return version !== known?.version
  }

  /** Whether its epoch is below the known one: the directory has lost its memory. */
  outdated(state: RuntimeState): boolean {
    return state.epoch < (this.last(state.runtime)?.epoch ?? 0)
  }

  /** Whether a later version with the same epoch is known. */
  older({ runtime, epoch, version }: RuntimeState): boolean {
    const entry = this.#entries.get(runtime)
    // Versions of different connections cannot be compared: another Redis may count from a lower one.
    if (entry?.connection !== this.#connection) return false
    return version < entry.state.version && epoch === entry.state.epoch
  }

  /** Whether somebody here has asked for it. Changes of all others can be ignored. */
  wants(runtime: string): boolean {
    return this.#entries.has(runtime) || this.#names.has(runtime)
  }

  /** Somebody has asked for it, and there is no answer yet. */
  expect(runtime: string): void {
    if (!this.wants(runtime)) this.#names.putWithin(MAX_NAMES, runtime, -1)
  }

  /** The directory does not know it. What was last known is kept, to remind a directory that forgot. */
  missing(runtime: string): void {
    this.#names.putWithin(MAX_NAMES, runtime, this.#connection)
  }
}
