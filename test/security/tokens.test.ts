/** security.md, "Tokens" (RFC 8725): J1 to J8. */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { base64url, CompactSign, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'
import { readClaims } from '../../server/auth/claims.ts'
import { Download } from '../../server/auth/download.ts'
import { fileKeys } from '../../server/auth/key-file.ts'
import { buildKeySet, givenKeys, type KeySource, parseKeySet } from '../../server/auth/key-source.ts'
import { urlKeys } from '../../server/auth/key-url.ts'
import { KeysUnavailable, TokenRefused } from '../../server/auth/refusal.ts'
import { TokenVerifier } from '../../server/auth/verifier.ts'
import { createServer } from '../../server/index.ts'
import { dial, event, makeWorld, openWebSocket, startServer, token } from '../server/fixture.ts'
import { eventually } from '../support/until.ts'

const NOW = 1_800_000_000_000
const NOW_S = NOW / 1000
const CLAIMS = { sub: 'demo', aud: 'sallyport', exp: NOW_S + 60 }

interface Pair {
  readonly privateKey: CryptoKey
  readonly jwk: JWK
}

async function pair(alg: string, extra: object = {}): Promise<Pair> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true })
  return { privateKey, jwk: { ...(await exportJWK(publicKey)), alg, use: 'sig', kid: alg, ...extra } }
}

function verifier(keys: KeySource, options: { algorithms?: string[]; issuer?: string; clockToleranceS?: number } = {}) {
  return new TokenVerifier({
    keys,
    algorithms: options.algorithms ?? DEFAULT_ALGORITHMS,
    issuer: options.issuer,
    audience: 'sallyport',
    runtimeClaim: 'sub',
    reserved: [],
    clockToleranceS: options.clockToleranceS ?? 30,
    now: () => NOW,
  })
}

function sign(key: Pair, alg: string, claims: object = CLAIMS, header: object = {}): Promise<string> {
  return new SignJWT({ ...claims }).setProtectedHeader({ alg, kid: alg, ...header }).sign(key.privateKey)
}

/** What makes a key of ES256 one that verifies no token. */
const USELESS: readonly [string, object][] = [
  ['an unknown type', { kty: 'banana' }],
  ['no type', { kty: undefined }],
  ['another use', { use: 'enc' }],
  ['other operations', { key_ops: ['encrypt'] }],
  ['operations that are no list', { key_ops: 'verify' }],
  ['a symmetric algorithm', { alg: 'HS256' }],
  ['an algorithm of another curve', { alg: 'ES384' }],
  ['an algorithm that is not on the list', { alg: 'ES256K', crv: 'secp256k1' }],
  ['a curve without an algorithm', { alg: undefined, crv: 'secp256k1' }],
  ['a curve for encryption', { alg: undefined, kty: 'OKP', crv: 'X25519' }],
  ['no x', { x: undefined }],
  ['a point of the wrong length', { x: 'AA', y: 'AA' }],
  ['a point that is not on its curve', { x: 'A'.repeat(43), y: 'A'.repeat(43) }],
  ['a short modulus', { alg: undefined, kty: 'RSA', e: 'AQAB', n: randomBytes(128).toString('base64url') }],
  ['an even modulus', { alg: undefined, kty: 'RSA', e: 'AQAB', n: Buffer.alloc(256, 0xfe).toString('base64url') }],
  [
    'a modulus that is too long',
    { alg: undefined, kty: 'RSA', e: 'AQAB', n: Buffer.alloc(2049, 0xff).toString('base64url') },
  ],
]

function check(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'accepted',
    error => (error instanceof TokenRefused ? error.check : `${error}`),
  )
}

let ed: Pair
let keys: KeySource
beforeAll(async () => {
  ed = await pair('EdDSA')
  keys = await givenKeys({ keys: [ed.jwk] })
})

