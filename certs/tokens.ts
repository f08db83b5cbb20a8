import { createHash, randomUUID, X509Certificate } from 'node:crypto'
import { decodeJwt, decodeProtectedHeader, importJWK, type JWK, type JWTPayload, SignJWT } from 'jose'
import { MAX_DATE_S } from '../protocol/base/durations.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { HOSTS_CLAIM, isHostName, MAX_CLAIMED_HOSTS } from '../protocol/base/names.ts'
import { DEFAULT_ALGORITHMS } from '../protocol/base/token-algorithms.ts'
import { parseDurationMs } from './duration.ts'
import { TOKEN_ALGORITHMS } from './keys.ts'
import { checkRuntimeName } from './names.ts'
import { checkTime } from './x509.ts'

const MAX_TTL_MS = 36_500 * 86_400_000

/** The claims of a token, and the key that signs it. */
export interface TokenOptions {
  /** `privateJwk` of `createKeys`, or any private JWK with `alg`. */
  key: JWK
  /** The runtime that the token names (claim `sub`). */
  runtime: string
  /** Lifetime, such as `90s`, `30m`, `1h`, `90d`, or milliseconds. Default `1h`. */
  ttl?: string | number
  /** Default `sallyport`. */
  audience?: string
  /** Claim `iss`. Default none. */
  issuer?: string
  /** Claim `jti`. Default: a random UUID. */
  id?: string
  /** PEM of the client certificate that the token is bound to (`cnf`, RFC 8705). */
  certificate?: string
  /** Hosts of the runtime's own, such as `hooks.customer.com` (claim `sallyport_hosts`). At most 32. Default none. */
  hosts?: readonly string[]
  /** Default: the system's clock. */
  now?: number
}

const MEMBERS: Members<TokenOptions> = {
  key: 'object',
  runtime: 'string',
  ttl: 'any',
  audience: 'string',
  issuer: 'string',
  id: 'string',
  certificate: 'string',
  hosts: 'strings',
  now: 'number',
}

/** A signed token, and when it expires. */
export interface CreatedToken {
  readonly token: string
  /** In ms since 1970. */
  readonly expiresAt: number
}

/**
 * Signs a token for one runtime.
 *
 * @example
 * ```ts
 * import { createKeys, createToken } from 'sallyport/certs'
 *
 * const { privateJwk } = await createKeys()
 * const { token } = await createToken({ key: privateJwk, runtime: 'demo', ttl: '30m' })
 * ```
 */
export async function createToken(options: TokenOptions): Promise<CreatedToken> {
  checkMembers('', options, MEMBERS)
  const { key, audience = 'sallyport', issuer, id = randomUUID(), certificate, now = Date.now() } = options
  const runtime = checkRuntimeName(options.runtime)
  const ttlMs = typeof options.ttl === 'number' ? options.ttl : parseDurationMs(options.ttl ?? '1h')
  if (!(ttlMs >= 1000)) throw new TypeError('a token must be valid for at least one second')
  if (ttlMs > MAX_TTL_MS) throw new TypeError('a token can be valid for at most 36500d')
  const alg = checkSigningKey(key)
  const issuedAt = Math.floor(checkTime(now) / 1000)
  const expiresAt = issuedAt + Math.floor(ttlMs / 1000)
  const claims: JWTPayload = { sub: runtime, aud: audience, iat: issuedAt, exp: expiresAt, jti: id }
  if (issuer !== undefined) claims.iss = issuer
  if (options.hosts !== undefined) claims[HOSTS_CLAIM] = checkHosts(options.hosts)
  if (certificate !== undefined) claims.cnf = { 'x5t#S256': certificateThumbprint(certificate) }
  const header = { alg, typ: 'JWT', ...(key.kid === undefined ? {} : { kid: key.kid }) }
  const token = await new SignJWT(claims).setProtectedHeader(header).sign(await importJWK(key, alg))
  return { token, expiresAt: expiresAt * 1000 }
}

function checkHosts(hosts: readonly string[]): readonly string[] {
  if (hosts.length > MAX_CLAIMED_HOSTS) throw new TypeError(`a token can claim at most ${MAX_CLAIMED_HOSTS} hosts`)
  for (const host of hosts) {
    if (!isHostName(host)) throw new TypeError(`${JSON.stringify(host)} is not a host name in lower case with a dot`)
  }
  return hosts
}

function checkSigningKey(key: JWK): string {
  if (typeof key.d !== 'string') throw new TypeError('the key has no private part; give private.jwk, not jwks.json')
  const alg = key.alg ?? ''
  if (!(TOKEN_ALGORITHMS as readonly string[]).includes(alg)) {
    throw new TypeError(
      `the key's "alg" is ${JSON.stringify(key.alg)}, which is not one of ${TOKEN_ALGORITHMS.join(', ')}`,
    )
  }
  return alg
}

function certificateThumbprint(pem: string): string {
  return createHash('sha256').update(new X509Certificate(pem).raw).digest('base64url')
}

/** A human-readable description of a token. */
export interface TokenReport {
  readonly header: Record<string, unknown>
  readonly claims: JWTPayload
  readonly issuedAt: number | undefined
  readonly expiresAt: number | undefined
  /** What a server would refuse, or an operator should know. The signature is not checked. */
  readonly problems: readonly string[]
}

/**
 * Decodes a token without checking its signature. Throws a `TypeError` if it is not a JWT.
 *
 * @example
 * ```ts
 * import { readFile } from 'node:fs/promises'
 * import { inspectToken } from 'sallyport/certs'
 *
 * const { claims, problems } = inspectToken(await readFile('token', 'utf8'))
 * ```
 */
export function inspectToken(token: string, now: number = Date.now()): TokenReport {
  const { header, claims } = decodeToken(token)
  const expiresAt = msOf(claims.exp)
  const problems: string[] = []
  if (token.length > 8192) problems.push('it is longer than 8 KiB')
  if (!claims.sub) problems.push('it has no "sub" claim, which names the runtime')
  if (!claims.aud) problems.push('it has no "aud" claim')
  if (expiresAt === undefined) problems.push('it has no "exp" claim')
  else if (expiresAt <= now) problems.push('it has expired')
  if (typeof claims.nbf === 'number' && claims.nbf * 1000 > now) problems.push('it is not valid yet ("nbf")')
  if (!DEFAULT_ALGORITHMS.includes(String(header.alg))) problems.push('its algorithm is not accepted')
  return { header, claims, issuedAt: msOf(claims.iat), expiresAt, problems }
}

/** Clamps to what a Date can hold, whatever the token says. */
function msOf(seconds: unknown): number | undefined {
  if (typeof seconds !== 'number') return undefined
  return Math.min(Math.max(seconds, -MAX_DATE_S), MAX_DATE_S) * 1000
}

function decodeToken(token: string): { header: Record<string, unknown>; claims: JWTPayload } {
  try {
    return { header: { ...decodeProtectedHeader(token) }, claims: decodeJwt(token) }
  } catch (cause) {
    throw new TypeError('this is not a JWT', { cause })
  }
}
