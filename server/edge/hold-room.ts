/**
 * Bounds what waits in one queue, or in all of them: requests, and bytes of their bodies. When it is full, the network that uses
 * most of it loses its newest requests first, so that nobody can keep others from waiting.
 */
import { networkOf } from '../../protocol/base/address.ts'

/** A request that waits. */
export interface Occupant {
  /** The caller's address. Empty for an embedder. */
  readonly address: string
  readonly bytes: number
  /** Its room is needed for another request, so it must leave at once. */
  refuse(): void
}

type Measure = (occupant: Occupant) => number

const REQUEST: Measure = () => 1
const BYTES: Measure = occupant => occupant.bytes

export class HoldRoom {
  readonly #maxRequests: number
  readonly #maxBytes: number
  /** In order of arrival, with their networks. Computing these each time would be most of the cost of a scan. */
  readonly #occupants = new Map<Occupant, string>()
  bytes = 0

  constructor(maxRequests: number, maxBytes: number) {
    this.#maxRequests = maxRequests
    this.#maxBytes = maxBytes
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
   * Whether that many more requests and bytes from this address may wait once all `leaving` have left. Adds those to `leaving` that
   * must make room.
   */
  admits(address: string, requests: number, bytes: number, leaving: Set<Occupant>): boolean {
    return (
      this.#makeRoom(this.requests + requests - this.#maxRequests, address, requests, REQUEST, leaving) &&
      this.#makeRoom(this.bytes + bytes - this.#maxBytes, address, bytes, BYTES, leaving)
    )
  }

  /**
   * Until nothing is `over`, picks the newest request of the network that uses most. False once no network uses more than that of
   * `address` would with `more` on top.
   */
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

  /** What each network uses, without those that are leaving. */
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