describe('J1 algorithms and keys', () => {
  test.each(['EdDSA', 'ES256', 'ES384', 'RS256', 'PS256'])('%s verifies', async alg => {
    const key = await pair(alg)
    const one = verifier(await givenKeys({ keys: [key.jwk] }))
    expect(await one.verify(await sign(key, alg))).toMatchObject({ runtime: 'demo', expiresAt: NOW_S + 60 })
  })

  test('`none` is refused', async () => {
    const unsigned = `${base64url.encode('{"alg":"none"}')}.${base64url.encode(JSON.stringify(CLAIMS))}.`
    expect(await check(verifier(keys).verify(unsigned))).toBe('form')
    expect(await check(verifier(keys).verify(`${unsigned}AAAA`))).toBe('algorithm')
  })

  test('a public key does not work as an HMAC secret', async () => {
    const rsa = await pair('RS256')
    const secret = Buffer.from(JSON.stringify(rsa.jwk))
    const forged = await new SignJWT(CLAIMS).setProtectedHeader({ alg: 'HS256', kid: 'RS256' }).sign(secret)
    expect(await check(verifier(await givenKeys({ keys: [rsa.jwk] })).verify(forged))).toBe('algorithm')
  })

  test('HS* cannot be configured', async () => {
    const { keys: made } = await makeWorld()
    const auth = { jwks: made.jwks, algorithms: ['HS256'] }
    await expect(createServer({ control: 'off', domains: ['example.com'], auth })).rejects.toThrow(TypeError)
  })

  test('an algorithm that is not on the list is refused', async () => {
    expect(await check(verifier(keys, { algorithms: ['ES256'] }).verify(await sign(ed, 'EdDSA')))).toBe('algorithm')
  })

  test.each([
    ['another use', { use: 'enc' }],
    ['another alg', { alg: 'ES384' }],
    ['other operations', { key_ops: ['encrypt'] }],
    ['another kid', { kid: 'else' }],
  ])('a key for %s does not verify', async (_name, extra) => {
    const key = await pair('ES256', extra)
    const one = verifier(await givenKeys({ keys: [key.jwk, ed.jwk] }))
    expect(await check(one.verify(await sign(key, 'ES256')))).toBe('key')
  })

  test.each([
    ['a number', 5],
    ['an object', {}],
    ['too long', 'k'.repeat(257)],
  ])('a kid that is %s is refused', async (_name, kid) => {
    expect(await check(verifier(keys).verify(await sign(ed, 'EdDSA', CLAIMS, { kid: kid as string })))).toBe('header')
  })

  test('a set of more than 64 keys is refused', async () => {
    const { jwk } = await pair('ES256')
    const set = (count: number) => ({ keys: Array.from({ length: count }, (_, i) => ({ ...jwk, kid: `${i}` })) })
    await buildKeySet(set(64))
    await expect(buildKeySet(set(65))).rejects.toThrow('the key set has over 64 keys')
  })

  describe.each([
    ['one id', 'ES256'],
    ['no id', undefined],
  ])('with several keys of %s', (_name, kid) => {
    const several = (count: number) => Promise.all(Array.from({ length: count }, () => pair('ES256', { kid })))

    test('each is tried, even beside others with their own ids', async () => {
      const all = await several(8)
      const others = await Promise.all(['a', 'b', 'c'].map(other => pair('ES256', { kid: other })))
      const one = verifier(await givenKeys({ keys: [...others, ...all].map(key => key.jwk) }))
      const by = (key: Pair) => sign(key, 'ES256', CLAIMS, { kid })
      for (const key of all) expect(await check(one.verify(await by(key)))).toBe('accepted')
      expect(await check(one.verify(await by(await pair('ES256'))))).toBe('signature')
    })

    test('more than may be tried are refused when the set is read', async () => {
      const jwks = { keys: (await several(9)).map(key => key.jwk) }
      const problem = 'the key set has over 8 keys of one kind and one kid, or none: give each its own'
      await expect(buildKeySet(jwks)).rejects.toThrow(problem)
      const other = await pair('EdDSA', { kid })
      await buildKeySet({ keys: [...jwks.keys.slice(1), other.jwk] })
    })
  })

  test('a bad key of a set matches no token, and affects no others', async () => {
    const key = await pair('ES256')
    const bad = USELESS.map(([, change]) => ({ ...key.jwk, ...change }))
    const one = verifier(await givenKeys({ keys: [...bad, ed.jwk] }))
    expect(await check(one.verify(await sign(key, 'ES256')))).toBe('key')
    expect(await check(one.verify(await sign(ed, 'EdDSA')))).toBe('accepted')
  })

  test('a key set with private or no usable keys is refused as a whole', async () => {
    const { privateKey } = await generateKeyPair('ES256', { extractable: true })
    await expect(buildKeySet({ keys: [{ kty: 'oct', k: 'AAAA' }] })).rejects.toThrow('a secret key')
    await expect(parseKeySet('{"keys":[]}')).rejects.toThrow('no public key')
    await expect(parseKeySet('[]')).rejects.toThrow('no list')
    await expect(parseKeySet('{')).rejects.toThrow('not JSON')
    const secret = await exportJWK(privateKey)
    await expect(buildKeySet({ keys: [secret] })).rejects.toThrow('a secret key')
  })
})

