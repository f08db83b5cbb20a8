import { PRESSURE, SHED_SHARE } from './budget.ts'
import { Shares } from './shares.ts'
import type { YamuxStream } from './yamux-stream.ts'

/** The ledger of a session that serves many runtimes. */
interface SharedLedger {
  /** Open streams, and streams that are over but whose bytes still wait. */
  streams(): Iterable<YamuxStream>
}

/**
 * The ceilings of runtimes that share sessions. A ceiling limits the bytes of one runtime that all these sessions hold for
 * receivers that have not consumed them, so that no runtime uses up the room of others. At the ceiling, the greediest caller of
 * that runtime sheds, in whichever session.
 */
export class RuntimeCeilings {
  readonly #limitBytes: number
  readonly #ledgers = new Set<SharedLedger>()
  /** Held bytes by runtime. */
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

  /** Adds held bytes. A negative number means that they are no longer held. */
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

  /** Sheds until the ceiling of the runtime is kept. */
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
