/** A body that one exchange keeps. */
export interface ReplayedBody {
  /** A runtime, where there are several. */
  readonly owner: string
  /** The caller's. */
  readonly network: string
  /** It may not be kept any longer. */
  release(): void
}

interface Network {
  bytes: number
  /** With their bytes, oldest first. */
  readonly bodies: Map<ReplayedBody, number>
}

interface Owner {
  bytes: number
  readonly networks: Map<string, Network>
}

/**
 * Bounds the bodies that all exchanges together keep, to send them again. When they are too much, the owner that keeps most loses the
 * oldest body of its network that keeps most. So nobody can keep others from sending theirs again.
 */
export class ReplayBudget {
  readonly perExchange: number
  readonly total: number
  used = 0
  readonly #owners = new Map<string, Owner>()

  constructor(perExchange: number, total: number) {
    this.perExchange = perExchange
    this.total = total
  }

  /** More of `body` is kept. It may be the one that is released. */
  add(body: ReplayedBody, bytes: number): void {
    const owner = this.#owners.get(body.owner) ?? { bytes: 0, networks: new Map<string, Network>() }
    this.#owners.set(body.owner, owner)
    const network = owner.networks.get(body.network) ?? { bytes: 0, bodies: new Map<ReplayedBody, number>() }
    owner.networks.set(body.network, network)
    network.bodies.set(body, (network.bodies.get(body) ?? 0) + bytes)
    for (const counts of [network, owner]) counts.bytes += bytes
    this.used += bytes
    while (this.used > this.total) {
      const [oldest] = greediest(greediest(this.#owners).networks).bodies.keys()
      this.delete(oldest!)
      oldest!.release()
    }
  }

  /** Does nothing if nothing of it is counted. */
  delete(body: ReplayedBody): void {
    const owner = this.#owners.get(body.owner)
    const network = owner?.networks.get(body.network)
    const bytes = network?.bodies.get(body)
    if (bytes === undefined) return
    network!.bodies.delete(body)
    if (network!.bodies.size === 0) owner!.networks.delete(body.network)
    if (owner!.networks.size === 0) this.#owners.delete(body.owner)
    for (const counts of [network!, owner!]) counts.bytes -= bytes
    this.used -= bytes
  }
}

function greediest<Holder extends { readonly bytes: number }>(holders: ReadonlyMap<string, Holder>): Holder {
  let greediest: Holder | undefined
  for (const each of holders.values()) if (greediest === undefined || each.bytes > greediest.bytes) greediest = each
  return greediest!
}