describe('J2 keys come from the configuration alone', () => {
  test('jku, x5u, jwk and x5c change nothing and cause no fetch', async () => {
    const evil = await pair('EdDSA')
    const header = { jku: 'https://127.0.0.1:1/', x5u: 'https://127.0.0.1:1/', jwk: evil.jwk, x5c: ['AAAA'] }
    expect(await check(verifier(keys).verify(await sign(evil, 'EdDSA', CLAIMS, header)))).toBe('signature')
    expect(await check(verifier(keys).verify(await sign(ed, 'EdDSA', CLAIMS, header)))).toBe('accepted')
  })
})

describe('J2, J3 key sets from a URL', () => {
  let host: HttpsServer
  let url: string
  let ca: string
  let requests: number
  let reply: (path: string) => { status: number; headers?: Record<string, string>; body?: string; hang?: boolean }
  let source: KeySource | undefined

  beforeAll(async () => {
    const made = await makeWorld()
    ca = made.authority.certificate
    host = createHttpsServer({ cert: made.server.certificate, key: made.server.key }, (request, response) => {
      requests++
      const { status, headers, body, hang } = reply(request.url!)
      response.writeHead(status, headers)
      if (hang) response.flushHeaders()
      else response.end(body)
    })
    await new Promise<void>(resolve => host.listen(0, '127.0.0.1', resolve))
    url = `https://127.0.0.1:${(host.address() as AddressInfo).port}/jwks`
  })
  afterAll(() => {
    host.closeAllConnections()
    host.close()
  })
  afterEach(() => {
    source?.close()
    vi.useRealTimers()
  })
  const good = () => ({ status: 200, body: JSON.stringify({ keys: [ed.jwk] }) })
  const open = async (now: () => number = () => 0) => {
    requests = 0
    source = await urlKeys({ url, ca, coolDownMs: 30_000, refreshMs: 0 }, noLogger, now)
    return source
  }

  test('are fetched', async () => {
    reply = good
    expect(await check(verifier(await open()).verify(await sign(ed, 'EdDSA')))).toBe('accepted')
    expect(requests).toBe(1)
  })

  test('only over https', async () => {
    await expect(urlKeys({ url: 'http://127.0.0.1/' }, noLogger, () => 0)).rejects.toThrow(TypeError)
  })

  test('only from a server whose certificate is trusted, whatever the environment says', async () => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    reply = good
    requests = 0
    source = await urlKeys({ url }, noLogger, () => 0)
    expect([source.current, requests]).toEqual([undefined, 0])
  })

  test.each([
    ['a redirect', () => ({ status: 302, headers: { location: '/elsewhere' } })],
    ['over 64 KiB', () => ({ status: 200, body: JSON.stringify({ keys: [ed.jwk], x: 'y'.repeat(70_000) }) })],
    ['no key set', () => ({ status: 200, body: '{}' })],
    ['an error', () => ({ status: 500 })],
    [
      'a page',
      () => ({ status: 200, headers: { 'content-type': 'text/html' }, body: '<html><body>Sign in</body></html>' }),
    ],
  ])('%s is no key set: until there is one, no token can be judged', async (_name, bad) => {
    reply = bad
    const keys = await open()
    expect(requests).toBe(1)
    await expect(verifier(keys).verify(await sign(ed, 'EdDSA'))).rejects.toThrow(KeysUnavailable)
  })

  test('an unreachable server gives no key set, and no error', async () => {
    requests = 0
    source = await urlKeys({ url: 'https://127.0.0.1:1/jwks', ca }, noLogger, () => 0)
    await expect(verifier(source).verify(await sign(ed, 'EdDSA'))).rejects.toThrow(KeysUnavailable)
  })

  test('a server that stops in the middle is abandoned after 5 s', async () => {
    reply = () => ({ status: 200, hang: true })
    await eventually(async () => {
      const startedAt = performance.now()
      const keys = await open()
      expect(performance.now() - startedAt).toBeLessThan(9000)
      expect(keys.current).toBeUndefined()
    })
  })

  test('after a failed fetch the set is fetched again without being asked', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    reply = () => ({ status: 500 })
    const keys = await open()
    expect(keys.current).toBeUndefined()
    reply = good
    vi.advanceTimersByTime(5000)
    vi.useRealTimers()
    await eventually(() => expect(keys.current).toBeDefined())
  })

  test('the same while there is a set: a key may have been removed from it', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const get = vi.spyOn(Download.prototype, 'get').mockImplementation(async () => parseKeySet(good().body))
    source = await urlKeys({ url, ca }, noLogger, () => 0)
    const first = source.current
    get.mockRejectedValueOnce(new Error('down'))
    await vi.advanceTimersByTimeAsync(600_000)
    expect(source.current).toBe(first)
    await vi.advanceTimersByTimeAsync(5000)
    expect(source.current).not.toBe(first)
  })

  test('an outage of the URL is logged once', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const answers = [false, false, true, false]
    vi.spyOn(Download.prototype, 'get').mockImplementation(async () => {
      if (answers.shift() !== true) throw new Error('down')
      return parseKeySet(good().body)
    })
    const error = vi.fn()
    source = await urlKeys({ url, ca, refreshMs: 5000 }, { ...noLogger, error }, () => 0)
    expect(error).toHaveBeenCalledTimes(1)
    await vi.advanceTimersByTimeAsync(5000)
    expect(error).toHaveBeenCalledTimes(1)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(answers).toEqual([])
    expect(error).toHaveBeenCalledTimes(2)
  })

  test('the last good set is kept', async () => {
    let now = 0
    reply = good
    const keys = await open(() => now)
    reply = () => ({ status: 500 })
    now = 31_000
    const other = await pair('ES256')
    expect(await check(verifier(keys).verify(await sign(other, 'ES256')))).toBe('key')
    expect(requests).toBe(2)
    expect(await check(verifier(keys).verify(await sign(ed, 'EdDSA')))).toBe('accepted')
  })

  test.each(USELESS)(
    'J3 nor does a set replace it whose only key has %s, and the log says so',
    async (_name, change) => {
      let now = 0
      reply = good
      requests = 0
      const error = vi.fn()
      source = await urlKeys({ url, ca, refreshMs: 0 }, { ...noLogger, error }, () => now)
      const first = source.current
      const other = await pair('ES256')
      reply = () => ({ status: 200, body: JSON.stringify({ keys: [{ ...other.jwk, ...change }] }) })
      now = 31_000
      expect(await check(verifier(source).verify(await sign(other, 'ES256')))).toBe('key')
      expect(requests).toBe(2)
      expect(source.current).toBe(first)
      const err = expect.objectContaining({
        message: expect.stringMatching(/^the key set has no public key for EdDSA, /),
      })
      expect(error.mock.calls).toEqual([[{ url, err }, 'the key set was fetched, but is bad; the last good one stays']])
      expect((await open()).current).toBeUndefined()
    },
  )

  test('a flood of unknown kids causes one fetch per cool-down', async () => {
    let now = 0
    reply = good
    const keys = await open(() => now)
    const other = await pair('ES256')
    const one = verifier(keys)
    const flood = () =>
      Promise.all(
        Array.from({ length: 100 }, async (_, i) =>
          check(one.verify(await sign(other, 'ES256', CLAIMS, { kid: `${i}` }))),
        ),
      )
    await flood()
    expect(requests).toBe(1)
    now = 31_000
    await flood()
    expect(requests).toBe(2)
  })

  test('a rotated key is found with its first token', async () => {
    let now = 0
    reply = good
    const keys = await open(() => now)
    const fresh = await pair('ES256')
    reply = () => ({ status: 200, body: JSON.stringify({ keys: [ed.jwk, fresh.jwk] }) })
    now = 31_000
    expect(await check(verifier(keys).verify(await sign(fresh, 'ES256')))).toBe('accepted')
  })

  describe('J9 keys rotate within the cool-down', () => {
    const set = (...keys: object[]) => ({ status: 200, body: JSON.stringify({ keys }) })
    const bare = ({ jwk: { kid: _, ...jwk } }: Pair) => jwk

    test.each<[string, boolean, boolean]>([
      ['neither keys nor tokens have an id', false, false],
      ['keys have an id, tokens none', true, false],
      ['the new key has the id of the old one', true, true],
    ])('%s', async (_name, keyHas, tokenHas) => {
      let now = 0
      const [old, fresh, forged] = [await pair('ES256'), await pair('ES256'), await pair('ES256')]
      const show = keyHas ? ({ jwk }: Pair) => jwk : bare
      const header = tokenHas ? {} : { kid: undefined }
      reply = () => set(show(old))
      const one = verifier(await open(() => now))
      expect(await check(one.verify(await sign(old, 'ES256', CLAIMS, header)))).toBe('accepted')
      reply = () => set(show(fresh))
      now = 30_000
      // Several at once wait for the same fetch.
      const all = await Promise.all(
        [1, 2, 3].map(async () => check(one.verify(await sign(fresh, 'ES256', CLAIMS, header)))),
      )
      expect(all).toEqual(['accepted', 'accepted', 'accepted'])
      expect(requests).toBe(2)
      // Forged ones cause one fetch per cool-down.
      const flood = () =>
        Promise.all([...Array(50)].map(async () => check(one.verify(await sign(forged, 'ES256', CLAIMS, header)))))
      expect(new Set(await flood())).toEqual(new Set(['signature']))
      expect(requests).toBe(2)
      now = 60_000
      await flood()
      expect(requests).toBe(3)
    })

    test('a second key without an id beside the first', async () => {
      let now = 0
      const [old, other, fresh] = [await pair('ES256'), await pair('ES256'), await pair('ES256')]
      reply = () => set(bare(old), bare(other))
      const one = verifier(await open(() => now))
      reply = () => set(bare(old), bare(fresh))
      now = 30_000
      expect(await check(one.verify(await sign(fresh, 'ES256', CLAIMS, { kid: undefined })))).toBe('accepted')
    })
  })

  test('a live tunnel outlives the key server, and new clients are told to try again', async () => {
    const made = await makeWorld()
    reply = () => ({ status: 200, body: JSON.stringify(made.keys.jwks) })
    const server = await startServer({ auth: { jwks: { url, ca } } })
    const client = await dial(server)
    reply = () => ({ status: 500 })
    await dial(server)
    expect(client.session.closed).toBe(false)
    await server.close({ graceMs: 0 })
    const blind = await startServer({ auth: { jwks: { url, ca } } })
    expect(blind.ready()).toBe(false)
    await expect(openWebSocket(blind, {})).rejects.toMatchObject({ status: 503 })
    await blind.close({ graceMs: 0 })
  })
})

