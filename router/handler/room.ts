/**
 * Memory for bodies of webhooks that wait whole, for their verdict or for a new signature. Of those whose signature is not known yet
 * strangers may have sent any number. So where it is full, the network that has most of it gives way to one that has less.
 */
import { networkOf } from '../../protocol/base/address.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'

/** Largest body that GitHub sends. */
export const MAX_BODY_BYTES = 25 * 1024 * 1024
/** Room for one of the largest bodies, and many of the usual size beside it. */
export const ROOM_BYTES = 32 * 1024 * 1024
/** Of it, for small bodies alone. */
const RESERVED_BYTES = 4 * 1024 * 1024

/** Shared by the routes of a router. */
export class BodyRoom {
  #left = ROOM_BYTES
  /** Those that hold some of it, and whose signature is not known to be good. */
  readonly #unknown = new Set<RoomShare>()

  /**
   * The share of `request`. `isSmall`: its body comes when its signature is known to be good, and is small. `shed` ends the exchange,
   * which leaves.
   */
  enter(request: HttpRequest, isSmall: boolean, shed: () => void): RoomShare {
    const network = networkOf(request.caller?.address ?? request.peerAddress)
    return new RoomShare(this, network, isSmall, shed)
  }

  /** @internal */
  hold(share: RoomShare, bytes: number): boolean {
    const more = bytes - share.bytes
    while (more > this.#left - (share.isSmall ? 0 : RESERVED_BYTES) && more > 0) {
      const largest = this.#largestOfGreediest(share, bytes)
      if (largest === undefined) return false
      largest.shed()
    }
    this.#left -= more
    share.bytes = bytes
    if (bytes > 0 && !share.isGood) this.#unknown.add(share)
    else this.#unknown.delete(share)
    return true
  }

  /** Undefined if no other network has more than that of `asking` would have. */
  #largestOfGreediest(asking: RoomShare, wanted: number): RoomShare | undefined {
    const sums = new Map<string, number>()
    for (const { network, bytes } of this.#unknown) sums.set(network, (sums.get(network) ?? 0) + bytes)
    let greediest = asking.network
    let most = (sums.get(asking.network) ?? 0) + wanted - (asking.isGood ? 0 : asking.bytes)
    for (const [network, bytes] of sums) {
      if (bytes > most) [greediest, most] = [network, bytes]
    }
    if (greediest === asking.network) return undefined
    let largest: RoomShare | undefined
    for (const share of this.#unknown) {
      if (share.network === greediest && share.bytes > (largest?.bytes ?? 0)) largest = share
    }
    return largest
  }
}

/** What one webhook has of the room. */
export class RoomShare {
  bytes = 0
  /** Its signature is: nothing takes its place any more. */
  isGood = false
  readonly network: string
  readonly isSmall: boolean
  readonly shed: () => void
  readonly #room: BodyRoom

  constructor(room: BodyRoom, network: string, isSmall: boolean, shed: () => void) {
    this.#room = room
    this.network = network
    this.isSmall = isSmall
    this.shed = shed
  }

  /** From now on it has `bytes`; false if there is no room for them, and nothing changes. */
  hold(bytes: number): boolean {
    return this.#room.hold(this, bytes)
  }

  good(): void {
    this.isGood = true
    this.hold(this.bytes)
  }
}
