/** Asymmetric signature algorithms of tokens. A server accepts them all unless its configuration names fewer. */
export const DEFAULT_ALGORITHMS = [
  'EdDSA',
  'ES256',
  'ES384',
  'ES512',
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
]
