import type { RuntimeState } from './directory.ts'
import type { ReplicaLease } from './runtime-state.ts'
import { KEEP_DEAD_MS } from './store.ts'

/** What a directory tells, and is asked by, those who speak with the other replicas. */
export interface WitnessListener {
  /** Another replica was granted an epoch, or presumes something. */
  heard(standing: RuntimeState, teller: string): void
  /** Another replica can be reached that could not. */
  reached(): void
  /** All that is known, for a replica that has no other way to learn it. */
  standings(): Iterable<RuntimeState>
  /** Others vouch, or vouch no longer. */
  changed(): void
}

/**
 * The other replicas, as witnesses. Every epoch is granted to one of the replicas, and each tells all others; so while
 * the directory cannot be reached, a replica that has heard from all others knows that it missed nothing.
 */
export interface Witnesses {
  listen(listener: WitnessListener): void
  /** The directory answered a renewal sent at `sentMs` (undefined: it may have forgotten); these are all replicas. */
  confirmed(sentMs: number | undefined, replicas: readonly ReplicaLease[]): void
  /** Whether the others are asked now. */
  watch(on: boolean): void
  /** Until when all others vouch, by the monotonic clock. */
  vouchedUntilMs(): number
  /** Tells the others; `own`: this replica was granted it, or presumes it. */
  tell(standing: RuntimeState, own: boolean): void
}

/**
 * Nobody speaks with the other replicas: where the directory remembers any, nobody vouches. One that is dead counts too: it may
 * only have been cut off, and be granted something when it comes back.
 *
 * A replica that is alone vouches for itself, as long as the directory would remember others: an hour. Nobody would tell it
 * of one that has started since.
 */
export class NoWitnesses implements Witnesses {
  readonly #replica: string
  #vouchedUntilMs = Number.NEGATIVE_INFINITY

  constructor(replica: string) {
    this.#replica = replica
  }

  listen(): void {}

  confirmed(sentMs: number | undefined, replicas: readonly ReplicaLease[]): void {
    if (replicas.some(({ name }) => name !== this.#replica)) this.#vouchedUntilMs = Number.NEGATIVE_INFINITY
    else if (sentMs !== undefined) this.#vouchedUntilMs = sentMs + KEEP_DEAD_MS
  }

  watch(): void {}

  vouchedUntilMs(): number {
    return this.#vouchedUntilMs
  }

  tell(): void {}
}
