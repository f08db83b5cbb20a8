/**
 * What a replica knows about runtimes. It is bounded: those that were asked for longest ago are forgotten first. What was learned on
 * an earlier connection counts only for a while, since changes may have been missed.
 *
 * Names that nobody serves are kept separately. Anybody can make them up, so they must not displace anything else.
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
  /** Names that were asked for, and the connection on which the directory did not know them. -1 while there is no answer. */
  readonly #names = new AgedMap<number>()
  readonly #now: () => number
  readonly #isVouched: () => boolean
  #connection = 0
  /** The last connection on which the directory confirmed that we know all changes. */
  #confirmed = 0
  /** The last connection on which everything that is live here was learned again. */
  #whole = 0
  /** What was learned on the previous connection is valid until then. */
  #earlierUntilMs = 0

  /** `isVouched`: others have told us every change since everything was last learned again. */
  constructor(now: () => number, isVouched: () => boolean) {
    this.#now = now
    this.#isVouched = isVouched
  }

  get size(): number {
    return this.#entries.size
  }

  /** Number of names that are remembered although nobody serves them. */
  get names(): number {
    return this.#names.size
  }

  /** Yields the latest state of each, since the caller may take its time. */
  *all(): IterableIterator<RuntimeState> {
    for (const [runtime] of [...this.#entries]) {
      const state = this.last(runtime)
      if (state !== undefined) yield state
    }
  }

  /**
   * There is a new connection, or the directory has forgotten something. What is known stays valid until `untilMs`, or until it is
   * learned again.
   */
  renew(untilMs: number): void {
    this.#connection++
    this.#earlierUntilMs = untilMs
  }

  /** The directory has confirmed that we know all changes since this connection began. */
  confirmed(): void {
    this.#confirmed = this.#connection
  }

  /** Everything that is live here has been learned again on this connection. */
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

  /** What was last known, whether or not it is still valid. */
  last(runtime: string): RuntimeState | undefined {
    return this.#entries.get(runtime)?.state
  }

  /** Returns false if the state is not new, or is older than what is known. `certain`: it cannot be older, whatever its version. */
  learn(state: RuntimeState, certain = false): boolean {
    if (!certain && this.older(state)) return false
    return this.#put(state, this.#connection)
  }

  /**
   * The same for a state that does not come from the directory. If its epoch is already known, news does not prove that there is no
   * later one. An answer counts as much as for a runtime that is not known yet.
   */
  add(state: RuntimeState, isAnswer = false): boolean {
    const known = this.#entries.get(state.runtime)
    const isProof = isAnswer || known?.state.epoch !== state.epoch
    return this.#put(state, isProof ? this.#connection : known.connection)
  }

  #put(state: RuntimeState, connection: number): boolean {
    const { runtime, version } = state
    if (this.outdated(state)) return false
    const known = this.last(runtime)
    this.#names.delete(runtime)
    this.#entries.putWithin(MAX_ENTRIES, runtime, { state, connection })
    return version !== known?.version
  }

  /** Whether its epoch is lower than the known one, which means that the directory has lost data. */
  outdated(state: RuntimeState): boolean {
    return state.epoch < (this.last(state.runtime)?.epoch ?? 0)
  }

  /** Whether a later version with the same epoch is known. */
  older({ runtime, epoch, version }: RuntimeState): boolean {
    const entry = this.#entries.get(runtime)
    // Versions of different connections cannot be compared, since another Redis may count from a lower number.
    if (entry?.connection !== this.#connection) return false
    return version < entry.state.version && epoch === entry.state.epoch
  }

  /** Whether somebody here has asked for this runtime. Changes of others can be ignored. */
  wants(runtime: string): boolean {
    return this.#entries.has(runtime) || this.#names.has(runtime)
  }

  /** Records that somebody has asked for this runtime. */
  expect(runtime: string): void {
    if (!this.wants(runtime)) this.#names.putWithin(MAX_NAMES, runtime, -1)
  }

  /** The directory does not know this runtime. What was last known is kept, to remind a directory that forgot. */
  missing(runtime: string): void {
    this.#names.putWithin(MAX_NAMES, runtime, this.#connection)
  }
}
