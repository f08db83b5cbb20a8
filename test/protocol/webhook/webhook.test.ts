import { createHmac, generateKeyPairSync } from 'node:crypto'
import fc from 'fast-check'
import { Webhook } from 'standardwebhooks'
import { describe, expect, test } from 'vitest'
import type { HeaderList } from '../../../protocol/exchange.ts'
import { getHeader } from '../../../protocol/http/headers.ts'
import {
  isTimestamped,
  SCHEMES,
  type SchemeName,
  schemeOf,
  type WebhookScheme,
} from '../../../protocol/webhook/scheme.ts'
import { readSecret } from '../../../protocol/webhook/secret.ts'
import { createSigner } from '../../../protocol/webhook/sign.ts'
import { announcedVerifier, createVerifier, MAX_SECRETS } from '../../../protocol/webhook/verify.ts'

const NOW_MS = 1_763_856_000_000
const NO_MATCH = 'signed with another secret, or changed on the way'
const names = Object.keys(SCHEMES) as SchemeName[]

const secretOf = (scheme: WebhookScheme, text: string) => readSecret(scheme, Buffer.from(text))

/** The verdict on a body that arrives in these parts; the refusal of the head if there is one. */
function judge(
  scheme: WebhookScheme,
  secrets: string | string[],
  headers: HeaderList,
  body: string | Uint8Array[],
  arrivalMs = NOW_MS,
): string | undefined {
  const keys = [secrets].flat().map(text => secretOf(scheme, text))
  const verification = createVerifier(scheme, keys).begin(headers, arrivalMs)
  if (verification.refusal !== undefined) return verification.refusal
  for (const chunk of typeof body === 'string' ? [Buffer.from(body)] : body) verification.update(chunk)
  return verification.verdict()
}

const STANDARD = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
const SLACK_BODY =
  'token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar' +
  '&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com' +
  '%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c'

