/**
 * What a replica knows of runtimes, bounded: those that were asked for longest ago go first. What was learned on an
 * earlier connection counts as known only for a while: changes may have been missed.
 *
 * Names that nobody serves are kept apart: anybody can make them up, and they drive out nothing else.
 */
import { AgedMap } from '../aged-map.ts'
import type { RuntimeState } from './directory.ts'

interface Entry {
  readonly standing: RuntimeState
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
  /** The connection on which the directory confirmed last that we heard of all changes. */
  #confirmed = 0
  /** The connection on which all that is live here was learned anew last. */
  #whole = 0
  /** Until then what was learned on the connection before this one holds. */
  #earlierUntilMs = 0

  /** `isVouched`: others have told of all that changed since all was whole. */
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

  /** Each as it is by then: who asks may take its time. */
  *all(): IterableIterator<RuntimeState> {
    for (const [runtime] of [...this.#entries]) {
      const standing = this.last(runtime)
      if (standing !== undefined) yield standing
    }
  }

  /**
   * A new connection, or a directory that has forgotten: what is known holds until `untilMs`, or until it is learned anew.
   */
  renew(untilMs: number): void {
    this.#connection++
    this.#earlierUntilMs = untilMs
  }

  /** The directory has confirmed that since this connection began we have heard of all changes. */
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

  /** `presumed`: nothing can have changed since the directory confirmed anything last. */
  find(runtime: string, presumed: boolean): RuntimeState | 'unknown' | undefined {
    if (this.#names.get(runtime) === this.#connection) return undefined
    const entry = this.#entries.get(runtime)
    if (entry === undefined) return 'unknown'
    const { standing, connection } = entry
    if (connection >= (presumed ? this.#confirmed : this.#connection)) return standing
    if (connection >= this.#whole && this.#isVouched()) return standing
    return connection === this.#connection - 1 && this.#now() < this.#earlierUntilMs ? standing : 'unknown'
  }

  /** What was known last, whether or not it still holds. */
  last(runtime: string): RuntimeState | undefined {
    return this.#entries.get(runtime)?.standing
  }

  /** False if it is nothing new, or older than what is known; `certain`: it cannot be older, whatever its version says. */
  learn(standing: RuntimeState, certain = false): boolean {
    if (!certain && this.older(standing)) return false
    return this.#put(standing, this.#connection)
  }

  /** The same, where not the directory says it: on the epoch that is known it tells nothing of whether there is a later one. */
  add(standing: RuntimeState): boolean {
    const known = this.#entries.get(standing.runtime)
    return this.#put(standing, known?.standing.epoch === standing.epoch ? known.connection : this.#connection)
  }

  #put(standing: RuntimeState, connection: number): boolean {
    const { runtime, version } = standing
    if (this.outdated(standing)) return false
    const known = this.last(runtime)
    this.#names.delete(runtime)
    this.#entries.putWithin(MAX_ENTRIES, runtime, { standing, connection })
    return version !== known?.version
  }

  /** Whether it says less than what is known: the directory has lost its memory. */
  outdated(standing: RuntimeState): boolean {
    return standing.epoch < (this.last(standing.runtime)?.epoch ?? 0)
  }

  /** Whether its epoch is known as it was later. */
  older({ runtime, epoch, version }: RuntimeState): boolean {
    const entry = this.#entries.get(runtime)
    // Across a new connection versions say nothing: another Redis may count from less.
    if (entry?.connection !== this.#connection) return false
    return version < entry.standing.version && epoch === entry.standing.epoch
  }

  /** Whether somebody here has asked for it: of all others changes need not be heard. */
  wants(runtime: string): boolean {
    return this.#entries.has(runtime) || this.#names.has(runtime)
  }

  /** Somebody asks for it, and there is no answer yet. */
  expect(runtime: string): void {
    if (!this.wants(runtime)) this.#names.putWithin(MAX_NAMES, runtime, -1)
  }

  /** The directory knows nothing of it. It may have forgotten: what was known last is kept, to remind it. */
  missing(runtime: string): void {
    this.#names.putWithin(MAX_NAMES, runtime, this.#connection)
  }
}
