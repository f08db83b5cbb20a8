import type { RuntimeState } from './directory.ts'
import type { ReplicaLease } from './runtime-state.ts'

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

/** Nobody speaks with the other replicas: as soon as there are any, nobody vouches. */
export class NoWitnesses implements Witnesses {
  readonly #replica: string
  #alone = true

  constructor(replica: string) {
    this.#replica = replica
  }

  listen(): void {}

  confirmed(_sentMs: number | undefined, replicas: readonly ReplicaLease[]): void {
    this.#alone = replicas.every(({ name, leftMs }) => name === this.#replica || leftMs < 0)
  }

  watch(): void {}

  vouchedUntilMs(): number {
    return this.#alone ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY
  }

  tell(): void {}
}
