/** Who uses connections to targets, by network of the caller. */
import { networkOf } from '../../protocol/base/address.ts'

/** How many connections a network may use for each that is free. Alone it gets three quarters of them, so others are left a quarter. */
const USED_PER_FREE = 3
/** How many networks are remembered that use none. Each request would otherwise forget one, and remember it again. */
const REMEMBERED = 64

/** What one network uses. */
export interface Share {
  used: number
}

export class NetworkShares {
  readonly #most: number
  readonly #shares = new Map<string, Share>()
  #used = 0

  /** `most`: how many may be used together. */
  constructor(most: number) {
    this.#most = most
  }

  get used(): number {
    return this.#used
  }

  /** What the network of `caller` uses. */
  usedBy(caller: string): number {
    return this.#shares.get(networkOf(caller))?.used ?? 0
  }

  /** Whether the network of `caller` uses its share. Nobody's is looked up while most are free. */
  isGreedy(caller: string): boolean {
    const most = USED_PER_FREE * (this.#most - this.#used)
    if (this.#used < most) return false
    const own = this.usedBy(caller)
    return own > 0 && own >= most
  }

  /** Counts one for `network`. What it returns is for {@link leave}. */
  use(network: string): Share {
    const share = this.#shares.get(network) ?? this.#remember(network)
    share.used++
    this.#used++
    return share
  }

  leave(share: Share): void {
    share.used--
    this.#used--
  }

  #remember(network: string): Share {
    // At most half of them use any, so that this looks at few for each new one.
    if (this.#shares.size >= 2 * this.#used + REMEMBERED) {
      for (const [key, { used }] of this.#shares) if (used === 0) this.#shares.delete(key)
    }
    const share = { used: 0 }
    this.#shares.set(network, share)
    return share
  }
}
