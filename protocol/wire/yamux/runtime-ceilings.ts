import { PRESSURE, SHED_SHARE } from './budget.ts'
import { Shares } from './shares.ts'
import type { YamuxStream } from './yamux-stream.ts'

/** The ledger of a session that serves many runtimes. */
interface SharedLedger {
  /** Those that are open, and those that are over and whose bytes wait. */
  streams(): Iterable<YamuxStream>
}

/**
 * The ceilings of runtimes that share sessions. A ceiling bounds the bytes of its runtime that all these sessions hold for
 * receivers that have not taken them, so that one runtime takes nothing from the others. At the ceiling, whoever of the runtime
 * holds most sheds, in whichever session.
 */
export class RuntimeCeilings {
  readonly #limitBytes: number
  readonly #ledgers = new Set<SharedLedger>()
  /** Runtimes of which anything is held. */
  readonly #usedBytes = new Map<string, number>()

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

  /** Below 0: this many bytes are no longer held. */
  add(runtime: string, bytes: number): void {
    const usedBytes = this.usedBytes(runtime) + bytes
    if (usedBytes > 0) this.#usedBytes.set(runtime, usedBytes)
    else this.#usedBytes.delete(runtime)
  }

  usedBytes(runtime: string): number {
    return this.#usedBytes.get(runtime) ?? 0
  }

  /** Sessions that hold anything, or may. */
  get sessions(): number {
    return this.#ledgers.size
  }

  /** Runtimes of which anything is held. */
  get runtimes(): number {
    return this.#usedBytes.size
  }

  pressed(runtime: string): boolean {
    return this.usedBytes(runtime) >= this.#limitBytes * PRESSURE
  }

  /** Sheds until the ceiling of the runtime holds. */
  enforce(runtime: string): void {
    if (this.usedBytes(runtime) <= this.#limitBytes) return
    const shares = new Shares()
    for (const ledger of this.#ledgers) {
      for (const stream of ledger.streams()) if (stream.runtime === runtime) shares.add(stream)
    }
    while (this.usedBytes(runtime) > this.#limitBytes * (1 - SHED_SHARE)) {
      const stream = shares.take()
      if (stream === undefined) return
      stream.session.shedStream(stream)
    }
  }
}
