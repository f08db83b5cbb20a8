/**
 * Places at a door that strangers can fill, shared by network: an IPv4 address, or an IPv6 /64, which one host can have to
 * itself. Where all are taken, the network that has most loses one first, so that nobody can close a door to others.
 */
import { networkOf } from './address.ts'

/** Who has a place. */
export interface SlotHolder {
  /** Canonical text. */
  readonly address: string
  /** Whether nothing is lost with it: it has said nothing yet, or waits for its next request. */
  readonly idle: boolean
  /** Its place is needed for somebody else. */
  destroy(): void
}

export class ConnectionSlots {
  readonly #total: number
  readonly #perNetwork: number
  /** By network, each in the order in which they came. */
  readonly #networks = new Map<string, Set<SlotHolder>>()
  #size = 0

  constructor(total: number, perNetwork = total) {
    this.#total = total
    this.#perNetwork = perNetwork
  }

  get size(): number {
    return this.#size
  }

  /**
   * Whether one more holder from this address may come in. Somebody else may have to leave for it: the oldest of the
   * greediest network's idle holders, which had most time to say something; else, where that network has more than the
   * newcomer's, its newest one, which has lost least.
   */
  makeRoom(address: string): boolean {
    const own = this.#networks.get(networkOf(address)) ?? NOBODY
    if (own.size >= this.#perNetwork) return this.#evict(idlest(own))
    if (this.#size < this.#total) return true
    const greediest = this.#greediest(own)
    const newest = greediest.size > own.size + 1 ? [...greediest].at(-1) : undefined
    return this.#evict(idlest(greediest) ?? newest)
  }

  add(holder: SlotHolder): void {
    const network = networkOf(holder.address)
    const holders = this.#networks.get(network)
    if (holders === undefined) this.#networks.set(network, new Set([holder]))
    else holders.add(holder)
    this.#size++
  }

  /** Does nothing for one that has no place any more. */
  delete(holder: SlotHolder): void {
    const network = networkOf(holder.address)
    const holders = this.#networks.get(network)
    if (holders?.delete(holder) !== true) return
    this.#size--
    if (holders.size === 0) this.#networks.delete(network)
  }

  #evict(holder: SlotHolder | undefined): boolean {
    if (holder === undefined) return false
    this.delete(holder)
    holder.destroy()
    return true
  }

  #greediest(own: ReadonlySet<SlotHolder>): ReadonlySet<SlotHolder> {
    let greediest = own
    for (const holders of this.#networks.values()) if (holders.size > greediest.size) greediest = holders
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
