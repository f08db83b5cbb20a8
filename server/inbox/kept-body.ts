/** The body of a webhook that may have to be stored: its last bytes in memory, earlier parts already in the store. */
import { Buffer } from 'node:buffer'
import { createHash, type Hash } from 'node:crypto'
import { networkOf } from '../../protocol/base/address.ts'
import { GatheredChunks, SMALL_PIECE_BYTES } from '../../protocol/base/gathered.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { KEPT_SHARE } from '../../protocol/base/own-bytes.ts'
import { Tally } from '../../protocol/base/tally.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'

/** At most about this much is in memory, and as much again on its way to the store. No part is twice as long. */
const PART_BYTES = 512 * 1024
/** More chunks than this are gathered at once, since each costs far more than a byte. A part in ordinary chunks has fewer. */
const MAX_READ_CHUNKS = PART_BYTES / SMALL_PIECE_BYTES

/** The accounts that bytes count against: the runtime's, the network's, and that of the network at the runtime. */
type Payers = readonly [runtime: string, network: string, both: string]

/** Limits the bytes that all bodies together have in memory. */
export class BodyBudget {
  readonly #maxBytes: number
  readonly #limitsNetworks: boolean
  readonly #byPayer = new Tally()
  used = 0

  /** Without `limitsNetworks`, a network is limited only at each runtime. */
  constructor(maxBytes: number, limitsNetworks = true) {
    this.#maxBytes = maxBytes
    this.#limitsNetworks = limitsNetworks
  }

  /**
   * A runtime gets at most as much as it leaves free, which is half of the total if it is alone. A network gets at most twice as much as
   * it leaves free, which is two thirds, since it may serve many runtimes. Of that, a network at one runtime gets at most as much as it
   * leaves free, which is a third. So none can take everything, and nobody is left with nothing.
   */
  isFull([runtime, network, both]: Payers): boolean {
    const ofNetwork = this.#limitsNetworks ? this.#byPayer.of(network) : 0
    const reserve = Math.max(this.#byPayer.of(runtime), ofNetwork / 2)
    return this.#byPayer.of(both) >= this.#maxBytes - this.used - reserve
  }

  /** Negative numbers give bytes back. */
  add(payers: Payers, bytes: number): void {
    this.used += bytes
    for (const payer of payers) this.#byPayer.add(payer, bytes)
  }
}

interface BodyOwner {
  readonly request: Pick<HttpRequest, 'runtime' | 'caller'>
  /** Stores part `n`. Rejects if that fails. */
  part(n: number, bytes: Uint8Array): Promise<unknown>
  /** The first `bytes` bytes are kept safely, so more may come. */
  kept(bytes: number): void
  failed(error: unknown): void
}

export class KeptBody {
  readonly #budget: BodyBudget
  readonly #owner: BodyOwner
  readonly #payers: Payers
  /** Chunks in the buffers that they were read into, until they are owned. */
  #read: Uint8Array[] = []
  #owned: GatheredChunks | undefined
  #chunkBytes = 0
  #heldBytes = 0
  /** Parts of the body that went to the store. */
  parts = 0
  bytes = 0
  #hash: Hash | undefined
  #writing = 0
  #done = false

  constructor(budget: BodyBudget, owner: BodyOwner) {
    this.#budget = budget
    this.#owner = owner
    const { runtime, caller } = owner.request
    const network = networkOf(caller!.address)
    // No runtime is called like a network behind a space.
    this.#payers = [runtime!, ` ${network}`, `${runtime} ${network}`]
  }

  /** No more of it may be kept in memory. */
  get isFull(): boolean {
    return this.#budget.isFull(this.#payers)
  }

  add(chunk: Uint8Array): void {
    if (this.#done) return
    if (chunk.length > PART_BYTES) {
      // An embedder may give a body in one piece.
      this.add(chunk.subarray(0, PART_BYTES))
      this.add(chunk.subarray(PART_BYTES))
      return
    }
    this.bytes += chunk.length
    if (this.#owned !== undefined) this.#owned.add(chunk)
    else if (this.#read.push(chunk) > MAX_READ_CHUNKS) this.own()
    this.#chunkBytes += chunk.length
    this.#count(chunk.length)
    if (this.#chunkBytes >= PART_BYTES) this.#spill()
    if (this.#writing === 0) this.#owner.kept(this.bytes)
  }

  /**
   * Copies the body out of the read buffers, because it is kept for longer than a moment. Nearly every webhook is answered before
   * that, and copying all of them would be most of what an inbox costs.
   */
  own(): void {
    if (this.#owned !== undefined) return
    this.#owned = new GatheredChunks(KEPT_SHARE)
    for (const chunk of this.#read) this.#owned.add(chunk)
    this.#read = []
  }

  /** This many bytes are in memory besides, until the signature is verified. */
  hold(bytes: number): void {
    this.#count(bytes - this.#heldBytes)
    this.#heldBytes = bytes
  }

  #count(bytes: number): void {
    this.#budget.add(this.#payers, bytes)
  }

  #spill(): void {
    const bytes = this.#take()
    this.#count(bytes.length)
    this.#writing++
    this.parts++
    const over = () => {
      this.#writing--
      this.#count(-bytes.length)
    }
    const broken = (error: unknown) => {
      if (!this.#done) this.#owner.failed(error)
    }
    const guard = guardWith(broken)
    const kept = guard(() => {
      over()
      if (this.#writing === 0 && !this.#done) this.#owner.kept(this.bytes)
    })
    const failed = guard((error: unknown) => {
      over()
      broken(error)
    })
    this.#owner.part(this.parts, bytes).then(kept, failed)
  }

  /** Removes and returns what is in memory. */
  #take(): Uint8Array {
    const chunks = [...(this.#owned ?? this.#read)]
    const bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, this.#chunkBytes)
    this.#hash ??= createHash('sha256')
    this.#hash.update(bytes)
    this.#forget()
    return bytes
  }

  /**
   * Returns the last part of the body, the digest of the whole body, and the number of parts without the head. Call it once. The
   * bytes count against the budget until `drop`.
   */
  finish(): { readonly rest: Uint8Array; readonly digest: Uint8Array; readonly parts: number } {
    const rest = this.#take()
    this.#done = true
    this.#chunkBytes = rest.length
    this.#count(rest.length)
    return { rest, digest: this.#hash!.digest(), parts: this.parts + (rest.length > 0 ? 1 : 0) }
  }

  #forget(): void {
    this.#count(-this.#chunkBytes)
    this.#chunkBytes = 0
    this.#read = []
    this.#owned?.clear()
  }

  drop(): void {
    this.#forget()
    this.hold(0)
    this.#done = true
  }
}
