/** Finds what is given up when owners, each with callers from several networks, hold too much together. */

interface Holder {
  readonly bytes: number
}

/** What a network holds at an owner. */
interface Share extends Holder {
  readonly owner: string
  readonly network: string
}

/** Of those whose bytes only fall, the one with the most. There may be a hundred thousand of them, so it is kept at the top of a heap. */
class Falling<One extends Holder> {
  readonly #heap: One[]
  /** What each of them held when it was last looked at. */
  readonly #bytes: number[]

  constructor(all: Iterable<One>) {
    this.#heap = [...all]
    this.#bytes = this.#heap.map(({ bytes }) => bytes)
    for (let at = this.#heap.length >> 1; at >= 0; at--) this.#sink(at)
  }

  get most(): One | undefined {
    while (this.#heap.length > 0 && this.#heap[0]!.bytes < this.#bytes[0]!) {
      this.#bytes[0] = this.#heap[0]!.bytes
      this.#sink(0)
    }
    return this.#heap[0]
  }

  /** It moves down behind those that hold more. */
  #sink(from: number): void {
    const [heap, held] = [this.#heap, this.#bytes]
    const [one, bytes] = [heap[from]!, held[from]!]
    let at = from
    for (let child = 2 * at + 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && held[child + 1]! > held[child]!) child++
      if (held[child]! <= bytes) break
      heap[at] = heap[child]!
      held[at] = held[child]!
      at = child
    }
    heap[at] = one
    held[at] = bytes
  }
}

/** An owner, or a network. */
class Party<One extends Share> implements Holder {
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
