/** Seals one webhook for the key of its client. Nobody here can open it again. */
import { Buffer } from 'node:buffer'
import { TAG_BYTES } from '../../protocol/sealing/hpke.ts'
import { keyIdOf, partAad, type SealedIdentity, sealerFor } from '../../protocol/sealing/sealed-webhook.ts'

export interface Sealing {
  /** Which key opens it, and what its owner needs besides. */
  readonly key: string
  readonly enc: string
  /** Part `n`, once each. */
  part(n: number, bytes: Uint8Array): Uint8Array
}

/** What sealing adds to a part. */
export const SEAL_BYTES = TAG_BYTES

/** Throws if `publicKey` is no key. */
export function seal(publicKey: Uint8Array, identity: SealedIdentity): Sealing {
  const { enc, seal } = sealerFor(publicKey)
  return {
    key: keyIdOf(publicKey),
    enc: Buffer.from(enc).toString('base64url'),
    part: (n, bytes) => seal(n, partAad(identity, n), bytes),
  }
}
