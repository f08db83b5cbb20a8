import { expect, test } from 'vitest'
import { type Logger, noLogger } from '../../../protocol/base/log.ts'
import { Authenticator } from '../../../server/auth/authenticator.ts'
import type { Identity } from '../../../server/auth/claims.ts'
import { givenKeys } from '../../../server/auth/key-source.ts'
import { RevocationStore, type SharedRevocations } from '../../../server/auth/revocation-store.ts'
import { resolveOptions } from '../../../server/options.ts'
import { makeWorld, token } from '../fixture.ts'

test('a revocation hook that fails for every session is reported once in a while', async () => {
  const { keys } = await makeWorld()
  const lines: string[] = []
  const note = (_fields: object, text: string) => void lines.push(text)
  const logger: Logger = { debug: note, info: note, warn: note, error: note }
  const isRevoked = () => Promise.reject(new Error('away'))
  const auth = { jwks: keys.jwks, isRevoked }
  const settings = resolveOptions({ control: 'off', domains: ['example.com'], auth, logger })
  const revocations = new RevocationStore({}, undefined, logger, Date.now)
  const authenticator = new Authenticator(settings, await givenKeys(keys.jwks), revocations)
  const identity = { runtime: 'demo', tokenId: 'a' } as Identity
  for (let session = 0; session < 100; session++) expect(await authenticator.isRevokedNow(identity)).toBe(false)
  expect(lines).toEqual(['the revocation hook failed; live sessions stay'])
})

test.each([undefined, null, 0])('a revocation hook that answers %s lets no new client in', async answer => {
  const { keys } = await makeWorld()
  const auth = { jwks: keys.jwks, isRevoked: () => answer as never }
  const settings = resolveOptions({ control: 'off', domains: ['example.com'], auth })
  const revocations = new RevocationStore({}, undefined, noLogger, Date.now)
  const authenticator = new Authenticator(settings, await givenKeys(keys.jwks), revocations)
  const refusal = new TypeError(`auth.isRevoked must answer true or false, not ${answer}`)
  await expect(authenticator.authenticate(await token('demo'), undefined)).rejects.toEqual(refusal)
})

test('a revocation hook is asked about live sessions even while the shared list cannot be read', async () => {
  const { keys } = await makeWorld()
  const settings = resolveOptions({
    control: 'off',
    domains: ['example.com'],
    auth: { jwks: keys.jwks, isRevoked: async () => true },
  })
  const nothing = async () => {}
  const unreadable: SharedRevocations = {
    ...{ onList: () => {}, readable: false, odd: ['?'] },
    ...{ open: nothing, reread: nothing, add: nothing, remove: nothing, close: () => {} },
  }
  const revocations = new RevocationStore({}, unreadable, noLogger, Date.now)
  const authenticator = new Authenticator(settings, await givenKeys(keys.jwks), revocations)
  expect(await authenticator.isRevokedNow({ runtime: 'demo' } as Identity)).toBe(true)
})