describe('key sets from a file', () => {
  test('are read again when the file is replaced, and a bad file keeps the old set', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-'))
    const file = join(folder, 'jwks.json')
    const put = async (text: string) => {
      await writeFile(`${file}.new`, text)
      await rename(`${file}.new`, file)
    }
    await expect(fileKeys(file, noLogger, Date.now)).rejects.toThrow(/ENOENT/)
    await put(JSON.stringify({ keys: [ed.jwk] }))
    const errors: string[] = []
    const logger = { ...noLogger, error: (_fields: object, message: string) => errors.push(message) }
    const source = await fileKeys(file, logger, Date.now)
    const first = source.current
    await put('{')
    await eventually(() => expect(errors).toHaveLength(1))
    expect(source.current).toBe(first)
    const fresh = await pair('ES256')
    await put(JSON.stringify({ keys: [fresh.jwk] }))
    await eventually(() => expect(source.current).not.toBe(first))
    expect(await check(verifier(source).verify(await sign(fresh, 'ES256')))).toBe('accepted')
    source.close()
    await rm(folder, { recursive: true })
  })

  test.each([...USELESS, ['an algorithm that --auth.algorithms leaves out', {}]] as const)(
    'J3 a set whose only key has %s is bad, too',
    async (_name, change) => {
      const folder = await mkdtemp(join(tmpdir(), 'sallyport-'))
      const [file, bad] = [join(folder, 'jwks.json'), join(folder, 'bad.json')]
      await writeFile(file, JSON.stringify({ keys: [ed.jwk] }))
      await writeFile(bad, JSON.stringify({ keys: [{ ...(await pair('ES256')).jwk, ...change }] }))
      await expect(fileKeys(bad, noLogger, Date.now, ['EdDSA'])).rejects.toThrow('no public key for EdDSA')
      const error = vi.fn()
      const source = await fileKeys(file, { ...noLogger, error }, Date.now, ['EdDSA'])
      const first = source.current
      await rename(bad, file)
      await source.refresh()
      await eventually(() => expect(error).toHaveBeenCalled())
      expect(source.current).toBe(first)
      source.close()
      await rm(folder, { recursive: true })
    },
  )
})

