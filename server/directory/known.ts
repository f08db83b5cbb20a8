/**
 * What a replica knows of runtimes, bounded: those that were asked for longest ago go first. What was learned on an
 * earlier connection counts as known only for a while: changes may have been missed.
 */
import type { Standing } from './directory.ts'

interface Entry {
  readonly standing: Standing | undefined
  readonly connection: number
}

const MAX_ENTRIES = 250_000

export class Known {
  readonly #entries = new Map<string, Entry>()
  readonly #now: () => number
  #connection = 0
  /** Until then what was learned on the connection before this one holds. */
  #earlierUntilMs = 0

  constructor(now: () => number) {
    this.#now = now
  }

  get size(): number {
    return this.#entries.size
  }

  *all(): IterableIterator<Standing> {
    for (const { standing } of this.#entries.values()) if (standing !== undefined) yield standing
  }

  /** A new connection: what is known holds until `untilMs`, or until it is learned anew. */
  renew(untilMs: number): void {
    this.#connection++
    this.#earlierUntilMs = untilMs
  }

  /** `anyAge`: nothing can have changed, however old it is. */
  find(runtime: string, anyAge: boolean): Standing | 'unknown' | undefined {
    const entry = this.#entries.get(runtime)
    if (entry === undefined) return 'unknown'
    const { standing, connection } = entry
    if (connection === this.#connection) return standing
    if (standing === undefined) return 'unknown'
    if (anyAge || (connection === this.#connection - 1 && this.#now() < this.#earlierUntilMs)) return standing
    return 'unknown'
  }

  /** What was known last, whether or not it still holds. */
  last(runtime: string): Standing | undefined {
    return this.#entries.get(runtime)?.standing
  }

  /** False if it is nothing new, or older than what is known. */
  learn(standing: Standing): boolean {
    const known = this.last(standing.runtime)
    if (this.outdated(standing)) return false
    if (known !== undefined && known.epoch === standing.epoch && standing.version < known.version) return false
    this.#set(standing.runtime, standing)
    return standing.version !== known?.version
  }

  /** Whether it says less than what is known: the directory has lost its memory. */
  outdated(standing: Standing): boolean {
    return standing.epoch < (this.last(standing.runtime)?.epoch ?? 0)
  }

  /** Whether somebody here has asked for it: of all others changes need not be heard. */
  wants(runtime: string): boolean {
    return this.#entries.has(runtime)
  }

  /** Somebody asks for it, and there is no answer yet. */
  expect(runtime: string): void {
    if (!this.#entries.has(runtime)) this.#entries.set(runtime, { standing: undefined, connection: -1 })
  }

  /** The directory knows nothing of it. */
  missing(runtime: string): void {
    this.#set(runtime, undefined)
  }

  #set(runtime: string, standing: Standing | undefined): void {
    this.#entries.delete(runtime)
    this.#entries.set(runtime, { standing, connection: this.#connection })
    if (this.#entries.size > MAX_ENTRIES) this.#entries.delete(this.#entries.keys().next().value!)
  }
}
