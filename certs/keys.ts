import { calculateJwkThumbprint, exportJWK, generateKeyPair, type JSONWebKeySet, type JWK } from 'jose'
import { checkMembers } from '../protocol/base/members.ts'

/** Signature algorithms for tokens; the first is the default. */
export const TOKEN_ALGORITHMS = ['EdDSA', 'ES256', 'RS256', 'PS256'] as const
/** One of {@link TOKEN_ALGORITHMS}. */
export type TokenAlgorithm = (typeof TOKEN_ALGORITHMS)[number]

/** A key pair for tokens. */
export interface TokenKeys {
  /** Signs tokens. Keep it secret. */
  readonly privateJwk: JWK
  /** Verifies tokens. For the server. */
  readonly jwks: JSONWebKeySet
}

/**
 * Makes a key pair for signing tokens. Its `kid` is its RFC 7638 thumbprint.
 *
 * @example
 * ```ts
 * import { createKeys } from 'sallyport/certs'
 *
 * const { privateJwk, jwks } = await createKeys({ alg: 'ES256' })
 * ```
 */
export async function createKeys(options: { alg?: TokenAlgorithm } = {}): Promise<TokenKeys> {
  checkMembers('', options, { alg: 'string' })
  const alg = options.alg ?? 'EdDSA'
  if (!TOKEN_ALGORITHMS.includes(alg)) {
    throw new TypeError(`algorithm ${JSON.stringify(alg)} is not one of ${TOKEN_ALGORITHMS.join(', ')}`)
  }
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true })
  const publicJwk = await exportJWK(publicKey)
  const common = { kid: await calculateJwkThumbprint(publicJwk), alg, use: 'sig' }
  return {
    privateJwk: { ...(await exportJWK(privateKey)), ...common },
    jwks: { keys: [{ ...publicJwk, ...common }] },
  }
}
