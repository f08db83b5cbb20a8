import { expect, test } from 'vitest'
import { givenKeys } from '../../../server/auth/key-source.ts'
import { TokenRefused } from '../../../server/auth/refusal.ts'
import { Verifier } from '../../../server/auth/verifier.ts'

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
const zero = Buffer.alloc(32).toString('base64url')

test.each([
  ['a point that is not on its curve', { kty: 'EC', crv: 'P-256', x: zero, y: zero }],
  ['a point of the wrong length', { kty: 'EC', crv: 'P-256', x: 'AA', y: 'AA' }],
])('J1 a key of the set with %s refuses the token, and harms nobody', async (_what, key) => {
  const verifier = new Verifier({
    issuer: 'https://issuer.example',
    audience: 'sallyport',
    algorithms: ['ES256'],
    keys: givenKeys({ keys: [key] }),
    now: () => 0,
  } as unknown as ConstructorParameters<typeof Verifier>[0])
  const token = `${part({ alg: 'ES256' })}.${part({})}.${Buffer.alloc(64).toString('base64url')}`
  const error: unknown = await verifier.verify(token).catch(reason => reason)
  expect(error).toBeInstanceOf(TokenRefused)
  expect(error).toMatchObject({ message: 'the key cannot be used' })
})
