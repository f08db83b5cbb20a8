/** Sources of verification keys: given by value, read from a file, or fetched from an https URL. */
import { createLocalJWKSet, errors, type JSONWebKeySet } from 'jose'
import { isRecord } from '../../protocol/base/is-record.ts'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'

export type KeySet = ReturnType<typeof createLocalJWKSet>

/** The keys themselves, a file (watched), or an https URL. */
export type KeyOrigin =
  | JSONWebKeySet
  | { readonly file: string }
  | { readonly url: string; readonly ca?: string | string[] | undefined; readonly coolDownMs?: number | undefined }

export interface KeySource {
  /** The last valid set. `undefined` until the first one has been read. */
  readonly current: KeySet | undefined
  /**
   * Called when no key matches a token, or none verifies it. Resolves to true if the set has just been read again. A flood of tokens
   * costs nothing, since there is only one read at a time, and none within the cool-down.
   */
  refresh(): Promise<boolean>
  close(): void
}

export const MAX_KEY_SET_BYTES = 64 * 1024
const MAX_KEYS = 64
const MAX_MODULUS_BITS = 16_384n
/** Most keys of one type that have the same `kid`, or none. A token is tried with each of them, which strangers could exploit. */
export const MAX_ALIKE = 8
const SECRET_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']

/** Parses the text of a key set. Rejects with an Error that says what is wrong, and never quotes the text. */
export async function parseKeySet(text: string, algorithms?: readonly string[]): Promise<KeySet> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new Error('the key set is not JSON')
  }
  return buildKeySet(value, algorithms)
}

/**
 * A key set must have no secret key, and at least one public key for one of the `algorithms` that tokens may have. Keys that cannot
 * verify any of them are ignored (RFC 7517 section 5).
 */
export async function buildKeySet(value: unknown, algorithms: readonly string[] = DEFAULT_ALGORITHMS): Promise<KeySet> {
  if (!isRecord(value) || !Array.isArray(value.keys)) throw new Error('the key set has no list `keys`')
  if (value.keys.length > MAX_KEYS) throw new Error(`the key set has over ${MAX_KEYS} keys`)
  const keys = value.keys.filter(isRecord)
  if (keys.some(key => SECRET_MEMBERS.some(member => member in key))) {
    throw new Error('the key set contains a secret key; only public keys belong in it')
  }
  const tried = await Promise.all(keys.map(async key => ((await isUsable(key, algorithms)) ? [key] : [])))
  const usable = tried.flat()
  if (usable.length === 0) throw new Error(`the key set has no public key for ${algorithms.join(', ')}`)
  for (const alike of Map.groupBy(usable, ({ kty, crv, kid }) => JSON.stringify([kty, crv, kid])).values()) {
    if (alike.length <= MAX_ALIKE) continue
    throw new Error(`the key set has over ${MAX_ALIKE} keys of one kind and one kid, or none: give each its own`)
  }
  // A token without `kid` is tried with keys without `kid` first.
  const sorted = [...usable.filter(key => key.kid === undefined), ...usable.filter(key => key.kid !== undefined)]
  return localSet(sorted)
}

const localSet = (keys: object[]) => createLocalJWKSet({ keys } as unknown as JSONWebKeySet)

async function isUsable(key: Record<string, unknown>, algorithms: readonly string[]): Promise<boolean> {
  if (key.kty === 'RSA' && !(hasSoundExponent(key.e) && hasSoundModulus(key.n))) return false
  return (await algorithmsOf(localSet([key]), algorithms)).length > 0
}

/** The algorithms for which the set has a key, or more than one. */
export async function algorithmsOf(keys: KeySet, algorithms: readonly string[]): Promise<string[]> {
  const found = algorithms.map(async alg => {
    const has = keys({ alg }).then(
      () => true,
      (error: unknown) => error instanceof errors.JWKSMultipleMatchingKeys,
    )
    return (await has) ? [alg] : []
  })
  return (await Promise.all(found)).flat()
}

const ROCA_PRIMES = [
  3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101,
].concat([103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167])

/**
 * At least 2048 bits, since no token is verified with less (RFC 7518 section 3.3), and at most what OpenSSL verifies with. Keys of a broken generator (ROCA, CVE-2017-15361) are
 * a power of 65537 modulo each small prime. Anybody can factor them.
 */
function hasSoundModulus(n: unknown): boolean {
  if (typeof n !== 'string') return false
  const modulus = BigInt(`0x${Buffer.from(n, 'base64url').toString('hex') || '0'}`)
  if (modulus >> 2047n === 0n || modulus >> MAX_MODULUS_BITS !== 0n || modulus % 2n === 0n) return false
  return !ROCA_PRIMES.every(prime => {
    const rest = Number(modulus % BigInt(prime))
    let power = 1
    for (let i = 0; i < prime; i++) {
      if (power === rest) return true
      power = (power * 65_537) % prime
    }
    return false
  })
}

/** With exponent 1 or an even one, anybody can sign. */
function hasSoundExponent(e: unknown): boolean {
  if (typeof e !== 'string') return false
  const bytes = Buffer.from(e, 'base64url')
  const value = bytes.length <= 8 ? BigInt(`0x${bytes.toString('hex') || '0'}`) : 0n
  return value >= 3n && value % 2n === 1n
}

/** A key set that is given by value and never changes. */
export async function givenKeys(jwks: unknown, algorithms?: readonly string[]): Promise<KeySource> {
  return { current: await buildKeySet(jwks, algorithms), refresh: async () => false, close: () => {} }
}
