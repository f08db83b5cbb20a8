import type { RuntimeState } from './directory.ts'
import type { ReplicaLease } from './runtime-state.ts'
import { KEEP_DEAD_MS } from './store.ts'

/** What the connections to other replicas need from the directory. */
export interface WitnessListener {
  /** Another replica was granted an epoch, or presumes something. `isAnswer`: it was asked about this runtime. */
  heard(state: RuntimeState, teller: string, isAnswer: boolean): void
  /** A replica that could not be reached can be reached now. */
  reached(): void
  /** Everything that is known, for a replica that cannot learn it otherwise. */
  states(): Iterable<RuntimeState>
  /** What is known about the runtime and may be acted on, for a replica that asks about it. */
  find(runtime: string): RuntimeState | 'unknown' | undefined
  /** Whether all others vouch has changed. */
  changed(): void
}

/**
 * The other replicas, as witnesses. Every epoch is granted to one replica, which tells all others. So while the directory
 * cannot be reached, a replica that hears from all others knows that it has missed nothing.
 */
export interface Witnesses {
  listen(listener: WitnessListener): void
  /**
   * The directory answered a renewal that was sent at `sentMs`, and named all replicas. `sentMs` is `undefined` if the directory may
   * have forgotten something.
   */
  confirmed(sentMs: number | undefined, replicas: readonly ReplicaLease[]): void
  /** Starts or stops asking the others. */
  watch(on: boolean): void
  /** Until when all others vouch, by the monotonic clock. */
  vouchedUntilMs(): number
  /** Tells the others. `own`: this replica was granted the epoch, or presumes it. */
  tell(state: RuntimeState, own: boolean): void
  /** Whether there is anybody to ask. */
  readonly canAsk: boolean
  /**
   * Asks the others what they know about a runtime that this replica does not know. Resolves, in bounded time, when all have answered
   * that can.
   */
  askAbout(runtime: string): Promise<unknown>
}

/**
 * For a server that does not speak with other replicas. If the directory remembers any, nobody vouches. A dead one counts
 * too: it may only have been cut off, and may be granted something when it comes back.
 *
 * A replica that is alone vouches for itself for an hour, which is how long the directory would remember others. Nobody
 * would tell it of a replica that has started since.
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

  get canAsk(): boolean {
    return false
  }

  async askAbout(): Promise<void> {}
}
