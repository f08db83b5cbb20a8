/**
 * Names that nobody serves, and who asked for them. Anybody can make names up, and each that is not known yet is a question
 * to the directory: so many are answered at once, and then so many a second, for each network and for all together. Who
 * asks for names that are served is never counted.
 */
import { AgedMap } from './aged-map.ts'

const PER_NETWORK = { burst: 200, perSecond: 20 }
const ALL = { burst: 5000, perSecond: 1000 }
/** Networks that are counted at a time; the one that asked in vain longest ago is forgotten first. */
const MAX_NETWORKS = 10_000

export class UnknownHosts {
  readonly #now: () => number
  /** When all misses so far would have come at the allowed rate; the latest at the end. */
  readonly #paidAt = new AgedMap<number>()
  #allPaidAt = 0

  /** `now`: of a clock that never goes back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Whether one more name may be asked for. `network`: absent for an embedder. */
  allow(network: string | undefined): boolean {
    const now = this.#now()
    if (!isWithin(this.#allPaidAt - now, ALL)) return false
    return network === undefined || isWithin((this.#paidAt.get(network) ?? 0) - now, PER_NETWORK)
  }

  /** The directory knew nothing of what was asked for. */
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