describe('J4 other forms', () => {
  test.each([
    ['crit', { crit: ['exp'], exp: 1 }],
    ['crit of an unknown name', { crit: ['x'], x: 1 }],
    ['b64: false', { b64: false, crit: ['b64'] }],
    ['b64: true', { b64: true }],
    ['zip', { zip: 'DEF' }],
  ])('%s in the header is refused', async (_name, header) => {
    const encoded = base64url.encode(JSON.stringify({ alg: 'EdDSA', kid: 'EdDSA', ...header }))
    const [, payload, signature] = (await sign(ed, 'EdDSA')).split('.')
    expect(await check(verifier(keys).verify(`${encoded}.${payload}.${signature}`))).toBe('header')
  })

  test.each([
    ['an encrypted token', async () => 'a.b.c.d.e'],
    ['JSON serialisation', async () => '{"payload":"e30","signatures":[]}'],
    ['two parts', async () => (await sign(ed, 'EdDSA')).split('.').slice(0, 2).join('.')],
    ['padding', async () => `${await sign(ed, 'EdDSA')}==`],
    ['white space', async () => ` ${await sign(ed, 'EdDSA')}`],
    ['nothing', async () => ''],
    ['a header with two alg', async () => swapHeader(await sign(ed, 'EdDSA'), '{"alg":"none","alg":"EdDSA"}')],
    ['a header that is a list', async () => swapHeader(await sign(ed, 'EdDSA'), '[]')],
  ])('%s is refused', async (_name, make) => {
    expect(await check(verifier(keys).verify(await make()))).toBe('form')
  })

  test('stray bits at the end of a part are refused', async () => {
    const whole = await sign(ed, 'EdDSA')
    const last = whole.at(-1)!
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
    const stray = whole.slice(0, -1) + alphabet[alphabet.indexOf(last) ^ 1]
    expect(Buffer.from(stray.split('.')[2]!, 'base64url')).toEqual(Buffer.from(whole.split('.')[2]!, 'base64url'))
    expect(await check(verifier(keys).verify(stray))).toBe('form')
  })
})

