/**
 * Limits questions to the directory about names that nobody serves. Anybody can make names up, and each new one costs a question.
 * So a burst is allowed, and then a rate per second, for each network and in total. Names that are served never count.
 */
import { AgedMap } from './aged-map.ts'

const PER_NETWORK = { burst: 200, perSecond: 20 }
const ALL = { burst: 5000, perSecond: 1000 }
/** Most networks that are counted. The one whose last unknown name was longest ago is forgotten first. */
const MAX_NETWORKS = 10_000

export class UnknownHosts {
  readonly #now: () => number
  /** For each network, when all its misses so far would have passed at the allowed rate. */
  readonly #paidAt = new AgedMap<number>()
  #allPaidAt = 0

  /** `now` must be monotonic. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Whether the network may ask about one more name. `network` is absent for an embedder. */
  allow(network: string | undefined): boolean {
    const now = this.#now()
    if (!isWithin(this.#allPaidAt - now, ALL)) return false
    return network === undefined || isWithin((this.#paidAt.get(network) ?? 0) - now, PER_NETWORK)
  }

  /** The directory did not know the name. */
  count(network: string | undefined): void {
    const now = this.#now()
    this.#allPaidAt = Math.max(this.#allPaidAt, now) + 1000 / ALL.perSecond
    if (network === undefined) return
    const paidAt = Math.max(this.#paidAt.get(network) ?? 0, now) + 1000 / PER_NETWORK.perSecond
    this.#paidAt.putWithin(MAX_NETWORKS, network, paidAt)
  }
}

function isWithin(debtMs: number, { burst, perSecond }: typeof ALL): boolean {
  return debtMs < (burst * 1000) / perSecond
}
