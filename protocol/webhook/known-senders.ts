/** How many runtimes or routes are remembered at least, and networks of each. A large sender has some hundred addresses. */
const OWNERS = 1024
const NETWORKS = 256

/** The keys that were set most recently: at least `most` of them, and at most twice as many. An `AgedMap` takes three times as much memory. */
class Recent<Value> {
  readonly #most: number
  #recent = new Map<string, Value>()
  #earlier = new Map<string, Value>()

  constructor(most: number) {
    this.#most = most
  }

  get(key: string): Value | undefined {
    return this.#recent.get(key) ?? this.#earlier.get(key)
  }

  set(key: string, value: Value): void {
    if (this.#recent.size >= this.#most && !this.#recent.has(key)) {
      this.#earlier = this.#recent
      this.#recent = new Map()
    }
    this.#recent.set(key, value)
  }
}

/**
 * The networks that have lately sent valid webhooks to a runtime or a route. Strangers cannot become known, however many networks
 * they have, and whoever has the secret of one runtime makes nobody forgotten who is known to another.
 */
export class KnownSenders {
  readonly #byOwner = new Recent<Recent<true>>(OWNERS)

  has(owner: string, network: string): boolean {
    return this.#byOwner.get(owner)?.get(network) === true
  }

  add(owner: string, network: string): void {
    const networks = this.#byOwner.get(owner) ?? new Recent<true>(NETWORKS)
    networks.set(network, true)
    this.#byOwner.set(owner, networks)
  }
}
