/** Why a token is refused that a stranger made. */
import { generateKeyPairSync, sign } from 'node:crypto'
import { expect, test } from 'vitest'
import { givenKeys } from '../../../server/auth/key-source.ts'
import { TokenRefused } from '../../../server/auth/refusal.ts'
import { TokenVerifier } from '../../../server/auth/verifier.ts'

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')

const KEY = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' })

const verifierFor = async (key: object) =>
  new TokenVerifier({
    issuer: 'https://issuer.example',
    audience: 'sallyport',
    runtimeClaim: 'sub',
    clockToleranceS: 0,
    reserved: [],
    algorithms: ['ES256'],
    keys: await givenKeys({ keys: [key] }),
    now: () => 0,
  } as unknown as ConstructorParameters<typeof TokenVerifier>[0])

test('J4 a payload with a BOM is refused, although its issuer has signed it', async () => {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const verifier = await verifierFor(publicKey.export({ format: 'jwk' }))
  const claims = { iss: 'https://issuer.example', aud: 'sallyport', sub: 'demo', exp: 60 }
  const message = 'the payload is not a JSON object with unique members'
  for (const [bom, refusal] of [
    ['', undefined],
    ['\ufeff', { check: 'form', message }],
  ] as const) {
    const payload = Buffer.from(bom + JSON.stringify(claims)).toString('base64url')
    const text = `${part({ alg: 'ES256' })}.${payload}`
    const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' })
    const verified = verifier.verify(`${text}.${signature.toString('base64url')}`)
    if (refusal === undefined) expect(await verified).toMatchObject({ runtime: 'demo' })
    else await expect(verified).rejects.toMatchObject(refusal)
  }
})

const form = (header: object) => `${part(header)}.${part({})}.${Buffer.alloc(64).toString('base64url')}`

test.each([
  ['J4 nothing', '', 'form', 'not a compact JWS'],
  ['J4 two parts', 'a.b', 'form', 'not a compact JWS'],
  ['J4 a part with padding', 'a.b.c=', 'form', 'not a compact JWS'],
  ['J4 a header that is a list', form([]), 'form', 'the header is not a JSON object with unique members'],
  ['J4 crit', form({ alg: 'ES256', crit: [] }), 'header', 'the header has crit, b64, enc or zip'],
  ['J4 b64', form({ alg: 'ES256', b64: false }), 'header', 'the header has crit, b64, enc or zip'],
  ['J1 no algorithm', form({}), 'algorithm', 'the algorithm is not allowed'],
  ['J1 none', form({ alg: 'none' }), 'algorithm', 'the algorithm is not allowed'],
  ['J1 HS256', form({ alg: 'HS256' }), 'algorithm', 'the algorithm is not allowed'],
  ['J1 another one', form({ alg: 'ES384' }), 'algorithm', 'the algorithm is not allowed'],
  ['J4 a kid that is no text', form({ alg: 'ES256', kid: 7 }), 'header', 'kid is not a short string'],
  ['J7 over 8 KiB', 'a'.repeat(8193), 'length', 'the token is over 8 KiB'],
])('%s is refused before any key is looked up', async (_what, token, check, message) => {
  const error: unknown = await (await verifierFor(KEY)).verify(token).catch(refused => refused)
  expect(error).toBeInstanceOf(TokenRefused)
  expect(error).toMatchObject({ check, message })
})
