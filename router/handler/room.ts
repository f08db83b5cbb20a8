/**
 * Memory for bodies of webhooks that wait in full, for their verdict or a new signature. Strangers may send any number whose
 * signature is not checked yet. So when the memory is full, the network that uses most of it gives way to one that uses less.
 */
import { networkOf } from '../../protocol/base/address.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'

/** Largest body that GitHub sends. */
export const MAX_BODY_BYTES = 25 * 1024 * 1024
/** Room for one of the largest bodies, and beside it for many of the usual size. */
export const ROOM_BYTES = 32 * 1024 * 1024
/** Part of the room that only small bodies may use. */
const RESERVED_BYTES = 4 * 1024 * 1024

/** Shared by the routes of a router. */
export class BodyRoom {
  #left = ROOM_BYTES
  /** Webhooks that hold some of the room and whose signature is not verified yet. */
  readonly #unverified = new Set<RoomShare>()

  /**
   * Returns the share of `request`. `isSmall`: the body is small, and arrives once the signature is verified. `shed` must end the
   * exchange, which then leaves.
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
    if (bytes > 0 && !share.isVerified) this.#unverified.add(share)
    else this.#unverified.delete(share)
    return true
  }

  /** Undefined if no other network has more than the network of `asking` would have. */
  #largestOfGreediest(asking: RoomShare, wanted: number): RoomShare | undefined {
    const sums = new Map<string, number>()
    for (const { network, bytes } of this.#unverified) sums.set(network, (sums.get(network) ?? 0) + bytes)
    let greediest = asking.network
    let most = (sums.get(asking.network) ?? 0) + wanted - (asking.isVerified ? 0 : asking.bytes)
    for (const [network, bytes] of sums) {
      if (bytes > most) [greediest, most] = [network, bytes]
    }
    if (greediest === asking.network) return undefined
    let largest: RoomShare | undefined
    for (const share of this.#unverified) {
      if (share.network === greediest && share.bytes > (largest?.bytes ?? 0)) largest = share
    }
    return largest
  }
}

/** The share of one webhook. */
export class RoomShare {
  bytes = 0
  /** Whether its signature is verified, so that nothing replaces it any more. */
  isVerified = false
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

  /** Sets the share to `bytes`. Returns false, and changes nothing, if there is no room for them. */
  hold(bytes: number): boolean {
    return this.#room.hold(this, bytes)
  }

  markVerified(): void {
    this.isVerified = true
    this.hold(this.bytes)
  }
}
