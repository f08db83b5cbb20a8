/** The part of a request body that is kept until an answer begins, so that another session can be given the request. */
import type { HeaderList } from '../../protocol/exchange.ts'
import { ownBytes } from '../../protocol/own-bytes.ts'

/** Kept for longer than what waits to be written: a chunk has at least so large a part of the memory that it keeps. */
const LEAST_SHARE = 1 / 2

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

/** Of a body that may still be refused so many times the bound are kept: about what leaves until that is known. */
const UNTAKEN = 4

export class Replay {
  readonly #budget: ReplayBudget
  #chunks: Uint8Array[] | undefined
  #keepAll = false
  #taken = false
  bytes = 0
  /** Everything that came of the body is here. */
  whole = true
  trailers: HeaderList | undefined

  constructor(budget: ReplayBudget) {
    this.#budget = budget
  }

  get chunks(): readonly Uint8Array[] {
    return this.#chunks ?? NOTHING
  }

  /**
   * While it is set, nothing is let go: nobody has taken anything of the body yet, and whoever sets it bounds what
   * comes.
   */
  set keepAll(keep: boolean) {
    this.#keepAll = keep
    this.#trim()
  }

  /** More of it is kept than will be once the peer has taken it. */
  get long(): boolean {
    return this.bytes > this.#budget.perExchange
  }

  /** Whether the peer that it is sent to has it. Until then it may refuse it unread, and more is kept. */
  set taken(taken: boolean) {
    this.#taken = taken
    this.#trim()
  }

  #trim(): void {
    if (!this.#keepAll && !this.#fits(0)) this.release()
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
    const kept = ownBytes(chunk, LEAST_SHARE)
    if (this.#chunks === undefined) this.#chunks = [kept]
    else this.#chunks.push(kept)
  }

  #fits(more: number): boolean {
    const { perExchange, total, used } = this.#budget
    return this.bytes + more <= perExchange * (this.#taken ? 1 : UNTAKEN) && used + more <= total
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