/** Published by the senders, except for Gitea, GitLab, Stripe and v1a: RFC 4231, the scheme's own text, and OpenSSL. */
const VECTORS: {
  scheme: WebhookScheme
  secret: string
  headers: HeaderList
  body: string
  atMs?: number
}[] = [
  {
    scheme: { scheme: 'github' },
    secret: "It's a Secret to Everybody",
    headers: ['x-hub-signature-256', 'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17'],
    body: 'Hello, World!',
  },
  {
    scheme: { scheme: 'bitbucket' },
    secret: "It's a Secret to Everybody",
    headers: ['x-hub-signature', 'sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9'],
    body: 'Hello World!',
  },
  {
    scheme: { scheme: 'gitea' },
    secret: 'Jefe',
    headers: ['x-gitea-signature', '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843'],
    body: 'what do ya want for nothing?',
  },
  {
    scheme: { scheme: 'hmac', header: 'X-Signature', hash: 'sha512', prefix: 'sha512=' },
    secret: 'Jefe',
    headers: [
      'x-signature',
      'sha512=164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737',
    ],
    body: 'what do ya want for nothing?',
  },
  {
    scheme: { scheme: 'standard-webhooks' },
    secret: STANDARD,
    headers: [
      ...['webhook-id', 'msg_p5jXN8AQM9LWM0D4loKWxJek', 'webhook-timestamp', '1614265330'],
      ...['webhook-signature', 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='],
    ],
    body: '{"test": 2432232314}',
    atMs: 1_614_265_330_000,
  },
  {
    scheme: { scheme: 'slack' },
    secret: '8f742231b10e8888abcd99yyyzzz85a5',
    headers: [
      ...['x-slack-request-timestamp', '1531420618'],
      ...['x-slack-signature', 'v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503'],
    ],
    body: SLACK_BODY,
    atMs: 1_531_420_618_000,
  },
  {
    scheme: { scheme: 'stripe' },
    secret: 'whsec_test_secret',
    headers: [
      'stripe-signature',
      't=1492774577,v1=88a022085c6bdb887b02cb26ff76dd681234d9675c0f22844059f55552a8883a,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39',
    ],
    body: '{"id":"evt_test_webhook","object":"event"}',
    atMs: 1_492_774_577_000,
  },
  {
    scheme: { scheme: 'standard-webhooks' },
    secret: 'whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=',
    headers: [
      ...['webhook-id', 'msg_p5jXN8AQM9LWM0D4loKWxJek', 'webhook-timestamp', '1614265330'],
      ...[
        'webhook-signature',
        'v1a,fldxM4gAKugP6nnt1hdz3sgGfZ6d99nzrMFnZOELIxbzEHoVmAb2ADpkJK7zgPePmPsle0zV9jSeGlHFG2NVAw==',
      ],
    ],
    body: '{"test": 2432232314}',
    atMs: 1_614_265_330_000,
  },
  { scheme: { scheme: 'gitlab' }, secret: 'a-token', headers: ['x-gitlab-token', 'a-token'], body: '{}' },
  { scheme: { scheme: 'bearer' }, secret: 'a-token', headers: ['authorization', 'Bearer a-token'], body: '{}' },
]

describe('Ed25519', () => {
  const scheme = { scheme: 'standard-webhooks' as const }
  const key = secretOf(scheme, `whsk_${Buffer.alloc(32, 7).toString('base64')}`)
  const signed = (body: Buffer) =>
    createSigner(scheme, key).sign([body], { id: 'a', timestamp: Math.floor(NOW_MS / 1000) })

  test('small pieces are kept as copies, in few pieces of memory', () => {
    const verification = createVerifier(scheme, [key]).begin(signed(Buffer.from('abc')), NOW_MS)
    for (const byte of Buffer.from('abc')) {
      const piece = Buffer.from([byte])
      verification.update(piece)
      piece.fill(0)
    }
    expect(verification.heldBytes).toBe(3)
    expect(verification.verdict()).toBeUndefined()
    expect(verification.heldBytes).toBe(0)
  })

  test('of many signatures, two are checked', () => {
    const headers = signed(Buffer.from('abc'))
    const at = headers.indexOf('webhook-signature') + 1
    const good = headers[at]!
    const bad = Array.from({ length: 2 }, (_, i) => `v1a,${Buffer.alloc(64, i + 1).toString('base64')}`)
    const judged = (...signatures: string[]) => {
      const verification = createVerifier(scheme, [key]).begin(headers.with(at, signatures.join(' ')), NOW_MS)
      verification.update(Buffer.from('abc'))
      return verification.verdict()
    }
    expect(judged(bad[0]!, good, bad[1]!)).toBeUndefined()
    expect(judged(...bad, good)).toMatch(/another secret/)
  })

  test('what is too large to be checked is not kept', () => {
    const verification = createVerifier(scheme, [key]).begin(signed(Buffer.from('abc')), NOW_MS)
    verification.update(Buffer.alloc(1024 * 1024))
    expect(verification.heldBytes).toBe(1024 * 1024)
    verification.update(Buffer.alloc(1))
    verification.update(Buffer.alloc(1))
    expect(verification.heldBytes).toBe(0)
    expect(verification.verdict()).toMatch(/may have 1048576 bytes/)
  })
})

describe('published examples', () => {
  test.each(VECTORS.map(vector => [vector.scheme.scheme, vector] as const))('%s', (_, vector) => {
    const { scheme, secret, headers, body, atMs = NOW_MS } = vector
    expect(judge(scheme, secret, headers, body, atMs)).toBeUndefined()
    expect(judge(scheme, `${secret}\n`, headers, body, atMs), 'a line break at the end of the file').toBeUndefined()
    const other = secret.startsWith('whpk_')
      ? `whpk_${Buffer.alloc(32, 7).toString('base64')}`
      : secret.replace(/.$/, secret.endsWith('A') ? 'B' : 'A')
    expect(judge(scheme, other, headers, body, atMs)).toBe(NO_MATCH)
    if (schemeOf(scheme.scheme).token !== true) expect(judge(scheme, secret, headers, `${body} `, atMs)).toBe(NO_MATCH)
  })

  test.each(VECTORS.map(vector => [vector.scheme.scheme, vector] as const))('%s: cut anywhere', (_, vector) => {
    const { scheme, secret, headers, atMs = NOW_MS } = vector
    const body = Buffer.from(vector.body)
    for (let cut = 1; cut < body.length; cut++) {
      const parts = [body.subarray(0, cut), body.subarray(cut)]
      expect(judge(scheme, secret, headers, parts, atMs)).toBeUndefined()
    }
  })
})

const OPTIONS: Partial<Record<SchemeName, Partial<WebhookScheme>>> = {
  hmac: { header: 'X-My-Signature', prefix: 'hmac:', encoding: 'base64' },
}

function optionsOf(name: SchemeName): WebhookScheme {
  return { scheme: name, ...OPTIONS[name] }
}

function textOf(name: SchemeName): string {
  return schemeOf(name).encodedSecret === true ? STANDARD : 'correct-horse-battery-staple'
}

describe('what we sign, we verify', () => {
  const signing = { id: 'msg_1', timestamp: NOW_MS / 1000 }

  test.each(names)('%s, any body in any parts, and nothing else', name => {
    const scheme = optionsOf(name)
    const signer = createSigner(scheme, secretOf(scheme, textOf(name)))
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 100 })), fc.nat(), (parts, at) => {
        const headers = signer.sign(parts, signing)
        expect(judge(scheme, textOf(name), headers, parts)).toBeUndefined()
        expect(judge(scheme, textOf(name), headers, [Buffer.concat(parts)])).toBeUndefined()
        for (let i = 0; i < headers.length; i += 2) expect(signer.fields.has(headers[i]!)).toBe(true)
        if (schemeOf(name).token === true) return
        const changed = Buffer.concat([...parts, Buffer.from('x')])
        changed[at % changed.length]! ^= 1
        expect(judge(scheme, textOf(name), headers, [changed])).toBe(NO_MATCH)
      }),
      { numRuns: 50 },
    )
  })

  test('an Ed25519 pair: the private key signs, the public one verifies', () => {
    const scheme = { scheme: 'standard-webhooks' } as const
    const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' })
    const seed = Buffer.from(jwk.d!, 'base64url')
    const both = Buffer.concat([seed, Buffer.from(jwk.x!, 'base64url')])
    for (const key of [seed, both]) {
      const headers = createSigner(scheme, secretOf(scheme, `whsk_${key.toString('base64')}`)).sign(
        [Buffer.from('{}')],
        signing,
      )
      expect(getHeader(headers, 'webhook-signature')).toMatch(/^v1a,/)
      const trusted = `whpk_${both.subarray(32).toString('base64')}`
      expect(judge(scheme, trusted, headers, '{}')).toBeUndefined()
      expect(judge(scheme, trusted, headers, '{ }')).toBe(NO_MATCH)
      expect(judge(scheme, [STANDARD, trusted], headers, '{}')).toBeUndefined()
      expect(judge(scheme, STANDARD, headers, '{}')).toBe(NO_MATCH)
    }
    expect(() => createSigner(scheme, secretOf(scheme, `whpk_${both.subarray(32).toString('base64')}`))).toThrow(
      'a public key signs nothing',
    )
  })

  test('for a body over 1 MiB Ed25519 is not checked, and HMAC is', () => {
    const scheme = { scheme: 'standard-webhooks' } as const
    const key = `whsk_${Buffer.alloc(32, 1).toString('base64')}`
    const chunk = Buffer.alloc(64 * 1024)
    const [most, more] = [Array(16).fill(chunk), Array(17).fill(chunk)]
    for (const secret of [key, STANDARD]) {
      const signer = createSigner(scheme, secretOf(scheme, secret))
      expect(judge(scheme, secret, signer.sign(most, signing), most)).toBeUndefined()
      expect(judge(scheme, secret, signer.sign(more, signing), more)).toBe(
        secret === key ? 'a body with an Ed25519 signature may have 1048576 bytes' : undefined,
      )
    }
  })

  test('the Standard Webhooks library accepts ours, and we accept its', () => {
    const scheme = { scheme: 'standard-webhooks' } as const
    const timestamp = Math.floor(Date.now() / 1000)
    const library = new Webhook(STANDARD)
    for (const body of ['{"a":1}', '', '"\u00e4\u{1f600}"']) {
      const headers = createSigner(scheme, secretOf(scheme, STANDARD)).sign([Buffer.from(body)], {
        id: 'msg_2',
        timestamp,
      })
      const object = Object.fromEntries(Array.from({ length: 3 }, (_, i) => headers.slice(2 * i, 2 * i + 2)))
      expect(() => library.verify(body, object, { jsonParse: false })).not.toThrow()
      const theirs = library.sign('msg_2', new Date(timestamp * 1000), body)
      const fields = ['webhook-id', 'msg_2', 'webhook-timestamp', String(timestamp), 'webhook-signature', theirs]
      expect(judge(scheme, STANDARD, fields, body, Date.now())).toBeUndefined()
    }
  })
})

