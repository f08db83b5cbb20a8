import type { Span } from '../../protocol/trace/span.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import type { RuntimeState } from '../directory/directory.ts'
import type { Carrier } from '../registry.ts'
import type { PeerLink } from './link.ts'

/** The maker of a hop, which counts what becomes of it. */
export interface HopOwner {
  opened(): void
  gave(hop: Hop, span: Span): void
  refused(link: PeerLink, state: RuntimeState): void
}

/** The way of one exchange to a session of another replica; the edge uses it like a session of its own. */
export class Hop implements Carrier {
  readonly hops = 1
  /** Who may call is for the replica to say that knows the client. */
  readonly callers = undefined
  readonly instance: string
  readonly link: PeerLink
  readonly #owner: HopOwner
  readonly #state: RuntimeState

  /** `state`: by which it was chosen. */
  constructor(owner: HopOwner, link: PeerLink, state: RuntimeState, instance: string) {
    this.#owner = owner
    this.link = link
    this.#state = state
    this.instance = instance
  }

  get epoch(): number {
    return this.#state.epoch
  }

  get id(): string {
    return hopId(this.link.name)
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

  gave(span: Span): void {
    this.#owner.gave(this, span)
  }

  open(): Stream {
    const stream = this.link.open()
    this.#owner.opened()
    return stream
  }

  refused(): void {
    this.#owner.refused(this.link, this.#state)
  }

  released(): void {
    this.link.exchanges--
  }
}

export function hopId(replica: string): string {
  return `replica:${replica}`
}
