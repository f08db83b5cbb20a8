/**
 * What waits in one queue, or in all of them, and how much may: requests, and bytes of their bodies. Shared by network:
 * where it is full, whoever has most of what is short loses its newest first, so that nobody keeps others from waiting.
 */
import { networkOf } from '../../protocol/address.ts'

/** Who waits. */
export interface Occupant {
  /** Of the caller; empty for an embedder. */
  readonly address: string
  readonly bytes: number
  /** Its room is needed for somebody else: it leaves at once. */
  refuse(): void
}

type Measure = (occupant: Occupant) => number

const REQUEST: Measure = () => 1
const BYTES: Measure = occupant => occupant.bytes

export class HoldRoom {
  readonly #mostRequests: number
  readonly #mostBytes: number
  /** In the order in which they came, with their networks: to find these anew each time would cost most of a look. */
  readonly #occupants = new Map<Occupant, string>()
  bytes = 0

  constructor(mostRequests: number, mostBytes: number) {
    this.#mostRequests = mostRequests
    this.#mostBytes = mostBytes
  }

  get requests(): number {
    return this.#occupants.size
  }

  add(occupant: Occupant): void {
    this.#occupants.set(occupant, networkOf(occupant.address))
    this.bytes += occupant.bytes
  }

  delete(occupant: Occupant): void {
    if (this.#occupants.delete(occupant)) this.bytes -= occupant.bytes
  }

  /** Whether one more request from this address, with a body of so many bytes until now, may wait. */
  admits(address: string, bytes: number): boolean {
    const fits = () => this.requests < this.#mostRequests
    return this.#makeRoom(fits, address, 1, REQUEST) && this.admitsBytes(address, bytes)
  }

  /** Whether so many more bytes may. */
  admitsBytes(address: string, bytes: number): boolean {
    return this.#makeRoom(() => this.bytes + bytes <= this.#mostBytes, address, bytes, BYTES)
  }

  #makeRoom(fits: () => boolean, address: string, more: number, measure: Measure): boolean {
    while (!fits()) {
      const newest = this.#newestOfGreediest(address, more, measure)
      if (newest === undefined) return false
      newest.refuse()
    }
    return true
  }

  /** Of the network that has most, if that is more than `address` has with so much `more`. */
  #newestOfGreediest(address: string, more: number, measure: Measure): Occupant | undefined {
    const sums = new Map<string, { sum: number; newest: Occupant }>()
    for (const [occupant, network] of this.#occupants) {
      const size = measure(occupant)
      if (size === 0) continue
      const share = sums.get(network)
      if (share === undefined) sums.set(network, { sum: size, newest: occupant })
      else {
        share.sum += size
        share.newest = occupant
      }
    }
    const own = (sums.get(networkOf(address))?.sum ?? 0) + more
    let greediest: { sum: number; newest: Occupant } | undefined
    for (const share of sums.values()) if (share.sum > (greediest?.sum ?? own)) greediest = share
    return greediest?.newest
  }
}
