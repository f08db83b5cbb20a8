import type { Span } from '../../protocol/trace/span.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import type { RuntimeState } from '../directory/directory.ts'
import type { Carrier } from '../registry.ts'
import type { PeerLink } from './link.ts'

/** The creator of hops, which keeps track of them. */
export interface HopOwner {
  opened(link: PeerLink, state: RuntimeState): void
  released(link: PeerLink, state: RuntimeState): void
  gave(hop: Hop, span: Span): void
  refused(link: PeerLink, state: RuntimeState): void
}

/** Carries an exchange to a session at another replica. The edge uses it like one of its own sessions. */
export class Hop implements Carrier {
  readonly hops = 1
  /** The other replica checks who may call, since it knows the client. */
  readonly callers = undefined
  readonly instance: string
  readonly link: PeerLink
  readonly #owner: HopOwner
  readonly #state: RuntimeState

  /** `state` is the state by which the replica was chosen. */
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

  /** A link between replicas can take more streams than there are exchanges. */
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
    this.#owner.opened(this.link, this.#state)
    return stream
  }

  refused(): void {
    this.#owner.refused(this.link, this.#state)
  }

  released(): void {
    this.link.exchanges--
    this.#owner.released(this.link, this.#state)
  }
}

export function hopId(replica: string): string {
  return `replica:${replica}`
}
