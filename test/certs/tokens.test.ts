import { createLocalJWKSet, jwtVerify } from 'jose'
import { describe, expect, test } from 'vitest'
import {
  createAuthority,
  createClientCertificate,
  createKeys,
  createToken,
  inspectToken,
  TOKEN_ALGORITHMS,
} from '../../certs/index.ts'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'

describe('keys', () => {
  test.each(TOKEN_ALGORITHMS)('%s: the public set verifies what the private key signs', async alg => {
    const { privateJwk, jwks } = await createKeys({ alg })
    const { token } = await createToken({ key: privateJwk, runtime: 'demo' })
    const { payload, protectedHeader } = await jwtVerify(token, createLocalJWKSet(jwks), { audience: 'sallyport' })
    expect(payload.sub).toBe('demo')
    expect(protectedHeader).toEqual({ alg, typ: 'JWT', kid: jwks.keys[0]!.kid })
  })

  test('the public set has no private part and says what the key is for', async () => {
    const { privateJwk, jwks } = await createKeys()
    expect(Object.keys(jwks.keys[0]!).sort()).toEqual(['alg', 'crv', 'kid', 'kty', 'use', 'x'])
    expect(privateJwk).toMatchObject({ ...jwks.keys[0], d: expect.any(String) })
  })

  test('an unlisted algorithm is refused', async () => {
    await expect(createKeys({ alg: 'HS256' as 'EdDSA' })).rejects.toThrow('is not one of EdDSA, ES256, RS256, PS256')
  })
})

describe('tokens', () => {
  const now = Date.UTC(2026, 10, 21)

  test('hosts are claimed as a list, and only those that a server accepts', async () => {
    const { privateJwk } = await createKeys()
    const create = (hosts: string[]) => createToken({ key: privateJwk, runtime: 'demo', hosts })
    const { token } = await create(['hooks.customer.example'])
    expect(inspectToken(token).claims.sallyport_hosts).toEqual(['hooks.customer.example'])
    await expect(create(['*.customer.example'])).rejects.toThrow(
      '"*.customer.example" is not a host name in lower case',
    )
    await expect(create(Array.from({ length: 33 }, (_, i) => `h${i}.example`))).rejects.toThrow('at most 32 hosts')
  })

  test('claims: runtime, audience, issuer, id, times', async () => {
    const { privateJwk } = await createKeys()
    const { token, expiresAt } = await createToken({
      key: privateJwk,
      runtime: 'demo',
      ttl: '90s',
      audience: 'edge',
      issuer: 'https://issuer.example',
      id: 'one',
      now,
    })
    expect(expiresAt).toBe(now + 90_000)
    expect(inspectToken(token, now).claims).toEqual({
      sub: 'demo',
      aud: 'edge',
      iss: 'https://issuer.example',
      jti: 'one',
      iat: now / 1000,
      exp: now / 1000 + 90,
    })
  })

  test.each([
    ['90s', 90],
    ['30m', 1800],
    ['1h', 3600],
    ['90d', 7_776_000],
  ])('ttl %s', async (ttl, seconds) => {
    const { privateJwk } = await createKeys()
    const { expiresAt } = await createToken({ key: privateJwk, runtime: 'demo', ttl, now })
    expect(expiresAt).toBe(now + seconds * 1000)
  })

  test.each(['', '1', 'h', '-1h', '1.5h', '1w', '0s', '1h30m', '36501d', Number.NaN])(
    'ttl %j is refused',
    async ttl => {
      const { privateJwk } = await createKeys()
      await expect(createToken({ key: privateJwk, runtime: 'demo', ttl })).rejects.toThrow(TypeError)
    },
  )

  test('each token has its own id', async () => {
    const { privateJwk } = await createKeys()
    const ids = await Promise.all([1, 2].map(() => createToken({ key: privateJwk, runtime: 'demo' })))
    expect(new Set(ids.map(({ token }) => inspectToken(token).claims.jti)).size).toBe(2)
  })

  test('bound to a certificate (RFC 8705)', async () => {
    const { privateJwk } = await createKeys()
    const authority = await createAuthority()
    const { certificate } = await createClientCertificate(authority, { runtime: 'demo' })
    const { token } = await createToken({ key: privateJwk, runtime: 'demo', certificate })
    expect(inspectToken(token).claims.cnf).toEqual({ 'x5t#S256': expect.stringMatching(/^[\w-]{43}$/) })
  })

  test('a public key signs nothing, and the message reveals nothing of it', async () => {
    const { jwks } = await createKeys()
    await expect(createToken({ key: jwks.keys[0]!, runtime: 'demo' })).rejects.toThrow('the key has no private part')
  })

  test.each([1e300, -1e300, 'soon', null])('inspect shows times that a Date can hold: %s', time => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const { expiresAt, issuedAt } = inspectToken(`${part({ alg: 'EdDSA' })}.${part({ exp: time, iat: time })}.`)
    for (const ms of [expiresAt, issuedAt]) if (ms !== undefined) expect(new Date(ms).toISOString()).toMatch(/Z$/)
    expect(expiresAt === undefined).toBe(typeof time !== 'number')
  })

  test.each(DEFAULT_ALGORITHMS)('inspect finds nothing wrong with %s, which a server accepts', alg => {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const claims = { sub: 'demo', aud: 'sallyport', exp: now / 1000 + 60 }
    expect(inspectToken(`${part({ alg })}.${part(claims)}.`, now).problems).toEqual([])
  })

  test('inspect reports what a server would refuse', async () => {
    const { privateJwk } = await createKeys()
    const { token } = await createToken({ key: privateJwk, runtime: 'demo', ttl: '1s', now })
    expect(inspectToken(token, now + 2000).problems).toEqual(['it has expired'])
    expect(() => inspectToken('not a token')).toThrow('this is not a JWT')
  })
})
