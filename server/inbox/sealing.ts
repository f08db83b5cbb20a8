/** Seals webhooks for their client's public key. The server cannot open them again. */
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
  /** Id of the key that opens it, and the HPKE `enc` that goes with it. */
  readonly key: string
  readonly enc: string
  /** Seals part `n`. Call it once per part. */
  part(n: number, bytes: Uint8Array): Uint8Array
}

/** How much longer a part becomes by sealing. */
export const SEAL_BYTES = TAG_BYTES

/** Most webhooks that share one key agreement, which costs as much as everything else about storing a webhook. */
const MAX_SHARED = 64
/** How long a key agreement is used. Somebody who can read our memory can open what will be sealed with it. */
const SHARED_MS = 1000

/** Seals for one public key. */
export class ClientSealer {
  readonly #publicKey: Uint8Array
  readonly #key: string
  readonly #shared: boolean
  readonly #now: () => number
  #sealers: Sealers | undefined
  #count = 1
  #madeMs = -Infinity

  /** `shared`: the client can also open webhooks that share a key agreement. Throws if `publicKey` is invalid. */
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
    // Doubles while webhooks keep coming. If they are rare, each has its own key agreement.
    this.#count = isFresh ? Math.min(2 * this.#count, MAX_SHARED) : 1
    this.#sealers = new Sealers(this.#publicKey, this.#count)
    this.#madeMs = now
    return this.#sealers.take()!
  }
}
