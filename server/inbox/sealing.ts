/** Seals webhooks for the key of their client. Nobody here can open them again. */
import { TAG_BYTES } from '../../protocol/sealing/hpke.ts'
import {
  keyIdOf,
  partAad,
  type SealedIdentity,
  type SealedKey,
  Sealers,
  sealerFor,
} from '../../protocol/sealing/sealed-webhook.ts'

export interface Sealing {
  /** Which key opens it, and what its owner needs besides. */
  readonly key: string
  readonly enc: string
  /** Part `n`, once each. */
  part(n: number, bytes: Uint8Array): Uint8Array
}

/** What sealing adds to a part. */
export const SEAL_BYTES = TAG_BYTES

/** Webhooks that one agreement with the client's key is for, at most: it costs as much as everything else about a webhook. */
const MOST_SHARED = 64
/** And for so long: who reads our memory can open what is sealed with what is left of it. */
const SHARED_MS = 1000

/** For one key of a client. */
export class Seals {
  readonly #publicKey: Uint8Array
  readonly #key: string
  readonly #shared: boolean
  readonly #now: () => number
  #sealers: Sealers | undefined
  #count = 1
  #madeMs = -Infinity

  /** `shared`: its owner opens both forms, not the first alone. Throws if `publicKey` is no key. */
  constructor(publicKey: Uint8Array, shared: boolean, now: () => number = () => performance.now()) {
    sealerFor(publicKey)
    this.#publicKey = publicKey
    this.#key = keyIdOf(publicKey)
    this.#shared = shared
    this.#now = now
  }

  seal(identity: SealedIdentity): Sealing {
    const { enc, seal } = this.#shared ? this.#next() : sealerFor(this.#publicKey)
    return { key: this.#key, enc, part: (n, bytes) => seal(n, partAad(identity, n), bytes) }
  }

  #next(): SealedKey {
    const now = this.#now()
    const isFresh = now - this.#madeMs < SHARED_MS
    const left = isFresh ? this.#sealers?.take() : undefined
    if (left !== undefined) return left
    // For as many as will come, as far as can be known: where they come seldom, each has its own.
    this.#count = isFresh ? Math.min(2 * this.#count, MOST_SHARED) : 1
    this.#sealers = new Sealers(this.#publicKey, this.#count)
    this.#madeMs = now
    return this.#sealers.take()!
  }
}
