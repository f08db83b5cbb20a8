import { type ErrorCode, SallyportError } from '../../base/errors.ts'
import type { RequestSink } from '../../exchange.ts'

/** An exchange whose response has left in full, although its upstream end has not ended it. */
export interface Unended {
  /** What is held of its request, if that is counted. */
  readonly heldBytes?: number
  /** Returns the sink for its last call, unless it is over. */
  takeSink(): RequestSink | undefined
}

/** Honest upstream ends are late by a moment. */
const MOST_UNENDED = 16
/** What one costs with its upstream end, besides its bytes. */
const UNENDED_BYTES = 8 * 1024

/** Those of one connection. They end with it, or if there are too many, the oldest first. */
export class UnendedExchanges {
  readonly #all = new Set<Unended>()

  get heldBytes(): number {
    let bytes = 0
    for (const one of this.#all) bytes += UNENDED_BYTES + (one.heldBytes ?? 0)
    return bytes
  }

  add(one: Unended): void {
    this.#all.add(one)
    const [oldest] = this.#all
    if (this.#all.size > MOST_UNENDED) this.#end(oldest!, 'cancelled')
  }

  /** The upstream end has ended. */
  delete(one: Unended): void {
    this.#all.delete(one)
  }

  /** The connection is over. */
  end(why: ErrorCode): void {
    for (const one of this.#all) this.#end(one, why)
  }

  #end(one: Unended, why: ErrorCode): void {
    this.#all.delete(one)
    one.takeSink()?.requestAbort(new SallyportError(why))
  }
}
