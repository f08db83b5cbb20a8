/** Keeps the request body until the answer begins, so that the request can be sent to another session. */
import { Buffer } from 'node:buffer'
import { networkOf } from '../../protocol/base/address.ts'
import { SMALL_PIECE_BYTES } from '../../protocol/base/gathered.ts'
import { KEPT_SHARE, ownBytes } from '../../protocol/base/own-bytes.ts'
import type { ReplayBudget, ReplayedBody } from '../../protocol/base/replay-budget.ts'
import type { HeaderList } from '../../protocol/exchange.ts'

/** Small chunks are gathered into buffers of up to this size. */
const MAX_GATHERED_BYTES = 16 * 1024

const NOTHING = new Uint8Array(0)

/** Until the peer has acknowledged the stream, it may still refuse it unread, and this multiple of the bound is kept. */
const UNACKNOWLEDGED = 4

export class Replay implements ReplayedBody {
  readonly #budget: ReplayBudget
  readonly owner: string
  readonly network: string
  #chunks: Uint8Array[] | undefined
  /** Buffer for small chunks that follow those in `#chunks`, and how much of it is filled. */
  #gathered: Uint8Array = NOTHING
  #gatheredBytes = 0
  #keepAll = false
  #acknowledged = false
  bytes = 0
  /** Whether everything of the body that was received is kept. */
  whole = true
  trailers: HeaderList | undefined

  /** `address`: the caller's. Empty for an embedder. */
  constructor(budget: ReplayBudget, runtime: string, address: string) {
    this.#budget = budget
    this.owner = runtime
    this.network = networkOf(address)
  }

  get chunks(): readonly Uint8Array[] {
    this.#closeGathered()
    return this.#chunks ?? NO_CHUNKS
  }

  /**
   * While this is set, everything is kept, and nothing counts. The request waits or is being sent, and whoever sets this bounds what
   * arrives.
   */
  set keepAll(keep: boolean) {
    this.#keepAll = keep
    if (this.bytes === 0) return
    if (keep) this.#budget.delete(this)
    else if (this.#fits(0)) this.#budget.add(this, this.bytes)
    else this.release()
  }

  /** Whether more is kept than may be once the peer has acknowledged the stream. */
  get long(): boolean {
    return this.bytes > this.#budget.perExchange
  }

  /** Whether the peer has acknowledged the stream. Until then it may refuse the request unread, and more is kept. */
  set acknowledged(acknowledged: boolean) {
    this.#acknowledged = acknowledged
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
      this.#closeGathered()
      this.#push(ownBytes(chunk, KEPT_SHARE))
    }
    this.bytes += length
    if (!this.#keepAll) this.#budget.add(this, length)
  }

  #push(chunk: Uint8Array): void {
    if (this.#chunks === undefined) this.#chunks = [chunk]
    else this.#chunks.push(chunk)
  }

  /** A single chunk gets no more room than it needs. Later ones get at most as much as the body has so far. */
  #gather(chunk: Uint8Array): void {
    if (this.#gathered.length - this.#gatheredBytes < chunk.length) {
      this.#closeGathered()
      const room = Math.max(chunk.length, Math.min(this.bytes, MAX_GATHERED_BYTES))
      this.#gathered = Buffer.allocUnsafeSlow(room)
    }
    this.#gathered.set(chunk, this.#gatheredBytes)
    this.#gatheredBytes += chunk.length
  }

  /** Frees unused room: if a large chunk follows, most of the buffer may still be empty. */
  #closeGathered(): void {
    if (this.#gatheredBytes > 0) this.#push(ownBytes(this.#gathered.subarray(0, this.#gatheredBytes), KEPT_SHARE))
    this.#gathered = NOTHING
    this.#gatheredBytes = 0
  }

  #fits(more: number): boolean {
    const { perExchange } = this.#budget
    return this.bytes + more <= (this.#acknowledged ? perExchange : UNACKNOWLEDGED * perExchange)
  }

  /** Drops the body. It cannot be sent again from now on. */
  release(): void {
    this.whole = false
    this.#keepAll = false
    this.#budget.delete(this)
    this.bytes = 0
    this.#chunks = undefined
    this.#gathered = NOTHING
    this.#gatheredBytes = 0
    this.trailers = undefined
  }
}

const NO_CHUNKS: readonly Uint8Array[] = []
