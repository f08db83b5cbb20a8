/** The part of a request body that is kept until an answer begins, so that another session can be given the request. */
import { Buffer } from 'node:buffer'
import { SMALL_PIECE_BYTES } from '../../protocol/base/gathered.ts'
import { ownBytes } from '../../protocol/base/own-bytes.ts'
import type { HeaderList } from '../../protocol/exchange.ts'

/** A chunk is kept longer than bytes that wait to be written, so it must use at least this share of the memory it holds. */
const LEAST_SHARE = 1 / 2

/** Small chunks are gathered up to this size. */
const MOST_TOGETHER_BYTES = 16 * 1024

const NOTHING = new Uint8Array(0)

/** The share of the total that one runtime may use, so that it takes nothing from the others. */
const RUNTIME_SHARE = 1 / 4

/** Bytes kept by all exchanges together. */
export class ReplayBudget {
  readonly perExchange: number
  readonly total: number
  used = 0
  /** Runtimes for which any bytes are kept. */
  readonly #runtimes = new Map<string, number>()

  constructor(perExchange: number, total: number) {
    this.perExchange = perExchange
    this.total = total
  }

  fits(runtime: string, bytes: number): boolean {
    const usedByRuntime = this.#runtimes.get(runtime) ?? 0
    return this.used + bytes <= this.total && usedByRuntime + bytes <= this.total * RUNTIME_SHARE
  }

  /** Below 0: this many are no longer kept. */
  add(runtime: string, bytes: number): void {
    this.used += bytes
    const usedByRuntime = (this.#runtimes.get(runtime) ?? 0) + bytes
    if (usedByRuntime > 0) this.#runtimes.set(runtime, usedByRuntime)
    else this.#runtimes.delete(runtime)
  }
}

/** While a body may still be refused, this multiple of the bound is kept: about what leaves until that is known. */
const UNTAKEN = 4

export class Replay {
  readonly #budget: ReplayBudget
  readonly #runtime: string
  #chunks: Uint8Array[] | undefined
  /** Small chunks, behind `#chunks`, and how much of it they fill. */
  #together: Uint8Array = NOTHING
  #togetherBytes = 0
  #keepAll = false
  #taken = false
  bytes = 0
  /** Whether everything received of the body is here. */
  whole = true
  trailers: HeaderList | undefined

  constructor(budget: ReplayBudget, runtime: string) {
    this.#budget = budget
    this.#runtime = runtime
  }

  get chunks(): readonly Uint8Array[] {
    this.#closeTogether()
    return this.#chunks ?? NO_CHUNKS
  }

  /**
   * While it is set, nothing is let go: nobody has taken anything of the body yet, and whoever sets it bounds what
   * comes.
   */
  set keepAll(keep: boolean) {
    this.#keepAll = keep
    this.#trim()
  }

  /** Whether more is kept now than will be once the peer has taken it. */
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
    if (length < SMALL_PIECE_BYTES) this.#gather(chunk)
    else {
      this.#closeTogether()
      this.#push(ownBytes(chunk, LEAST_SHARE))
    }
    this.bytes += length
    this.#budget.add(this.#runtime, length)
  }

  #push(chunk: Uint8Array): void {
    if (this.#chunks === undefined) this.#chunks = [chunk]
    else this.#chunks.push(chunk)
  }

  /** A chunk that stays alone gets no more room than it needs; with those before it, at most as much again. */
  #gather(chunk: Uint8Array): void {
    if (this.#together.length - this.#togetherBytes < chunk.length) {
      this.#closeTogether()
      const room = Math.max(chunk.length, Math.min(this.bytes, MOST_TOGETHER_BYTES))
      this.#together = Buffer.allocUnsafeSlow(room)
    }
    this.#together.set(chunk, this.#togetherBytes)
    this.#togetherBytes += chunk.length
  }

  /** Where large chunks come between small ones, most of the room stays empty. */
  #closeTogether(): void {
    if (this.#togetherBytes > 0) this.#push(ownBytes(this.#together.subarray(0, this.#togetherBytes), LEAST_SHARE))
    this.#together = NOTHING
    this.#togetherBytes = 0
  }

  #fits(more: number): boolean {
    const { perExchange } = this.#budget
    const most = this.#taken ? perExchange : UNTAKEN * perExchange
    return this.bytes + more <= most && this.#budget.fits(this.#runtime, more)
  }

  /** From now on it cannot be sent again. */
  release(): void {
    this.whole = false
    this.#keepAll = false
    if (this.bytes > 0) this.#budget.add(this.#runtime, -this.bytes)
    this.bytes = 0
    this.#chunks = undefined
    this.#together = NOTHING
    this.#togetherBytes = 0
    this.trailers = undefined
  }
}

const NO_CHUNKS: readonly Uint8Array[] = []
