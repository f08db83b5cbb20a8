/**
 * Memory for bodies of webhooks that wait in full, for their verdict or a new signature. Strangers may send any number whose
 * signature is not checked yet. So when the memory is full, the network that uses most of it gives way to one that uses less.
 */
import { networkOf } from '../../protocol/base/address.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import { KnownSenders } from '../../protocol/webhook/known-senders.ts'

/** Largest body that GitHub sends. */
export const MAX_BODY_BYTES = 25 * 1024 * 1024
/** Room for one of the largest bodies, and beside it for many of the usual size. */
export const ROOM_BYTES = 32 * 1024 * 1024
/** Part of the room that only small bodies may use. */
const RESERVED_BYTES = 4 * 1024 * 1024
/** Room for a thousand tails. */
export const TAILS_BYTES = 64 * 1024 * 1024

/** What the webhooks of one network hold whose signature is not verified yet. */
interface Unverified {
  bytes: number
  readonly shares: Set<RoomShare>
}

class Room {
  #left: number
  readonly #reservedBytes: number
  readonly #unverified = new Map<string, Unverified>()

  /** Only small bodies may use the last `reservedBytes`. */
  constructor(bytes: number, reservedBytes: number) {
    this.#left = bytes
    this.#reservedBytes = reservedBytes
  }

  /**
   * Returns the share of `request`. `isSmall`: the body is small, and arrives once the signature is verified. `shed` must end the
   * exchange, which then leaves.
   */
  enter(request: HttpRequest, isSmall: boolean, shed: () => void): RoomShare {
    return new RoomShare(this, senderOf(request), isSmall, shed)
  }

  /** @internal */
  hold(share: RoomShare, bytes: number): boolean {
    const more = bytes - share.bytes
    while (more > this.#left - (share.isSmall ? 0 : this.#reservedBytes) && more > 0) {
      const largest = this.#largestOfGreediest(share, bytes)
      if (largest === undefined) return false
      largest.shed()
    }
    this.#left -= more
    share.bytes = bytes
    this.#count(share, share.isVerified ? 0 : bytes)
    return true
  }

  #count(share: RoomShare, bytes: number): void {
    if (bytes === share.unverifiedBytes) return
    const of = this.#unverified.get(share.network) ?? { bytes: 0, shares: new Set() }
    of.bytes += bytes - share.unverifiedBytes
    share.unverifiedBytes = bytes
    if (bytes > 0) of.shares.add(share)
    else of.shares.delete(share)
    if (of.shares.size > 0) this.#unverified.set(share.network, of)
    else this.#unverified.delete(share.network)
  }

  /** Undefined if no other network has more than the network of `asking` would have. */
  #largestOfGreediest({ network, isVerified, unverifiedBytes }: RoomShare, wanted: number): RoomShare | undefined {
    const own = this.#unverified.get(network)?.bytes ?? 0
    let most = own + wanted - (isVerified ? 0 : unverifiedBytes)
    let greediest: Unverified | undefined
    for (const of of this.#unverified.values()) {
      if (of.bytes > most) {
        most = of.bytes
        greediest = of
      }
    }
    let largest: RoomShare | undefined
    for (const share of greediest?.shares ?? []) if (share.bytes > (largest?.bytes ?? 0)) largest = share
    return largest
  }
}

/** Shared by the routes of a router. Known senders have a room of their own, which strangers in thousands of networks cannot fill. */
export class BodyRooms {
  readonly #strangers = new BodyRoom()
  readonly #known = new BodyRoom()
  readonly #senders = new KnownSenders()

  /** The room of a webhook for `route`. */
  of(request: HttpRequest, route: string): BodyRoom {
    return this.#senders.has(route, senderOf(request)) ? this.#known : this.#strangers
  }

  /** A webhook for `route` has a valid signature. */
  remember(request: HttpRequest, route: string): void {
    this.#senders.add(route, senderOf(request))
  }
}

function senderOf({ caller, peerAddress }: HttpRequest): string {
  return networkOf(caller?.address ?? peerAddress)
}

/** Room for webhooks of strangers, or of known senders. */
export class BodyRoom extends Room {
  /** For the first 64 KiB of each, which do not count otherwise. */
  readonly tails = new Room(TAILS_BYTES, 0)

  constructor() {
    super(ROOM_BYTES, RESERVED_BYTES)
  }
}

/** The share of one webhook. */
export class RoomShare {
  bytes = 0
  /** How much of them counts as unverified. */
  unverifiedBytes = 0
  /** Whether its signature is verified, so that nothing replaces it any more. */
  isVerified = false
  readonly network: string
  readonly isSmall: boolean
  readonly shed: () => void
  readonly #room: Room

  constructor(room: Room, network: string, isSmall: boolean, shed: () => void) {
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