describe('rotation', () => {
  test.each(names)('%s: any of several secrets', name => {
    const scheme = optionsOf(name)
    const [old, next] = name.includes('-')
      ? [STANDARD, `whsec_${Buffer.alloc(24, 3).toString('base64')}`]
      : ['old-secret', 'new-secret']
    for (const used of [old, next]) {
      const body = [Buffer.from('{}')]
      const headers = createSigner(scheme, secretOf(scheme, used)).sign(body, { id: 'a', timestamp: NOW_MS / 1000 })
      expect(judge(scheme, [old, next], headers, body)).toBeUndefined()
      expect(judge(scheme, [next, old], headers, body)).toBeUndefined()
      expect(judge(scheme, used === old ? next : old, headers, body)).toBe(NO_MATCH)
    }
  })

  test('a sender that signs twice while it rotates', () => {
    const body = '{}'
    const at = NOW_MS / 1000
    const stripe = (secret: string) => createHmac('sha256', secret).update(`${at}.${body}`).digest('hex')
    const field = ['stripe-signature', `t=${at},v1=${stripe('old')},v1=${stripe('new')}`]
    for (const secret of ['old', 'new']) expect(judge({ scheme: 'stripe' }, secret, field, body)).toBeUndefined()
    const mac = (key: string) => createHmac('sha256', key).update(`m.${at}.${body}`).digest('base64')
    const standard = [
      ...['webhook-id', 'm', 'webhook-timestamp', String(at)],
      ...['webhook-signature', `v2,x v1,${mac('old')} v1,${mac('new')}`],
    ]
    for (const key of ['old', 'new']) {
      const secret = `whsec_${Buffer.from(key).toString('base64')}`
      expect(judge({ scheme: 'standard-webhooks' }, secret, standard, body)).toBeUndefined()
    }
  })

  test(`from 1 to ${MAX_SECRETS} secrets`, () => {
    const scheme = { scheme: 'github' } as const
    const secret = secretOf(scheme, 'x')
    expect(() => createVerifier(scheme, [])).toThrow(TypeError)
    expect(() => createVerifier(scheme, Array(MAX_SECRETS + 1).fill(secret))).toThrow(TypeError)
    expect(() => createVerifier(scheme, Array(MAX_SECRETS).fill(secret))).not.toThrow()
  })
})

