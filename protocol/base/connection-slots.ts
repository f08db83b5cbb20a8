/**
 * A bounded number of slots for connections that strangers can open, shared out by network: an IPv4 address, or an IPv6 /64,
 * which one host can have to itself. When all are taken, the network with the most slots loses one first, so that nobody can
 * lock others out.
 */
import { networkOf } from './address.ts'
import type { ErrorCode } from './errors.ts'

/** A connection that has a slot. */
export interface SlotHolder {
  /** Canonical text. */
  readonly address: string
  /** Whether nothing is lost if it ends: it has sent nothing yet, or waits for its next request. */
  readonly idle: boolean
  /** Called with `overloaded` when its slot is needed for another connection. */
  destroy(why?: ErrorCode): void
}

export class ConnectionSlots {
  readonly #total: number
  readonly #perNetwork: number
  /** Holders by network, in order of arrival. */
  readonly #networks = new Map<string, Set<SlotHolder>>()
  #size = 0
  readonly #whenEmpty = new Set<() => void>()

  constructor(total: number, perNetwork = total) {
    this.#total = total
    this.#perNetwork = perNetwork
  }

  get size(): number {
    return this.#size
  }

  /**
   * Whether one more connection from this address may have a slot. Another one may have to make room: the oldest idle one of
   * the network with the most slots, since it had the most time to send something. If that network has no idle one, but would
   * still have as many slots as the newcomer's, its newest connection goes, since it loses the least. Otherwise an idle one of the
   * newcomer's own network goes.
   */
  makeRoom(address: string): boolean {
    const own = this.#networks.get(networkOf(address)) ?? NOBODY
    if (own.size >= this.#perNetwork) return this.#evict(idlest(own))
    if (this.#size < this.#total) return true
    const greediest = this.#greediest(own)
    const newest = greediest.size > own.size + 1 ? [...greediest].at(-1) : undefined
    return this.#evict(idlest(greediest) ?? newest ?? idlest(own))
  }

  add(holder: SlotHolder): void {
    const network = networkOf(holder.address)
    const holders = this.#networks.get(network)
    if (holders === undefined) this.#networks.set(network, new Set([holder]))
    else holders.add(holder)
    this.#size++
  }

  /** Does nothing if it no longer has a slot. */
  delete(holder: SlotHolder): void {
    const network = networkOf(holder.address)
    const holders = this.#networks.get(network)
    if (holders?.delete(holder) !== true) return
    this.#size--
    if (holders.size === 0) this.#networks.delete(network)
    if (this.#size === 0) for (const resolve of this.#whenEmpty) resolve()
  }

  /** Resolves once no slot is taken. */
  async emptied(): Promise<void> {
    if (this.#size === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#whenEmpty.add(resolve)
    await promise
    this.#whenEmpty.delete(resolve)
  }

  #evict(holder: SlotHolder | undefined): boolean {
    if (holder === undefined) return false
    this.delete(holder)
    holder.destroy('overloaded')
    return true
  }

  /** Of several that have the same number, more than `own`, the first that has an idle connection. */
  #greediest(own: ReadonlySet<SlotHolder>): ReadonlySet<SlotHolder> {
    let greediest = own
    let isSettled = true
    for (const holders of this.#networks.values()) {
      if (holders.size < greediest.size || (holders.size === greediest.size && isSettled)) continue
      greediest = holders
      isSettled = idlest(holders) !== undefined
    }
    return greediest
  }

  *[Symbol.iterator](): Generator<SlotHolder> {
    for (const holders of this.#networks.values()) yield* holders
  }
}

const NOBODY: ReadonlySet<SlotHolder> = new Set()

function idlest(holders: ReadonlySet<SlotHolder>): SlotHolder | undefined {
  for (const holder of holders) if (holder.idle) return holder
  return undefined
}
