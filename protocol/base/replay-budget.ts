import { SHED_SHARE } from './budget.ts'
import { Greediest, shareName } from './greediest.ts'

/** A body that one exchange keeps. */
export interface ReplayedBody {
  /** A runtime, where there are several. */
  readonly owner: string
  /** The caller's. */
  readonly network: string
  /** It may not be kept any longer. */
  release(): void
}

/** What a network keeps at an owner. */
interface Share {
  readonly owner: string
  readonly network: string
  bytes: number
  /** With their bytes, oldest first. */
  readonly bodies: Map<ReplayedBody, number>
}

/**
 * Bounds the bodies that all exchanges together keep, to send them again. When they are too much, the owner or the network that keeps most
 * loses its oldest bodies, where it keeps most. So nobody can keep others from sending theirs again.
 */
export class ReplayBudget {
  readonly perExchange: number
  readonly total: number
  used = 0
  readonly #shares = new Map<string, Share>()

  constructor(perExchange: number, total: number) {
    this.perExchange = perExchange
    this.total = total
  }

  /** More of `body` is kept. It may be among those that are released. */
  add(body: ReplayedBody, bytes: number): void {
    const { owner, network } = body
    const name = shareName(owner, network)
    let share = this.#shares.get(name)
    if (share === undefined) {
      share = { owner, network, bytes: 0, bodies: new Map() }
      this.#shares.set(name, share)
    }
    share.bodies.set(body, (share.bodies.get(body) ?? 0) + bytes)
    share.bytes += bytes
    this.used += bytes
    if (this.used > this.total) this.#shed()
  }

  /** All shares are looked at, so some room is made at once. */
  #shed(): void {
    const greediest = new Greediest(this.#shares.values())
    while (this.used > this.total * (1 - SHED_SHARE)) {
      const share = greediest.share!
      const [body, bytes] = share.bodies.entries().next().value!
      this.delete(body)
      greediest.gaveUp(share, bytes)
      body.release()
    }
  }

  /** Does nothing if nothing of it is counted. */
  delete(body: ReplayedBody): void {
    const name = shareName(body.owner, body.network)
    const share = this.#shares.get(name)
    const bytes = share?.bodies.get(body)
    if (share === undefined || bytes === undefined) return
    share.bodies.delete(body)
    share.bytes -= bytes
    if (share.bodies.size === 0) this.#shares.delete(name)
    this.used -= bytes
  }
}