describe('R8 the time of sending', () => {
  const signed = names.filter(name => schemeOf(name).timestamped)

  test('who signs it', () => {
    expect(signed).toEqual(['gitlab-signing', 'standard-webhooks', 'slack', 'stripe'])
    expect(isTimestamped(['content-type', 'a', 'stripe-signature', 't=1'])).toBe(true)
    expect(isTimestamped(['x-hub-signature-256', 'sha256=00'])).toBe(false)
  })

  test.each(signed)('%s: compared with the arrival, in both directions', name => {
    const body = [Buffer.from('{}')]
    const judged = (sentMs: number, toleranceMs?: number) => {
      const scheme = { scheme: name, toleranceMs }
      const signing = { id: 'a', timestamp: sentMs / 1000 }
      return judge(scheme, textOf(name), createSigner(scheme, secretOf(scheme, textOf(name))).sign(body, signing), body)
    }
    expect(judged(NOW_MS - 300_000)).toBeUndefined()
    expect(judged(NOW_MS + 300_000)).toBeUndefined()
    expect(judged(NOW_MS - 301_000)).toBe('the timestamp is 301 s old')
    expect(judged(NOW_MS + 301_000)).toBe('the timestamp is 301 s ahead')
    expect(judged(NOW_MS - 301_000, 600_000)).toBeUndefined()
    expect(judged(NOW_MS - 2_000, 1_000)).toBe('the timestamp is 2 s old')
    expect(judged(NOW_MS * 1000), 'in ms').toMatch(/s ahead$/)
    expect(judged(999_999_999_999_999_000)).toMatch(/s ahead$/)
  })
})

const HEX = '0'.repeat(64)
const B64 = Buffer.alloc(32).toString('base64')
const AT = String(NOW_MS / 1000)
const standardWith = (signature: string, id = 'm', at = AT) => [
  ...['webhook-id', id, 'webhook-timestamp', at, 'webhook-signature', signature],
]
const stripeWith = (value: string) => ['stripe-signature', value]