function swapHeader(whole: string, header: string): string {
  const [, payload, signature] = whole.split('.')
  return `${base64url.encode(header)}.${payload}.${signature}`
}

test('J5 degenerate signatures are refused', async () => {
  const key = await pair('ES256')
  const one = verifier(await givenKeys({ keys: [key.jwk] }))
  const [header, payload] = (await sign(key, 'ES256')).split('.')
  const order = Buffer.from('ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551', 'hex')
  const zero = Buffer.alloc(32)
  const signatures = [
    Buffer.alloc(64),
    Buffer.concat([order, order]),
    Buffer.concat([zero, order]),
    Buffer.concat([order, zero]),
    Buffer.alloc(0),
    Buffer.alloc(63, 1),
    Buffer.alloc(65, 1),
    Buffer.from('3006020100020100', 'hex'),
  ]
  for (const signature of signatures) {
    const outcome = await check(one.verify(`${header}.${payload}.${signature.toString('base64url')}`))
    expect(['signature', 'form']).toContain(outcome)
  }
})

test('J6 without a time, no token is valid', () => {
  const rules = { issuer: undefined, audience: 'sallyport', runtimeClaim: 'sub', clockToleranceS: 30, reserved: [] }
  expect(() => readClaims({ ...CLAIMS, exp: 2 ** 40 }, rules, Number.NaN)).toThrow('the token has expired')
  expect(() => readClaims({ ...CLAIMS, nbf: 0 }, rules, Number.NaN)).toThrow(TokenRefused)
})

