/** The places of connections to targets: how many there may be, and who uses them. */
import type { Socket } from 'node:net'
import { networkOf } from '../../protocol/base/address.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { KeptPorts } from './kept-ports.ts'
import { NetworkShares, type Share } from './network-shares.ts'

/** Limits on connections, shared by the pools of one router. */
export class ConnectionBudget {
  readonly perTarget: number
  readonly total: number
  readonly keptPorts: KeptPorts
  readonly shares: NetworkShares
  /** Of all open connections, including idle ones. */
  readonly places = new Set<Place>()

  constructor(perTarget: number, total: number, keptPorts = new KeptPorts()) {
    this.perTarget = perTarget
    this.total = total
    this.keptPorts = keptPorts
    this.shares = new NetworkShares(total)
  }

  /** Open connections, including idle ones. */
  get used(): number {
    return this.places.size
  }

  /** Ends a connection that carries no more, or the one that has been idle for the longest. */
  makeRoom(): void {
    longestIdle(this.places)?.evict()
  }
}

function longestIdle(places: Iterable<Place>): Place | undefined {
  let longest: Place | undefined
  for (const place of places) if (place.idleAt < (longest?.idleAt ?? Number.POSITIVE_INFINITY)) longest = place
  return longest
}

/** The connections to one target, whatever they speak. */
export class TargetConnections {
  readonly budget: ConnectionBudget
  readonly shares: NetworkShares
  /** Open connections, including idle ones. */
  open = 0
  /** Those that carry no more, and whose sockets are still open. Each ends at once if another connection needs its place. */
  readonly leaving = new Set<Place>()

  constructor(budget: ConnectionBudget) {
    this.budget = budget
    this.shares = new NetworkShares(budget.perTarget)
  }

  get keptPorts(): KeptPorts {
    return this.budget.keptPorts
  }

  /** Whether the network of `caller` uses its share, of this target or of all. */
  isGreedy(caller: string): boolean {
    return this.shares.isGreedy(caller) || this.budget.shares.isGreedy(caller)
  }

  /** Undefined if one more connection is allowed, for `caller`. */
  refuse(caller: string): SallyportError | undefined {
    const { perTarget, total, shares } = this.budget
    const open = this.open - this.leaving.size
    if (open < perTarget && shares.used < total && !this.isGreedy(caller)) return undefined
    const here = `${open} here, ${this.shares.usedBy(caller)} of them used by the network of the caller`
    const inAll = `${shares.used} used in all, ${shares.usedBy(caller)} of them by it`
    return new SallyportError('overloaded', `too many connections to upstreams (${here}; ${inAll})`)
  }

  /** Undefined if `caller` may use a connection to `address`, which is counted already. */
  refuseFor(caller: string, address: string | undefined): SallyportError | undefined {
    if (address === undefined || !this.keptPorts.refuses(caller, address, this.open)) return undefined
    return new SallyportError('overloaded', `the network of the caller keeps too many local ports of ${address}`)
  }

  /**
   * For one more connection, which is allowed. If there are as many as may be, one that carries no more ends, or else the one that has
   * been idle for the longest.
   */
  add(caller: string): Place {
    if (this.open >= this.budget.perTarget) longestIdle(this.leaving)?.evict()
    if (this.budget.used >= this.budget.total) this.budget.makeRoom()
    return new Place(this, caller)
  }
}

/** Where a connection counts until its socket is gone: for the network that uses it, or for nobody while it is idle. */
export class Place {
  /** Since when it has been idle; never while it is used. */
  idleAt = Number.POSITIVE_INFINITY
  /** Ends the connection, which is idle or carries no more, and its socket at once. */
  close = () => {}
  readonly #connections: TargetConnections
  /** Of the caller that uses it. */
  #network: string | undefined
  /** What that network uses of this target, and of all. */
  #here: Share | undefined
  #inAll: Share | undefined
  /** Its connection carries no more. */
  #over = false
  /** Its socket is gone, too. */
  #gone = false

  constructor(connections: TargetConnections, caller: string) {
    this.#connections = connections
    connections.open++
    connections.budget.places.add(this)
    this.use(caller)
  }

  use(caller: string): void {
    const network = networkOf(caller)
    if (this.#over || network === this.#network) return
    this.#leave()
    this.idleAt = Number.POSITIVE_INFINITY
    this.#network = network
    this.#here = this.#connections.shares.use(network)
    this.#inAll = this.#connections.budget.shares.use(network)
  }

  rest(now: number): void {
    if (this.#over) return
    this.#leave()
    this.idleAt = now
  }

  /** Its connection carries no more. `socket` may take a while to close. Those that still have to send something give way last. */
  endWith(socket: Socket): void {
    if (this.#over) return
    this.rest(socket.writableLength > 0 ? performance.now() : Number.NEGATIVE_INFINITY)
    this.#over = true
    if (socket.destroyed) {
      this.end()
      return
    }
    this.#connections.leaving.add(this)
    const end = () => this.end()
    const guard = guardWith(end)
    socket.once('close', guard(end))
  }

  /** Its socket is gone, or there was none. */
  end(): void {
    if (this.#gone) return
    this.#gone = true
    this.#over = true
    this.#leave()
    this.#connections.open--
    this.#connections.leaving.delete(this)
    this.#connections.budget.places.delete(this)
  }

  evict(): void {
    this.close()
    this.end()
  }

  #leave(): void {
    if (this.#network === undefined) return
    this.#network = undefined
    this.#connections.shares.leave(this.#here!)
    this.#connections.budget.shares.leave(this.#inAll!)
  }
}
