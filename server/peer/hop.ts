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
  /** Version of the standing that it was chosen by: a later one may choose the same replica again. */
  readonly version: number
  readonly link: PeerLink

  constructor(link: PeerLink, instance: string, epoch: number, version: number) {
    this.link = link
    this.instance = instance
    this.epoch = epoch
    this.version = version
  }

  get id(): string {
    return `replica:${this.link.name}`
  }

  get usable(): boolean {
    return this.link.usable
  }

  get exchanges(): number {
    return this.link.exchanges
  }

  set exchanges(count: number) {
    this.link.exchanges = count
  }

  open(): Stream {
    return this.link.open()
  }

  released(): void {
    this.link.exchanges--
  }
}