describe('R8 an invalid signature is refused by the head alone', () => {
  const cases: [SchemeName, HeaderList, string][] = [
    ['github', [], 'x-hub-signature-256 is missing'],
    ['github', ['x-hub-signature-256', ''], 'x-hub-signature-256 is missing'],
    ['github', ['x-hub-signature', `sha1=${'0'.repeat(40)}`], 'signed with SHA-1 alone'],
    [
      'github',
      ['x-hub-signature-256', `sha1=${'0'.repeat(40)}`],
      'x-hub-signature-256 is SHA-1, which proves nothing any more',
    ],
    ['github', ['x-hub-signature-256', HEX], 'x-hub-signature-256 is malformed'],
    ['github', ['x-hub-signature-256', `sha256=${HEX}00`], 'x-hub-signature-256 is malformed'],
    ['github', ['x-hub-signature-256', `sha256=${HEX.slice(1)}`], 'x-hub-signature-256 is malformed'],
    ['github', ['x-hub-signature-256', `sha256=${HEX.slice(1)}g`], 'x-hub-signature-256 is malformed'],
    ['github', ['x-hub-signature-256', `sha256= ${HEX.slice(1)}`], 'x-hub-signature-256 is malformed'],
    ['github', ['x-hub-signature-256', `sha256=${'0'.repeat(1000)}`], 'x-hub-signature-256 is malformed'],
    [
      'github',
      ['x-hub-signature-256', `sha256=${HEX}`, 'x-hub-signature-256', 'x'],
      'x-hub-signature-256 is there 2 times',
    ],
    [
      'bitbucket',
      ['x-hub-signature', `sha1=${'0'.repeat(40)}`],
      'x-hub-signature is SHA-1, which proves nothing any more',
    ],
    ['gitea', ['x-gitea-signature', `sha256=${HEX}`], 'x-gitea-signature is malformed'],
    ['forgejo', ['x-gitea-signature', HEX], 'x-forgejo-signature is missing'],
    ['gitlab', [], 'x-gitlab-token is missing'],
    ['gitlab', ['x-gitlab-token', 'a', 'x-gitlab-token', 'a'], 'x-gitlab-token is there 2 times'],
    ['bearer', ['authorization', 'Basic YTpi'], 'authorization is no bearer token'],
    ['bearer', ['authorization', 'Bearer'], 'authorization is no bearer token'],
    ['bearer', ['authorization', 'Bearer a b'], 'authorization is no bearer token'],
    ['standard-webhooks', standardWith(`v1,${B64}`, 'a.b'), 'webhook-id is malformed'],
    ['standard-webhooks', standardWith(`v1,${B64}`, ''), 'webhook-id is missing'],
    ['standard-webhooks', standardWith(`v1,${B64}`, 'm', '1e9'), 'webhook-timestamp is malformed'],
    ['standard-webhooks', standardWith(`v1,${B64}`, 'm', '-1'), 'webhook-timestamp is malformed'],
    ['standard-webhooks', standardWith(`v1,${B64}`, 'm', '9'.repeat(99)), 'webhook-timestamp is malformed'],
    ['standard-webhooks', standardWith(`v2,${B64}`), 'webhook-signature holds no signature of v1 or v1a'],
    ['standard-webhooks', standardWith(`v1${B64}`), 'webhook-signature holds no signature of v1 or v1a'],
    ['standard-webhooks', standardWith(`v1,${B64.slice(4)}`), 'webhook-signature holds no signature of v1 or v1a'],
    ['standard-webhooks', standardWith(`v1a,${B64}`), 'webhook-signature holds no signature of v1 or v1a'],
    ['standard-webhooks', standardWith(','.repeat(100)), 'webhook-signature holds no signature of v1 or v1a'],
    [
      'standard-webhooks',
      standardWith(`${'x '.repeat(16)}v1,${B64}`),
      'webhook-signature holds no signature of v1 or v1a',
    ],
    ['slack', ['x-slack-signature', `v0=${HEX}`], 'x-slack-request-timestamp is missing'],
    ['slack', ['x-slack-request-timestamp', AT, 'x-slack-signature', `v1=${HEX}`], 'x-slack-signature is malformed'],
    ['stripe', stripeWith(`v1=${HEX}`), 'stripe-signature has no time'],
    ['stripe', stripeWith(`t=${AT},t=${AT},v1=${HEX}`), 'stripe-signature has no time'],
    ['stripe', stripeWith(`t=${AT}`), 'stripe-signature holds no signature of v1'],
    ['stripe', stripeWith(`t=${AT},v0=${HEX}`), 'stripe-signature holds no signature of v1'],
    ['stripe', stripeWith('='.repeat(99)), 'stripe-signature has no time'],
  ]
  test.each(cases)('%s %.100j', (name, headers, reason) => {
    expect(judge(optionsOf(name), textOf(name), headers, '')).toBe(reason)
  })

  test('no field makes it throw', () => {
    const field = fc.oneof(fc.string(), fc.constantFrom(`sha256=${HEX}`, `t=${AT},v1=${HEX}`, `v1,${B64}`, AT))
    for (const name of names) {
      const scheme = optionsOf(name)
      const fields = [...schemeOf(name).fields(scheme)]
      fc.assert(
        fc.property(fc.array(fc.tuple(fc.constantFrom(...fields), field), { maxLength: 5 }), pairs => {
          expect(judge(scheme, textOf(name), pairs.flat(), 'body')).toBeTypeOf('string')
        }),
        { numRuns: 100 },
      )
    }
  })
})

