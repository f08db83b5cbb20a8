/** The body of a webhook that may have to be stored: what of it is in memory, and what has gone to the store before. */
import { Buffer } from 'node:buffer'
import { createHash, type Hash } from 'node:crypto'
import { guardWith } from '../../protocol/base/guard.ts'
import { ownBytes } from '../../protocol/base/own-bytes.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'

/** This much is in memory, and as much again on its way to the store. */
const PART_BYTES = 512 * 1024
/** The same as for bodies that an exchange keeps to send again. */
const LEAST_SHARE = 1 / 2

/** Bytes that all bodies together have in memory. */
export class BodyBudget {
  readonly #most: number
  readonly #byRuntime = new Map<string, number>()
  used = 0

  constructor(most: number) {
    this.#most = most
  }

  /** A runtime gets at most as much as it leaves free: half of all if it is alone. So nobody can take everything. */
  isFull(runtime: string): boolean {
    return (this.#byRuntime.get(runtime) ?? 0) >= this.#most - this.used
  }

  /** Negative: bytes are given back. */
  add(runtime: string, bytes: number): void {
    this.used += bytes
    const used = (this.#byRuntime.get(runtime) ?? 0) + bytes
    if (used === 0) this.#byRuntime.delete(runtime)
    else this.#byRuntime.set(runtime, used)
  }
}

/** Whose body it is. */
interface BodyOwner {
  readonly request: Pick<HttpRequest, 'runtime'>
  /** Keeps part `n`; rejects if it could not. */
  part(n: number, bytes: Uint8Array): Promise<unknown>
  /** This many bytes from the beginning are safe, so that more may come. */
  kept(bytes: number): void
  failed(error: unknown): void
}

export class KeptBody {
  readonly #budget: BodyBudget
  readonly #owner: BodyOwner
  #chunks: Uint8Array[] = []
  #chunkBytes = 0
  /** Parts that went to the store; the head is part 0. */
  parts = 0
  bytes = 0
  #hash: Hash | undefined
  #writing = 0
  #lasting = false
  #done = false

  constructor(budget: BodyBudget, owner: BodyOwner) {
    this.#budget = budget
    this.#owner = owner
  }

  add(chunk: Uint8Array): void {
    if (this.#done) return
    this.bytes += chunk.length
    this.#chunks.push(this.#lasting ? ownBytes(chunk, LEAST_SHARE) : chunk)
    this.#chunkBytes += chunk.length
    this.#count(chunk.length)
    if (this.#chunkBytes >= PART_BYTES) this.#spill()
    if (this.#writing === 0) this.#owner.kept(this.bytes)
  }

  /**
   * The body is kept for longer than a moment, so it moves to memory of its own. Nearly every webhook is answered before that;
   * copying all of them would be most of what an inbox costs.
   */
  last(): void {
    if (this.#lasting) return
    this.#lasting = true
    this.#chunks = this.#chunks.map(chunk => ownBytes(chunk, LEAST_SHARE))
  }

  #count(bytes: number): void {
    this.#budget.add(this.#owner.request.runtime!, bytes)
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

  /** Takes what is in memory; the caller owns it from then on. */
  #take(): Uint8Array {
    const bytes = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks, this.#chunkBytes)
    this.#hash ??= createHash('sha256')
    this.#hash.update(bytes)
    this.#count(-this.#chunkBytes)
    this.#chunks = []
    this.#chunkBytes = 0
    return bytes
  }

  /**
   * The end of the body, its digest, and the number of its parts without the head. To be called once; the bytes count until
   * they are dropped.
   */
  finish(): { readonly rest: Uint8Array; readonly digest: Uint8Array; readonly parts: number } {
    const rest = this.#take()
    this.#done = true
    this.#chunkBytes = rest.length
    this.#count(rest.length)
    return { rest, digest: this.#hash!.digest(), parts: this.parts + (rest.length > 0 ? 1 : 0) }
  }

  drop(): void {
    this.#count(-this.#chunkBytes)
    this.#chunkBytes = 0
    this.#chunks = []
    this.#done = true
  }
}
