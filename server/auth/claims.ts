/** Checks the claims of a token. Pure functions of the decoded payload and the time. */
import { isNetwork } from '../../protocol/base/address.ts'
import { MAX_DATE_S } from '../../protocol/base/durations.ts'
import { isRecord } from '../../protocol/base/is-record.ts'
import { HOSTS_CLAIM, isBelow, isHostName, isRuntimeName, MAX_CLAIMED_HOSTS } from '../../protocol/base/names.ts'
import { TokenRefused } from './refusal.ts'

/** The identity of a client, according to its token. */
export interface Identity {
  /** The one runtime that this client may serve: a DNS label. */
  readonly runtime: string
  readonly subject: string | undefined
  readonly issuer: string | undefined
  readonly tokenId: string | undefined
  /** Seconds since 1970. Not later than when the token was verified: rules for tokens issued until now must cover it. */
  readonly issuedAt: number | undefined
  readonly expiresAt: number
  /** SHA-256 thumbprint of the client certificate that the token is bound to (RFC 8705 section 3.1), base64url. */
  readonly certificateThumbprint: string | undefined
  /** Addresses that may call the runtime, according to the token's issuer. Overrides what the client announces. */
  readonly allowCallers: readonly string[] | undefined
  /** Hosts of the runtime's own, such as `hooks.customer.com`. */
  readonly hosts: readonly string[]
}

/** Most seconds by which clocks may differ (`auth.clockToleranceS`). */
export const MAX_TOLERANCE_S = 60

export interface ClaimRules {
  readonly issuer: string | undefined
  readonly audience: string
  readonly runtimeClaim: string
  /** Tolerated clock difference, at most 60. */
  readonly clockToleranceS: number
  /** Names that no runtime may claim, including all names under them: the domains, and the control endpoint's name. */
  readonly reserved: readonly string[]
}

const MAX_ALLOWED_CALLERS = 128
const ALLOW_CALLERS_CLAIM = 'sallyport_allow_callers'

/** Checks all claims that matter and returns the identity. Throws {@link TokenRefused}, which names the failed check. */
export function readClaims(payload: Record<string, unknown>, rules: ClaimRules, nowMs: number): Identity {
  const expiresAt = checkValidity(payload, rules, nowMs)
  const issuedAt = numberClaim(payload, 'iat')
  return {
    runtime: runtimeOf(payload, rules.runtimeClaim),
    subject: textClaim(payload, 'sub'),
    issuer: textClaim(payload, 'iss'),
    tokenId: textClaim(payload, 'jti'),
    issuedAt: issuedAt && Math.min(issuedAt, nowMs / 1000),
    expiresAt,
    certificateThumbprint: thumbprintOf(payload.cnf),
    allowCallers: callersOf(payload[ALLOW_CALLERS_CLAIM]),
    hosts: hostsOf(payload[HOSTS_CLAIM], rules.reserved),
  }
}

/** Checks that a token is valid now, and meant for us. Returns when it expires, in seconds since 1970. */
export function checkValidity(
  payload: Record<string, unknown>,
  { issuer, audience, clockToleranceS }: Pick<ClaimRules, 'issuer' | 'audience' | 'clockToleranceS'>,
  nowMs: number,
): number {
  const nowS = nowMs / 1000
  const exp = numberClaim(payload, 'exp')
  if (exp === undefined) throw new TokenRefused('exp', 'the token has no exp')
  const expiresAt = Math.min(exp, MAX_DATE_S)
  // Written so that a time that is no number refuses.
  if (!(nowS < expiresAt + clockToleranceS)) throw new TokenRefused('expired', 'the token has expired')
  const notBefore = numberClaim(payload, 'nbf')
  if (notBefore !== undefined && !(nowS >= notBefore - clockToleranceS)) {
    throw new TokenRefused('nbf', 'the token is not valid yet')
  }
  numberClaim(payload, 'iat')
  if (issuer !== undefined && textClaim(payload, 'iss') !== issuer) throw new TokenRefused('iss', 'another issuer')
  checkAudience(payload.aud, audience)
  return expiresAt
}

function checkAudience(audience: unknown, expected: string): void {
  const list = Array.isArray(audience) ? audience : [audience]
  if (list.length > 16 || !list.every(one => typeof one === 'string')) throw new TokenRefused('aud', 'aud is malformed')
  if (!list.includes(expected)) throw new TokenRefused('aud', 'another audience')
}

function runtimeOf(payload: Record<string, unknown>, claim: string): string {
  const runtime = Object.hasOwn(payload, claim) ? payload[claim] : undefined
  if (typeof runtime !== 'string' || !isRuntimeName(runtime)) {
    throw new TokenRefused('runtime', `the claim ${claim} is not one DNS label`)
  }
  return runtime
}

/** `cnf` may only contain what we can check. Ignoring another kind of binding would defeat it. */
function thumbprintOf(confirmation: unknown): string | undefined {
  if (confirmation === undefined) return undefined
  const thumbprint = isRecord(confirmation) ? confirmation['x5t#S256'] : undefined
  if (typeof thumbprint !== 'string' || thumbprint.length !== 43) {
    throw new TokenRefused('cnf', 'cnf is not a certificate thumbprint (x5t#S256)')
  }
  return thumbprint
}

function callersOf(callers: unknown): readonly string[] | undefined {
  if (callers === undefined) return undefined
  const isList = Array.isArray(callers) && callers.length <= MAX_ALLOWED_CALLERS
  if (!isList || !callers.every(isNetwork)) {
    throw new TokenRefused(
      'callers',
      `${ALLOW_CALLERS_CLAIM} is not a list of at most ${MAX_ALLOWED_CALLERS} addresses and networks`,
    )
  }
  return callers
}

/** One host that cannot be claimed makes the whole token invalid, since its issuer must have been mistaken. */
function hostsOf(hosts: unknown, reserved: readonly string[]): readonly string[] {
  if (hosts === undefined) return []
  const isList = Array.isArray(hosts) && hosts.length <= MAX_CLAIMED_HOSTS
  if (!isList || !hosts.every(one => typeof one === 'string' && isHostName(one))) {
    throw new TokenRefused('hosts', `${HOSTS_CLAIM} is not a list of at most ${MAX_CLAIMED_HOSTS} host names`)
  }
  for (const host of hosts as string[]) {
    const name = reserved.find(one => isBelow(host, one))
    if (name !== undefined) throw new TokenRefused('hosts', `${HOSTS_CLAIM} names ${host}, which is ours (${name})`)
  }
  return [...new Set(hosts as string[])]
}

function numberClaim(payload: Record<string, unknown>, name: string): number | undefined {
  const value = Object.hasOwn(payload, name) ? payload[name] : undefined
  if (value === undefined) return undefined
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0) {
    throw new TokenRefused('form', `${name} is not a number of seconds`)
  }
  return value
}

function textClaim(payload: Record<string, unknown>, name: string): string | undefined {
  const value = Object.hasOwn(payload, name) ? payload[name] : undefined
  if (value === undefined) return undefined
  if (typeof value !== 'string' || value.length > 256) throw new TokenRefused('form', `${name} is not a short string`)
  return value
}
