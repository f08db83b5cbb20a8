/** Verifies a bearer token: form, header, key, signature, claims, in that order (RFC 8725). */
import { compactVerify, errors } from 'jose'
import { type ClaimRules, checkValidity, type Identity, readClaims } from './claims.ts'
import { parseUniqueObject } from './json.ts'
import { type KeySet, type KeySource, MAX_ALIKE } from './key-source.ts'
import { KeysUnavailable, TokenRefused } from './refusal.ts'

export const MAX_TOKEN_BYTES = 8192

interface TokenVerifierOptions extends ClaimRules {
  readonly keys: KeySource
  readonly algorithms: readonly string[]
  readonly now: () => number
}

/** What is before the `{` is no part of an object. */
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true })

export class TokenVerifier {
  readonly #options: TokenVerifierOptions
  readonly #algorithms: string[]

  constructor(options: TokenVerifierOptions) {
    this.#options = options
    this.#algorithms = [...options.algorithms]
  }

  /** The identity in `token`. Rejects with {@link TokenRefused}, or {@link KeysUnavailable} while there is no key set. */
  async verify(token: string): Promise<Identity> {
    this.#checkForm(token)
    const payload = await this.#verifySignature(token)
    return readClaims(payload, this.#options, this.#options.now())
  }

  /** The claims of a valid token that need not name a runtime. Rejects like `verify`. */
  async check(token: string): Promise<Record<string, unknown>> {
    this.#checkForm(token)
    const payload = await this.#verifySignature(token)
    checkValidity(payload, this.#options, this.#options.now())
    return payload
  }

  /** The checks that need no key. */
  #checkForm(token: string): void {
    if (token.length > MAX_TOKEN_BYTES) throw new TokenRefused('length', 'the token is over 8 KiB')
    const parts = token.split('.')
    if (parts.length !== 3 || !parts.every(isCanonicalBase64Url)) {
      throw new TokenRefused('form', 'not a compact JWS')
    }
    const header = parseUniqueObject(Buffer.from(parts[0]!, 'base64url').toString('utf8'))
    if (header === undefined) throw new TokenRefused('form', 'the header is not a JSON object with unique members')
    if ('crit' in header || 'b64' in header || 'enc' in header || 'zip' in header) {
      throw new TokenRefused('header', 'the header has crit, b64, enc or zip')
    }
    if (typeof header.alg !== 'string' || !this.#algorithms.includes(header.alg)) {
      throw new TokenRefused('algorithm', 'the algorithm is not allowed')
    }
    if (header.kid !== undefined && (typeof header.kid !== 'string' || header.kid.length > 256)) {
      throw new TokenRefused('header', 'kid is not a short string')
    }
  }

  /**
   * If a fresh key set may help, the token is tried once more with it. That includes invalid signatures: if keys have no `kid`, that
   * is how a missing key shows.
   */
  async #verifySignature(token: string): Promise<Record<string, unknown>> {
    const { keys } = this.#options
    const tried = keys.current
    let verified = await this.#tryKeys(token, tried)
    if (verified instanceof TokenRefused && (keys.current !== tried || (await keys.refresh()))) {
      verified = await this.#tryKeys(token, keys.current)
    }
    if (keys.current === undefined) throw new KeysUnavailable('no key set could be read yet')
    if (verified instanceof TokenRefused) throw verified
    const payload = parseUniqueObject(UTF8.decode(verified))
    if (payload === undefined) throw new TokenRefused('form', 'the payload is not a JSON object with unique members')
    return payload
  }

  /** The payload, or why no key of this set verifies the token. Throws if no other set could help. */
  async #tryKeys(token: string, set: KeySet | undefined): Promise<Uint8Array | TokenRefused> {
    if (set === undefined) return noKey()
    const options = { algorithms: this.#algorithms }
    try {
      return (await compactVerify(token, set, options)).payload
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) return noKey()
      if (error instanceof errors.JWSSignatureVerificationFailed) {
        return new TokenRefused('signature', 'the signature is invalid', { cause: error })
      }
      if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw refusalOf(error)
      let tried = 0
      for await (const key of error) {
        if (tried++ === MAX_ALIKE) break
        const payload = await compactVerify(token, key, options).then(
          result => result.payload,
          () => undefined,
        )
        if (payload !== undefined) return payload
      }
      return new TokenRefused('signature', 'no matching key verifies the signature')
    }
  }
}

const noKey = () => new TokenRefused('key', 'no key of the set matches the token')

function refusalOf(error: unknown): TokenRefused {
  if (error instanceof errors.JOSEAlgNotAllowed || error instanceof errors.JOSENotSupported) {
    return new TokenRefused('algorithm', 'the algorithm does not match the key', { cause: error })
  }
  if (error instanceof errors.JWSInvalid) return new TokenRefused('form', 'not a valid JWS', { cause: error })
  return new TokenRefused('key', 'the key cannot be used', { cause: error })
}

/** Only the canonical encoding: no padding, no stray bits, no characters outside of the alphabet. */
function isCanonicalBase64Url(part: string): boolean {
  return part.length > 0 && Buffer.from(part, 'base64url').toString('base64url') === part
}
