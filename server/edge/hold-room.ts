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

/** What one network uses. */
interface Share {
  bytes: number
  /** In order of arrival. */
  readonly occupants: Set<Occupant>
}

/** What one limit counts. */
interface Measure {
  of(occupant: Occupant): number
  all(share: Share): number
}

const REQUESTS: Measure = { of: () => 1, all: ({ occupants }) => occupants.size }
const BYTES: Measure = { of: ({ bytes }) => bytes, all: ({ bytes }) => bytes }

export class HoldRoom {
  readonly #maxRequests: number
  readonly #maxBytes: number
  /** By network. Computing them each time would make each request that is refused cost as much as thousands. */
  readonly #shares = new Map<string, Share>()
  requests = 0
  bytes = 0

  constructor(maxRequests: number, maxBytes: number) {
    this.#maxRequests = maxRequests
    this.#maxBytes = maxBytes
  }

  add(occupant: Occupant): void {
    const network = networkOf(occupant.address)
    const share = this.#shares.get(network) ?? { bytes: 0, occupants: new Set<Occupant>() }
    this.#shares.set(network, share)
    share.occupants.add(occupant)
    this.requests++
    this.#count(share, occupant.bytes)
  }

  /** More of its body arrives. */
  grow(occupant: Occupant, bytes: number): void {
    this.#count(this.#shareOf(occupant)!, bytes)
  }

  delete(occupant: Occupant): void {
    const share = this.#shareOf(occupant)
    if (share === undefined) return
    share.occupants.delete(occupant)
    this.requests--
    this.#count(share, -occupant.bytes)
    if (share.occupants.size === 0) this.#shares.delete(networkOf(occupant.address))
  }

  #count(share: Share, bytes: number): void {
    share.bytes += bytes
    this.bytes += bytes
  }

  /** Undefined if it is not here. */
  #shareOf(occupant: Occupant): Share | undefined {
    const share = this.#shares.get(networkOf(occupant.address))
    return share?.occupants.has(occupant) === true ? share : undefined
  }

  /**
   * Whether that many more requests and bytes from this address may wait once all `leaving` have left. Adds those to `leaving` that
   * must make room.
   */
  admits(address: string, requests: number, bytes: number, leaving: Set<Occupant>): boolean {
    return (
      this.#makeRoom(this.requests + requests - this.#maxRequests, address, requests, REQUESTS, leaving) &&
      this.#makeRoom(this.bytes + bytes - this.#maxBytes, address, bytes, BYTES, leaving)
    )
  }

  /**
   * Until nothing is `over`, picks the newest request of the network that uses most. False once no network uses more than that of
   * `address` would with `more` on top.
   */
  #makeRoom(over: number, address: string, more: number, measure: Measure, leaving: Set<Occupant>): boolean {
    if (over <= 0) return true
    /** What each network gives up. */
    const given = new Map<Share, number>()
    let left = over
    const give = (occupant: Occupant, share: Share) => {
      const size = measure.of(occupant)
      left -= size
      given.set(share, (given.get(share) ?? 0) + size)
    }
    for (const occupant of leaving) {
      const share = this.#shareOf(occupant)
      if (share !== undefined) give(occupant, share)
    }
    const keeps = (share: Share) => measure.all(share) - (given.get(share) ?? 0)
    const ownShare = this.#shares.get(networkOf(address))
    const own = more + (ownShare === undefined ? 0 : keeps(ownShare))
    /** Those that may leave, of the networks that had to give up some. */
    const present = new Map<Share, Occupant[]>()
    while (left > 0) {
      let greediest: Share | undefined
      let most = own
      for (const share of this.#shares.values()) {
        const kept = keeps(share)
        if (kept > most) [greediest, most] = [share, kept]
      }
      if (greediest === undefined) return false
      const occupants =
        present.get(greediest) ?? [...greediest.occupants].filter(each => measure.of(each) > 0 && !leaving.has(each))
      present.set(greediest, occupants)
      const newest = occupants.pop()!
      give(newest, greediest)
      leaving.add(newest)
    }
    return true
  }
}
