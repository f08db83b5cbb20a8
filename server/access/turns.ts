/**
 * Limits how many tasks run at a time, and shares the turns by network. Each network may run only so many at a time. Waiting tasks of
 * different networks take turns. If too many wait, the network with most waiting tasks loses its newest.
 */
import { networkOf } from '../../protocol/base/address.ts'
import { ConnectionSlots, type SlotHolder } from '../../protocol/base/connection-slots.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'

interface TurnLimits {
  /** Most tasks at a time. */
  readonly atOnce: number
  /** The same for one network. */
  readonly perNetwork: number
  readonly waiting: number
}

interface Waiter extends SlotHolder {
  begin(): void
}

interface Network {
  readonly key: string
  underWay: number
  /** In order of arrival. */
  readonly waiting: Set<Waiter>
}

export class Turns {
  readonly #limits: TurnLimits
  /** Networks that have something running or waiting. The one that had its turn last comes last. */
  readonly #networks = new Map<string, Network>()
  readonly #slots: ConnectionSlots
  #underWay = 0

  constructor(limits: TurnLimits) {
    this.#limits = limits
    this.#slots = new ConnectionSlots(limits.waiting)
  }

  /** Runs `task` when its turn comes. Rejects with `overloaded` if it loses its slot, or if `signal` is aborted while it waits. */
  async run<T>(address: string, signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    signal.throwIfAborted()
    const network = this.#networkOf(networkOf(address))
    if (this.#mayBegin(network)) this.#begin(network)
    else await this.#wait(network, address, signal)
    try {
      return await task()
    } finally {
      network.underWay--
      this.#underWay--
      this.#forget(network)
      this.#next()
    }
  }

  #networkOf(key: string): Network {
    const known = this.#networks.get(key)
    if (known !== undefined) return known
    const network = { key, underWay: 0, waiting: new Set<Waiter>() }
    this.#networks.set(key, network)
    return network
  }

  #forget({ key, underWay, waiting }: Network): void {
    if (underWay === 0 && waiting.size === 0) this.#networks.delete(key)
  }

  #mayBegin({ underWay }: Network): boolean {
    return this.#underWay < this.#limits.atOnce && underWay < this.#limits.perNetwork
  }

  #begin(network: Network): void {
    network.underWay++
    this.#underWay++
    this.#networks.delete(network.key)
    this.#networks.set(network.key, network)
  }

  #wait(network: Network, address: string, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const leave = () => {
      signal.removeEventListener('abort', aborted)
      this.#slots.delete(waiter)
      network.waiting.delete(waiter)
    }
    const giveUp = (reason: unknown) => {
      leave()
      this.#forget(network)
      reject(reason)
    }
    const guard = guardWith(reject)
    const aborted = guard(() => giveUp(signal.reason))
    const waiter: Waiter = {
      address,
      idle: false,
      destroy: () => giveUp(new SallyportError('overloaded', 'too many callers are being asked about')),
      begin: () => {
        leave()
        this.#begin(network)
        resolve()
      },
    }
    signal.addEventListener('abort', aborted)
    network.waiting.add(waiter)
    if (this.#slots.makeRoom(address)) this.#slots.add(waiter)
    else waiter.destroy()
    return promise
  }

  #next(): void {
    for (const network of this.#networks.values()) {
      const [first] = network.waiting
      if (first === undefined || !this.#mayBegin(network)) continue
      first.begin()
      return
    }
  }
}
