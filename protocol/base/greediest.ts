/** Finds what is given up when owners, each with callers from several networks, hold too much together. */

import { Falling } from './falling.ts'

/** What a network holds at an owner. */
interface Share {
  readonly owner: string
  readonly network: string
  readonly bytes: number
}

/** By which a share is found. No owner has a space in its name. */
export function shareName(owner: string, network: string): string {
  return `${owner} ${network}`
}

/** An owner, or a network. */
class Party<One extends Share> {
  bytes = 0
  #shares: One[] | undefined
  #falling: Falling<One> | undefined

  add(share: One): void {
    this.bytes += share.bytes
    // Most have one, and an array to which one is pushed has room for seventeen.
    if (this.#shares === undefined) this.#shares = [share]
    else this.#shares.push(share)
  }

  get greediest(): One {
    this.#falling ??= new Falling(this.#shares!)
    return this.#falling.most!
  }
}

/**
 * The larger of the greediest owner and the greediest network, over all owners, is to give up some of its greatest share. So neither
 * many networks at one owner nor one network at many owners can use up what others need.
 */
export class Greediest<One extends Share> {
  readonly #owners = new Map<string, Party<One>>()
  readonly #networks = new Map<string, Party<One>>()
  readonly #falling: readonly [owners: Falling<Party<One>>, networks: Falling<Party<One>>]

  constructor(shares: Iterable<One>) {
    for (const share of shares) {
      partyOf(this.#owners, share.owner).add(share)
      partyOf(this.#networks, share.network).add(share)
    }
    this.#falling = [new Falling(this.#owners.values()), new Falling(this.#networks.values())]
  }

  /** `undefined` if there are none. */
  get share(): One | undefined {
    const [{ most: owner }, { most: network }] = this.#falling
    if (owner === undefined || network === undefined) return undefined
    return (network.bytes > owner.bytes ? network : owner).greediest
  }

  /** The share is less by `bytes` now. */
  gaveUp({ owner, network }: One, bytes: number): void {
    this.#owners.get(owner)!.bytes -= bytes
    this.#networks.get(network)!.bytes -= bytes
  }
}

function partyOf<One extends Share>(parties: Map<string, Party<One>>, name: string): Party<One> {
  let party = parties.get(name)
  if (party === undefined) {
    party = new Party()
    parties.set(name, party)
  }
  return party
}