describe('options and secrets', () => {
  test.each([
    [{ scheme: 'hmac' }, 'header: is missing: the scheme hmac needs the name of the field'],
    [{ scheme: 'hmac', header: 'a b' }, 'header: is no header name'],
    [{ scheme: 'hmac', header: 'a', prefix: 'a b' }, 'prefix: must be ASCII without spaces'],
    [{ scheme: 'github', header: 'a' }, 'header: only the scheme hmac has it'],
    [{ scheme: 'github', hash: 'sha512' }, 'hash: only the scheme hmac has it'],
    [{ scheme: 'github', toleranceMs: 1 }, 'toleranceMs: the scheme github signs no timestamp'],
  ] as [WebhookScheme, string][])('%j', (scheme, message) => {
    const secret = secretOf({ scheme: 'github' }, 'x')
    expect(() => createVerifier(scheme, [secret])).toThrow(new TypeError(message))
    expect(() => createSigner(scheme, secret)).toThrow(new TypeError(message))
  })

  test.each([
    ['github', '', 'is empty'],
    ['github', '\n', 'is empty'],
    ['github', ' \t\n', 'is empty'],
    ['github', 'x'.repeat(4097), 'holds more than 4096 bytes'],
    ['bearer', 'a b', 'must be ASCII without spaces, since it is sent as it is'],
    ['gitlab', 'a\nb', 'must be ASCII without spaces, since it is sent as it is'],
    ['standard-webhooks', 'whsec_', 'is no secret of Standard Webhooks: whsec_, whpk_ or whsk_, and base64'],
    ['standard-webhooks', 'whsec_!!', 'is no secret of Standard Webhooks: whsec_, whpk_ or whsk_, and base64'],
    ['standard-webhooks', 'whpk_AAAA', 'is no Ed25519 key: whpk_ and 32 bytes as base64'],
    ['standard-webhooks', 'whsk_AAAA', 'is no Ed25519 key: whsk_ and 32 bytes as base64'],
  ] as [SchemeName, string, string][])('%s %j', (scheme, text, message) => {
    expect(() => secretOf({ scheme }, text)).toThrow(new TypeError(message))
  })

  test('a secret may be any bytes, and only one trailing line break is left out', () => {
    const scheme = { scheme: 'github' } as const
    const key = Buffer.from([0, 255, 10, 1, 10])
    const mac = createHmac('sha256', key).update('{}').digest('hex')
    for (const end of ['\n', '\r\n']) {
      const secret = readSecret(scheme, Buffer.concat([key, Buffer.from(end)]))
      const verification = createVerifier(scheme, [secret]).begin(['x-hub-signature-256', `sha256=${mac}`], NOW_MS)
      verification.update(Buffer.from('{}'))
      expect(verification.verdict()).toBeUndefined()
    }
  })

  test('a server verifies with what its client announced', () => {
    const secrets = [Buffer.from('one\n').toString('base64'), Buffer.from('two').toString('base64')]
    const verifier = announcedVerifier({ scheme: 'gitlab', secrets })
    expect(verifier.begin(['x-gitlab-token', 'one'], NOW_MS).verdict()).toBeUndefined()
    expect(verifier.begin(['x-gitlab-token', 'two'], NOW_MS).verdict()).toBeUndefined()
    expect(verifier.begin(['x-gitlab-token', 'three'], NOW_MS).verdict()).toBe(NO_MATCH)
    expect(() => announcedVerifier({ scheme: 'gitlab', secrets: ['IA=='] })).toThrow('is empty')
    expect(() => announcedVerifier({ scheme: 'later' as SchemeName, secrets })).toThrow(TypeError)
  })
})
