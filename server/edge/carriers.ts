/** Finds what can carry an exchange to its runtime now, or tells whether something may soon. */
import { networkOf } from '../../protocol/base/address.ts'
import type { RuntimeSession } from '../control/runtime-session.ts'
import type { Hop } from '../peer/hop.ts'
import type { Carrier, Registry } from '../registry.ts'
import type { Hold } from './hold.ts'

/** The part of {@link Carriers} that an exchange needs. */
export interface CarrierSource {
  /**
   * A carrier for an exchange, other than `not`, which just failed. `undefined` if there is none at the moment. With `ownHost`,
   * only a session whose token names that host, or a hop.
   */
  pick(runtime: string, not?: Carrier, instance?: string, ownHost?: string): Carrier | undefined
  /** Whether the runtime's carriers have as many streams as they accept. */
  isFull(runtime: string, ownHost?: string): boolean
  /** Whether a session may appear at any moment. */
  isExpected(runtime: string): boolean
  /**
   * Asks the directory, if it may know more than we do; otherwise returns false. Waiting requests are woken when it has answered.
   * `refused` if callers from this address have asked for too many names that nobody serves.
   */
  ask(runtime: string, failed: Carrier | undefined, address: string | undefined): boolean | 'refused'
}

export class Carriers implements CarrierSource {
  readonly #registry: Registry<RuntimeSession, Hop>
  readonly #hold: Hold

  constructor(registry: Registry<RuntimeSession, Hop>, hold: Hold) {
    this.#registry = registry
    this.#hold = hold
  }

  pick(runtime: string, not?: Carrier, instance?: string, ownHost?: string): Carrier | undefined {
    const carrier = this.#registry.pick(runtime, not, instance, ownHost)
    if (carrier === undefined || isFree(carrier)) return carrier
    // It is about to end, or full. Another one may be free, here or at another replica.
    const other = this.#registry.pick(runtime, carrier, instance, ownHost)
    if (other !== undefined && other !== not && isFree(other)) return other
    return this.#registry.pickElsewhere(runtime, not, instance)
  }

  isFull(runtime: string, ownHost?: string): boolean {
    return this.#registry.pick(runtime, undefined, undefined, ownHost)?.full === true
  }

  isExpected(runtime: string): boolean {
    return this.#hold.knows(runtime) || this.#registry.knows(runtime, this.#hold.limits.forgetMs)
  }

  /** Whether the runtime has a session at this replica. */
  isOnline(runtime: string): boolean {
    return this.#registry.countOf(runtime) > 0
  }

  ask(runtime: string, failed: Carrier | undefined, address: string | undefined): boolean | 'refused' {
    const network = address === undefined ? undefined : networkOf(address)
    return this.#registry.ask(runtime, failed !== undefined && failed.hops > 0, network)
  }
}

function isFree(carrier: Carrier): boolean {
  return carrier.usable && !carrier.full
}
