/** The claims that a client reads from its own token. Nothing is verified here; that is up to the server. */

import { MAX_DATE_S } from '../protocol/base/durations.ts'
import { isRecord } from '../protocol/base/is-record.ts'

interface Claims {
  readonly sub: string | undefined
  readonly aud: readonly string[]
  /** Seconds since 1970, as in the token. */
  readonly exp: number | undefined
  readonly nbf: number | undefined
  readonly iat: number | undefined
  /** Values of all claims that may name the runtime. Which claim does is up to the server. */
  readonly names: ReadonlySet<string>
  /** SHA-256 of the certificate that the token is bound to, base64url (`cnf`, RFC 8705 section 3.1). */
  readonly certificate: string | undefined
}

/** The claims of a JWT in compact form (RFC 7519), or `undefined` if it is not a JWT. */
export function readOwnClaims(token: string): Claims | undefined {
  const parts = token.split('.')
  if (parts.length !== 3) return undefined
  try {
    const claims: unknown = JSON.parse(Buffer.from(parts[1]!, 'base64url').toString('utf8'))
    if (!isRecord(claims)) return undefined
    return {
      sub: typeof claims.sub === 'string' ? claims.sub : undefined,
      aud: audience(claims.aud),
      exp: seconds(claims.exp),
      nbf: seconds(claims.nbf),
      iat: seconds(claims.iat),
      names: new Set(Object.values(claims).filter(value => typeof value === 'string')),
      certificate: thumbprint(claims.cnf),
    }
  } catch {
    return undefined
  }
}

function audience(aud: unknown): string[] {
  if (typeof aud === 'string') return [aud]
  return Array.isArray(aud) ? aud.filter(entry => typeof entry === 'string') : []
}

function thumbprint(cnf: unknown): string | undefined {
  const value = isRecord(cnf) ? cnf['x5t#S256'] : undefined
  return typeof value === 'string' ? value : undefined
}

function seconds(value: unknown): number | undefined {
  if (typeof value !== 'number' || !Number.isFinite(value)) return undefined
  return Math.max(-MAX_DATE_S, Math.min(MAX_DATE_S, value))
}
