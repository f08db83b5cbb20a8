import { type BudgetMember, PRESSURE, SHED_SHARE } from '../../base/budget.ts'
import { Tally } from '../../base/tally.ts'
import { shedStreams } from './shares.ts'
import type { YamuxStream } from './yamux-stream.ts'

/** The ledger of a session that serves many runtimes. */
interface SharedLedger {
  /** Open streams, and streams that are over but whose bytes still wait. */
  streams(): Iterable<YamuxStream>
}

/**
 * The ceilings of runtimes that share sessions. A ceiling limits the bytes of one runtime that all these sessions hold for
 * receivers that have not consumed them, so that no runtime uses up the room of others. At the ceiling, the greediest caller of
 * that runtime sheds, in whichever session. The sessions are one member of the process's ceiling. There, the runtime that holds the
 * most over all of them sheds, or before it a network of callers that holds more over all runtimes.
 */
export class RuntimeCeilings implements BudgetMember {
  usedBytes = 0
  readonly #limitBytes: number
  readonly #ledgers = new Set<SharedLedger>()
  /** Held bytes by runtime. */
  readonly #bytesOf = new Tally()

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  join(ledger: SharedLedger): void {
    this.#ledgers.add(ledger)
  }

  /** Removes a ledger that holds nothing and never will again. */
  leave(ledger: SharedLedger): void {
    this.#ledgers.delete(ledger)
  }

  /** Adds held bytes. A negative number means that they are no longer held. */
  add(runtime: string, bytes: number): void {
    this.usedBytes += bytes
    this.#bytesOf.add(runtime, bytes)
  }

  bytesOf(runtime: string): number {
    return this.#bytesOf.of(runtime)
  }

  /** Sessions that hold anything, or may. */
  get sessions(): number {
    return this.#ledgers.size
  }

  /** Runtimes of which anything is held. */
  get runtimes(): number {
    return this.#bytesOf.size
  }

  pressed(runtime: string): boolean {
    return this.bytesOf(runtime) >= this.#limitBytes * PRESSURE
  }

  /** Sheds until the ceiling of the runtime is kept. */
  enforce(runtime: string): void {
    const usedBytes = this.bytesOf(runtime)
    if (usedBytes <= this.#limitBytes) return
    const streams = [...this.streams()].filter(stream => stream.runtime === runtime)
    shedStreams(this, streams, usedBytes - this.#limitBytes * (1 - SHED_SHARE))
  }

  shed(bytes: number): number {
    return shedStreams(this, this.streams(), bytes)
  }

  *streams(): IterableIterator<YamuxStream> {
    for (const ledger of this.#ledgers) yield* ledger.streams()
  }
}
