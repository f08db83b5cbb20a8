import { generateKeyPairSync, sign } from 'node:crypto'
import { readOwnClaims } from '../../../client/claims.ts'
import { DEFAULT_ALGORITHMS } from '../../../protocol/base/token-algorithms.ts'
import type { Identity } from '../../../server/auth/claims.ts'
import { givenKeys } from '../../../server/auth/key-source.ts'
import { TokenRefused } from '../../../server/auth/refusal.ts'
import { TokenVerifier } from '../../../server/auth/verifier.ts'
import { holds } from '../holds.ts'
import { mutate } from '../mutate.ts'
import type { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const NOW_MS = 1_700_000_000_000
const { publicKey, privateKey } = generateKeyPairSync('ed25519')
const verifier = new TokenVerifier({
  keys: await givenKeys({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'EdDSA', use: 'sig' }] }),
  algorithms: DEFAULT_ALGORITHMS,
  issuer: undefined,
  audience: 'sallyport',
  runtimeClaim: 'sub',
  clockToleranceS: 30,
  reserved: [],
  now: () => NOW_MS,
})

const VALUES = [
  '0',
  '1',
  '-1',
  '1e99',
  'null',
  'true',
  '""',
  '"demo"',
  '"Demo"',
  '"a.b"',
  '[]',
  '{}',
  '["sallyport"]',
  '"sallyport"',
  '"\\u0000"',
  '1700000100',
]
const NAMES = [
  'sub',
  'aud',
  'exp',
  'nbf',
  'iat',
  'jti',
  'cnf',
  'iss',
  'sallyport_allow_callers',
  '__proto__',
  'alg',
  'kid',
  'crit',
  'b64',
  'jwk',
]

function anyObject(random: Random, base: readonly string[]): string {
  const members = [...base]
  for (let left = random.int(3); left > 0; left--) {
    const member = `"${random.pick(NAMES)}":${random.pick(VALUES)}`
    if (random.oneIn(2)) members.push(member)
    else members[random.int(members.length + 1)] = member
  }
  return `{${members.join(',')}}`
}

/** Header, line end, payload. They are signed when they are executed, because each run has new keys. */
export const token: FuzzTarget = {
  name: 'token',

  generate(random) {
    const header = anyObject(random, random.oneIn(3) ? ['"alg":"EdDSA"', '"kid":"k"'] : ['"alg":"EdDSA"'])
    const payload = anyObject(random, ['"sub":"demo"', '"aud":"sallyport"', '"exp":1700000100'])
    const text = Buffer.from(`${header}\n${payload}`)
    return random.oneIn(2) ? text : mutate(text, random, ['"', ':', ',', '{', '\\u', ...NAMES])
  },

  async execute(input) {
    const end = input.indexOf('\n')
    const parts = [input.subarray(0, Math.max(0, end)), input.subarray(end + 1)]
    const signed = parts.map(part => part.toString('base64url')).join('.')
    const made = `${signed}.${sign(null, Buffer.from(signed), privateKey).toString('base64url')}`
    readOwnClaims(made)
    readOwnClaims(input.toString('latin1'))
    let identity: Identity
    try {
      identity = await verifier.verify(made)
    } catch (error) {
      holds(error instanceof TokenRefused, `refused in order: ${error instanceof Error ? error.stack : error}`)
      return
    }
    holds(/^[a-z0-9-]{1,63}$/.test(identity.runtime), 'one DNS label')
    holds(Number.isFinite(identity.expiresAt) && identity.expiresAt * 1000 > NOW_MS - 30_000, 'an end, not over yet')
    const payload = JSON.parse(parts[1]!.toString('utf8')) as Record<string, unknown>
    holds(payload.sub === identity.runtime && [payload.aud].flat().includes('sallyport'), 'what the payload says')
    holds(readOwnClaims(made)?.sub === identity.runtime, 'the client reads the same')
  },
}