describe('J6 claims', () => {
  const rules = {
    issuer: 'https://issuer.example',
    audience: 'sallyport',
    runtimeClaim: 'sub',
    clockToleranceS: 30,
    reserved: ['t.example.com', 'control.example.com'],
  }
  const good = { ...CLAIMS, iss: 'https://issuer.example' }
  const outcome = (claims: Record<string, unknown>) => {
    try {
      readClaims(claims, rules, NOW)
      return 'accepted'
    } catch (error) {
      return (error as TokenRefused).check
    }
  }

  test.each([
    [{}, 'accepted'],
    [{ exp: undefined }, 'exp'],
    [{ exp: NOW_S - 29.9 }, 'accepted'],
    [{ exp: NOW_S - 30 }, 'expired'],
    [{ exp: `${NOW_S + 60}` }, 'form'],
    [{ exp: Number.POSITIVE_INFINITY }, 'form'],
    [{ exp: -1 }, 'form'],
    [{ exp: null }, 'form'],
    [{ nbf: NOW_S + 30 }, 'accepted'],
    [{ nbf: NOW_S + 31 }, 'nbf'],
    [{ nbf: '0' }, 'form'],
    [{ iat: 'now' }, 'form'],
    [{ iss: undefined }, 'iss'],
    [{ iss: 'https://issuer.example/' }, 'iss'],
    [{ iss: ['https://issuer.example'] }, 'form'],
    [{ aud: undefined }, 'aud'],
    [{ aud: 'Sallyport' }, 'aud'],
    [{ aud: 'sallyport2' }, 'aud'],
    [{ aud: ['other', 'sallyport'] }, 'accepted'],
    [{ aud: ['other'] }, 'aud'],
    [{ aud: ['sallyport', 1] }, 'aud'],
    [{ aud: {} }, 'aud'],
    [{ sub: undefined }, 'runtime'],
    [{ cnf: {} }, 'cnf'],
    [{ cnf: { jkt: 'x'.repeat(43) } }, 'cnf'],
    [{ cnf: 'x' }, 'cnf'],
    [{ sallyport_allow_callers: 'all' }, 'callers'],
    [{ sallyport_allow_callers: ['192.0.2.7', 'office'] }, 'callers'],
    [{ sallyport_allow_callers: ['10.0.0.0/33'] }, 'callers'],
    [{ sallyport_allow_callers: [10] }, 'callers'],
    [{ sallyport_allow_callers: ['192.0.2.7', '2001:db8::/32'] }, 'accepted'],
    [{ sallyport_allow_callers: [] }, 'accepted'],
    [{ jti: 1 }, 'form'],
    [{ sallyport_hosts: ['hooks.customer.com', 'xn--bcher-kva.example'] }, 'accepted'],
    [{ sallyport_hosts: [] }, 'accepted'],
    [{ sallyport_hosts: 'hooks.customer.com' }, 'hosts'],
    [{ sallyport_hosts: Array.from({ length: 33 }, (_, i) => `h${i}.customer.com`) }, 'hosts'],
    [{ sallyport_hosts: [`${'a.'.repeat(126)}com`] }, 'hosts'],
    [{ sallyport_hosts: [`${'a'.repeat(64)}.com`] }, 'hosts'],
    [{ sallyport_hosts: [1] }, 'hosts'],
    [{ sallyport_hosts: ['Hooks.customer.com'] }, 'hosts'],
    [{ sallyport_hosts: ['hooks.customer.com.'] }, 'hosts'],
    [{ sallyport_hosts: ['*.customer.com'] }, 'hosts'],
    [{ sallyport_hosts: ['hooks'] }, 'hosts'],
    [{ sallyport_hosts: ['192.0.2.1'] }, 'hosts'],
    [{ sallyport_hosts: ['hooks.customer.com:443'] }, 'hosts'],
    [{ sallyport_hosts: ['b\u00fccher.example'] }, 'hosts'],
    [{ sallyport_hosts: ['t.example.com'] }, 'hosts'],
    [{ sallyport_hosts: ['a.b.t.example.com'] }, 'hosts'],
    [{ sallyport_hosts: ['control.example.com'] }, 'hosts'],
    [{ sallyport_hosts: ['not-t.example.com', 'example.com'] }, 'accepted'],
  ])('%j: %s', (change, expected) => {
    expect(outcome({ ...good, ...change })).toBe(expected)
  })

  test('the runtime may be named by another claim', () => {
    expect(readClaims({ ...good, rt: 'prod' }, { ...rules, runtimeClaim: 'rt' }, NOW).runtime).toBe('prod')
    expect(() => readClaims(good, { ...rules, runtimeClaim: 'constructor' }, NOW)).toThrow(TokenRefused)
  })

  test('a skew of more than 60 s cannot be configured', async () => {
    const { keys: made } = await makeWorld()
    const auth = { jwks: made.jwks, clockToleranceS: 61 }
    await expect(createServer({ control: 'off', domains: ['example.com'], auth })).rejects.toThrow(TypeError)
  })

  test('a payload that is not an object is refused', async () => {
    for (const payload of ['[]', '"x"', 'null', '{', '\xff']) {
      const bytes = Buffer.from(payload, 'latin1')
      const signed = await new CompactSign(bytes).setProtectedHeader({ alg: 'EdDSA', kid: 'EdDSA' }).sign(ed.privateKey)
      expect(await check(verifier(keys).verify(signed))).toBe('form')
    }
  })
})

