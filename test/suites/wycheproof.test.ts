/**
 * Wycheproof's JOSE vectors at our verification: the key set is the vector's, the policy is ours. A vector's payload is
 * not a claims set, so whatever gets past the signature is refused for its form or its claims.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { JWK } from 'jose'
import { describe, expect, test } from 'vitest'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'
import { givenKeys, type KeySource } from '../../server/auth/key-source.ts'
import { TokenRefused } from '../../server/auth/refusal.ts'
import { TokenVerifier } from '../../server/auth/verifier.ts'
import { needs, vectors } from '../support/needs.ts'
import { score } from './program.ts'

interface Vector {
  readonly tcId: number
  readonly comment: string
  readonly jws?: unknown
  readonly jwe?: unknown
  readonly result: 'valid' | 'invalid' | 'acceptable'
}

interface Group {
  readonly public?: JWK & { keys?: JWK[] }
  readonly private?: JWK & { keys?: JWK[] }
  readonly tests: readonly Vector[]
}

function groupsOf(file: string): Group[] {
  return JSON.parse(readFileSync(join(vectors!, 'wycheproof', file), 'utf8')).testGroups
}

function verifier(keys: KeySource): TokenVerifier {
  const rules = {
    issuer: undefined,
    audience: 'sallyport',
    runtimeClaim: 'sub',
    clockToleranceS: 30,
    reserved: [],
    now: Date.now,
  }
  return new TokenVerifier({ keys, algorithms: DEFAULT_ALGORITHMS, ...rules })
}

const PAST = 'past the signature'

/** How far a vector gets: the name of the check that refuses it. */
async function outcome(group: Group, token: unknown): Promise<string> {
  const set = group.public ?? group.private ?? {}
  let source: KeySource
  try {
    source = await givenKeys({ keys: (set.keys ?? [set]) as JWK[] })
  } catch {
    return 'key set'
  }
  // Other serialisations are objects.
  if (typeof token !== 'string') return 'form'
  try {
    await verifier(source).verify(token)
    return PAST
  } catch (error) {
    if (!(error instanceof TokenRefused)) throw error
    const isPast = error.check === 'exp' || (error.check === 'form' && error.message.includes('payload'))
    return isPast ? PAST : error.check
  }
}

/** Why policy refuses what is valid. */
function policy(group: Group, vector: Vector): string | undefined {
  const header = headerOf(vector.jws)
  const keys = group.public?.keys ?? (group.public === undefined ? [] : [group.public])
  if (group.public === undefined) return 'HMAC: a key that is secret on both sides'
  if (header === undefined) return 'another serialisation'
  if (!DEFAULT_ALGORITHMS.includes(String(header.alg))) return 'the algorithm is not on the list'
  if (!keys.some(key => key.alg === header.alg)) return 'the key is for another algorithm, or for none'
  if (String(vector.jws).split('.')[1] === '') return 'no payload'
  return undefined
}

function headerOf(token: unknown): Record<string, unknown> | undefined {
  if (typeof token !== 'string') return undefined
  return JSON.parse(Buffer.from(token.split('.')[0]!, 'base64url').toString())
}

describe.runIf(needs('vectors'))('Wycheproof', () => {
  test.each([
    ['json_web_signature_test.json', 401],
    ['json_web_key_test.json', 26],
    ['json_web_crypto_test.json', undefined],
  ])('%s: nothing invalid passes, and policy explains every valid one that does not', async (file, cases) => {
    const passed: string[] = []
    const unexplained: string[] = []
    const explained = new Map<string, number>()
    const counts = { valid: 0, invalid: 0, acceptable: 0, taken: 0 }
    for (const group of groupsOf(file)) {
      for (const vector of group.tests) {
        counts[vector.result]++
        const result = await outcome(group, vector.jws)
        if (result === PAST) counts.taken++
        if (vector.result === 'invalid' && result === PAST) passed.push(`${vector.tcId} ${vector.comment}`)
        if (vector.result !== 'valid' || result === PAST) continue
        const reason = policy(group, vector)
        if (reason === undefined) unexplained.push(`${vector.tcId} ${vector.comment}: ${result}`)
        else explained.set(reason, (explained.get(reason) ?? 0) + 1)
      }
    }
    const refused = [...explained].map(([reason, count]) => `${count} valid refused (${reason})`).join(', ')
    score(`Wycheproof ${file}`, `${JSON.stringify(counts)}; ${refused}`)
    expect(passed).toEqual([])
    expect(unexplained).toEqual([])
    if (cases !== undefined) expect(counts.valid + counts.invalid + counts.acceptable).toBe(cases)
    expect(counts.taken).toBeGreaterThan(0)
  })

  test('encrypted tokens are all refused', async () => {
    const groups = groupsOf('json_web_encryption_test.json')
    for (const group of groups) {
      for (const { jwe } of group.tests) expect(await outcome(group, jwe)).not.toBe(PAST)
    }
    score('Wycheproof json_web_encryption_test.json', `${groups.flatMap(group => group.tests).length} refused`)
  })
})
