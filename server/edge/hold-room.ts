/**
 * What waits in one queue, or in all of them, and how much may: requests, and bytes of their bodies. Shared by network:
 * where it is full, whoever has most of what is short loses its newest first, so that nobody keeps others from waiting.
 */
import { networkOf } from '../../protocol/base/address.ts'

/** Who waits. */
export interface Occupant {
  /** Of the caller; empty for an embedder. */
  readonly address: string
  readonly bytes: number
  /** Its room is needed for another request: it leaves at once. */
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

  has(occupant: Occupant): boolean {
    return this.#occupants.has(occupant)
  }

  /**
   * Whether so many more requests and bytes from this address may wait once all who are `leaving` have left, among them those who are
   * put there to make room.
   */
  admits(address: string, requests: number, bytes: number, leaving: Set<Occupant>): boolean {
    return (
      this.#makeRoom(this.requests + requests - this.#mostRequests, address, requests, REQUEST, leaving) &&
      this.#makeRoom(this.bytes + bytes - this.#mostBytes, address, bytes, BYTES, leaving)
    )
  }

  /** The newest of the network that has most goes, if that is more than `address` has with so much `more`, until nothing is `over`. */
  #makeRoom(over: number, address: string, more: number, measure: Measure, leaving: Set<Occupant>): boolean {
    let left = over
    for (const occupant of leaving) if (this.has(occupant)) left -= measure(occupant)
    if (left <= 0) return true
    const shares = this.#shares(measure, leaving)
    const own = (shares.get(networkOf(address))?.sum ?? 0) + more
    while (left > 0) {
      let greediest: Share | undefined
      for (const share of shares.values()) if (share.sum > (greediest?.sum ?? own)) greediest = share
      if (greediest === undefined) return false
      const newest = greediest.occupants.pop()!
      const size = measure(newest)
      greediest.sum -= size
      left -= size
      leaving.add(newest)
    }
    return true
  }

  /** Per network, without those that are leaving. */
  #shares(measure: Measure, leaving: Set<Occupant>): Map<string, Share> {
    const shares = new Map<string, Share>()
    for (const [occupant, network] of this.#occupants) {
      const size = measure(occupant)
      if (size === 0 || leaving.has(occupant)) continue
      const share = shares.get(network)
      if (share === undefined) shares.set(network, { sum: size, occupants: [occupant] })
      else {
        share.sum += size
        share.occupants.push(occupant)
      }
    }
    return shares
  }
}

interface Share {
  sum: number
  /** The newest last. */
  readonly occupants: Occupant[]
}