test('J7 a token over 8 KiB is refused at once', async () => {
  const long = await sign(ed, 'EdDSA', { ...CLAIMS, x: 'y'.repeat(8000) })
  expect(long.length).toBeGreaterThan(8192)
  expect(await check(verifier(keys).verify(long))).toBe('length')
})

describe('J8 what the wire and the log reveal', () => {
  test('every refusal is the same 401 with an id, and the log names the check but never the token', async () => {
    const made = await makeWorld()
    const lines: string[] = []
    const note = (fields: object, message: string) => lines.push(JSON.stringify({ ...fields, message }))
    const logger = { debug: note, info: note, warn: note, error: note }
    const server = await startServer({ logger, auth: { jwks: made.keys.jwks, issuer: 'right' } })
    const other = await token('demo')
    const tokens = [
      'nonsense',
      other,
      await token('demo', { issuer: 'wrong' }),
      await token('demo', { issuer: 'right', audience: 'else' }),
      await token('demo', { issuer: 'right', ttl: 1000, now: Date.now() - 100_000 }),
      `${(await token('demo', { issuer: 'right' })).slice(0, -4)}AAAA`,
    ]
    const answers: string[] = []
    const details: string[] = []
    for (const bearer of tokens) {
      const refused = event(server, 'refused')
      const answer = await openWebSocket(server, { token: bearer }).catch(error => error)
      const { requestId, ...rest } = JSON.parse(answer.body)
      expect(requestId).toBe((await refused).requestId)
      expect(answer.headers['x-request-id']).toBe(requestId)
      expect(lines.some(line => line.includes(requestId))).toBe(true)
      answers.push(JSON.stringify([answer.status, rest]))
      details.push((await refused).detail.split(':')[0]!)
    }
    expect(new Set(answers).size).toBe(1)
    expect(details).toEqual(['form', 'iss', 'iss', 'aud', 'expired', 'signature'])
    for (const bearer of tokens) expect(lines.join('\n')).not.toContain(bearer.slice(0, 40) + bearer.slice(40, 60))
    await server.close({ graceMs: 0 })
  })
})
