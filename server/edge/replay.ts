/** The part of a request body that is kept until an answer begins, so that another session can be given the request. */
import type { HeaderList } from '../../protocol/exchange.ts'

/** Bytes kept by all exchanges together. */
export class ReplayBudget {
  readonly perExchange: number
  readonly total: number
  used = 0

  constructor(perExchange: number, total: number) {
    this.perExchange = perExchange
    this.total = total
  }
}

export class Replay {
  readonly #budget: ReplayBudget
  #chunks: Uint8Array[] | undefined
  #keepAll = false
  bytes = 0
  /** Everything that came of the body is here. */
  whole: boolean
  trailers: HeaderList | undefined

  constructor(budget: ReplayBudget, bodyBytes: number) {
    this.#budget = budget
    this.whole = bodyBytes <= budget.perExchange
  }

  get chunks(): readonly Uint8Array[] {
    return this.#chunks ?? NOTHING
  }

  /**
   * While it is set, nothing is let go: nobody has taken anything of the body yet, and whoever sets it bounds what
   * comes.
   */
  set keepAll(keep: boolean) {
    if (keep === this.#keepAll) return
    this.#keepAll = keep
    if (keep) this.whole = true
    else if (!this.#fits(0)) this.release()
  }

  add(chunk: Uint8Array): void {
    if (!this.whole) return
    const { length } = chunk
    if (!this.#keepAll && !this.#fits(length)) {
      this.release()
      return
    }
    this.bytes += length
    this.#budget.used += length
    // A small chunk would keep the whole buffer alive that it was read into.
    const kept = chunk.buffer.byteLength > 2 * length ? Uint8Array.prototype.slice.call(chunk) : chunk
    if (this.#chunks === undefined) this.#chunks = [kept]
    else this.#chunks.push(kept)
  }

  #fits(more: number): boolean {
    return this.bytes + more <= this.#budget.perExchange && this.#budget.used + more <= this.#budget.total
  }

  /** It can no longer be sent again. */
  release(): void {
    this.whole = false
    this.#keepAll = false
    this.#budget.used -= this.bytes
    this.bytes = 0
    this.#chunks = undefined
    this.trailers = undefined
  }
}

const NOTHING: readonly Uint8Array[] = []
