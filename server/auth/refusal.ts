/** Why a token was refused, for our log only. On the wire, every refusal is the same 401 (J8). */
type TokenCheck =
  | 'missing'
  | 'length'
  | 'form'
  | 'header'
  | 'algorithm'
  | 'key'
  | 'signature'
  | 'exp'
  | 'expired'
  | 'nbf'
  | 'iss'
  | 'aud'
  | 'runtime'
  | 'cnf'
  | 'callers'
  | 'hosts'
  | 'revoked'
  | 'another-runtime'

export class TokenRefused extends Error {
  override readonly name = 'TokenRefused'
  readonly check: TokenCheck

  constructor(check: TokenCheck, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.check = check
  }
}

/** No token can be verified, because no keys or no revocations could be loaded yet. It is our own fault, so not a 401. */
export class KeysUnavailable extends Error {
  override readonly name = 'KeysUnavailable'
}
