import type { Stream } from '../../protocol/yamux/stream.ts'
import type { Route } from '../registry.ts'
import type { PeerLink } from './link.ts'

/** The way of one exchange to a session of another replica; the edge uses it like a session of its own. */
export class Hop implements Route {
  readonly hops = 1
  /** Who may call is for the replica to say that knows the client. */
  readonly callers = undefined
  readonly instance: string
  readonly epoch: number
  readonly link: PeerLink
  readonly #onRefused: () => void

  constructor(link: PeerLink, instance: string, epoch: number, onRefused: () => void) {
    this.link = link
    this.instance = instance
    this.epoch = epoch
    this.#onRefused = onRefused
  }

  get id(): string {
    return `replica:${this.link.name}`
  }

  get usable(): boolean {
    return this.link.usable
  }

  /** Links between replicas take more than there can be exchanges. */
  readonly full = false

  get exchanges(): number {
    return this.link.exchanges
  }

  set exchanges(count: number) {
    this.link.exchanges = count
  }

  open(): Stream {
    return this.link.open()
  }

  refused(): void {
    this.#onRefused()
  }

  released(): void {
    this.link.exchanges--
  }
}
