import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { createAuthority } from '../../certs/index.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'
import { fileKeys } from '../../server/auth/key-file.ts'
import { oddCertificate } from '../support/odd-certificates.ts'
import { sallyport } from './run.ts'

const NO_KEY = `the key set has no public key for ${DEFAULT_ALGORITHMS.join(', ')}`

let folder: string
const file = (name: string) => join(folder, name)
const write = (name: string, text: string) => writeFileSync(file(name), text)

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-bad-'))
  await sallyport(['certs', 'init', '--out', folder, '--host', 'a.example'])
  await sallyport(['keys', 'create', '--out', folder])
  mkdirSync(file('folder'))
  write('empty', '')
  write('nonsense', 'nonsense')
  symlinkSync(file('missing'), file('nowhere'))
  write('token', 'a token')
  chmodSync(file('token'), 0o600)
  write('no-keys.json', '{"keys":[]}')
  const forwardAuth = 'forward-auth: { url: "http://127.0.0.1:1" }'
  write('demo.yaml', `access: { runtimes: [demo], ${forwardAuth} }`)
  write('all.yaml', `access: { ${forwardAuth} }`)
  write('empty.yaml', `access: { runtimes: [], ${forwardAuth} }`)
  write('nobody.yaml', 'access: { runtimes: [demo] }')
  write('typo-access.yaml', `access: { runtime: [demo], ${forwardAuth} }`)
  const keys = `{ jwks: { file: ${file('missing')} }, audience: callers }`
  write('other-keys.yaml', `access: { runtimes: [demo], jwt: ${keys} }`)
  write('routes.yaml', 'routes:\n  - { name: a, match: { path: /a }, target: "http://a:1" }\n')
  write('typo.yaml', 'routes:\n  - { name: a, match: { pathh: /a }, target: "http://a:1" }\n')
  write(
    'twins.yaml',
    'routes:\n' +
      '  - { name: a, match: { path: /a }, target: "http://a:1" }\n' +
      '  - { name: b, match: { path: /a }, target: "http://b:1" }\n',
  )
})
afterAll(() => rmSync(folder, { recursive: true }))

const SERVER = () => ({
  domain: 'tunnels.example.com',
  'auth.jwks.file': file('jwks.json'),
  'control.tls.cert': file('server.pem'),
  'control.tls.key': file('server-key.pem'),
})
const CLIENT = () => ({ server: 'wss://a.example', 'token.file': file('token'), routes: file('routes.yaml') })

function validate(component: string, given: Record<string, string>) {
  const flags = Object.entries(given).flatMap(([name, value]) => [`--${name}`, value])
  return sallyport(['config', 'validate', component, ...flags])
}

test('a correct configuration is valid', async () => {
  const valid = (component: string) => ({ code: 0, out: `the configuration of the ${component} is valid\n`, notes: '' })
  expect(await validate('server', SERVER())).toEqual(valid('server'))
  expect(await validate('client', CLIENT())).toEqual(valid('client'))
  expect(await validate('router', { routes: file('routes.yaml') })).toEqual(valid('router'))
})

describe('server', () => {
  test.each<[string, string, string]>([
    ['control.tls.cert', 'missing', '--control.tls.cert FOLDER/missing: no such file'],
    ['control.tls.cert', 'folder', '--control.tls.cert FOLDER/folder: it is a directory'],
    ['control.tls.cert', 'nonsense', '--control.tls: the certificate FOLDER/nonsense is not valid PEM'],
    ['control.tls.key', 'nonsense', '--control.tls: the key FOLDER/nonsense is not a valid private key'],
    [
      'control.tls.key',
      'ca-key.pem',
      '--control.tls: the key FOLDER/ca-key.pem does not match the certificate FOLDER/server.pem',
    ],
    ['control.tls.client-ca', 'missing', '--control.tls.client-ca FOLDER/missing: no such file'],
    ['control.tls.client-ca', 'nonsense', '--control.tls.client-ca FOLDER/nonsense: it has no valid certificate'],
    ['auth.jwks.file', 'missing', '--auth.jwks.file FOLDER/missing: no such file'],
    ['auth.jwks.file', 'nonsense', '--auth.jwks.file FOLDER/nonsense: the key set is not JSON'],
    ['auth.jwks.file', 'no-keys.json', `--auth.jwks.file FOLDER/no-keys.json: ${NO_KEY}`],
    ['auth.revocations.file', 'missing', '--auth.revocations.file FOLDER/missing: no such file'],
    [
      'auth.revocations.file',
      'nonsense',
      '--auth.revocations.file FOLDER/nonsense: the list of revocations is not JSON, or not an object with unique members',
    ],
  ])('--%s %s', async (name, value, message) => {
    const result = await validate('server', { ...SERVER(), [name]: file(value) })
    expect(result).toEqual({ code: 3, out: '', notes: `sallyport: ${message.replaceAll('FOLDER', folder)}\n` })
  })

  test('a key set that contains a secret is refused, and nothing of it is shown', async () => {
    write('secret.json', `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`)
    const result = await validate('server', { ...SERVER(), 'auth.jwks.file': file('secret.json') })
    expect(result.code).toBe(3)
    expect(result.notes).toBe(
      `sallyport: --auth.jwks.file ${file('secret.json')}: the key set contains a secret key; only public keys belong in it\n`,
    )
  })

  const rsa = { kty: 'RSA', n: 'sQ', e: 'AQAB' }
  test.each<[string, object | string, string]>([
    ['an empty file', '', 'the key set is not JSON'],
    ['no list', {}, 'the key set has no list `keys`'],
    ['keys without a kind', { keys: [{}, null, 'a', { kty: 5 }] }, NO_KEY],
    ['only symmetric keys', { keys: [{ kty: 'oct' }] }, NO_KEY],
    ['a key with exponent 1', { keys: [{ ...rsa, e: 'AQ' }] }, NO_KEY],
    [
      'a prime factor of a key',
      { keys: [{ ...rsa, p: 'AQ' }] },
      'the key set contains a secret key; only public keys belong in it',
    ],
    ['65 keys', { keys: Array.from({ length: 65 }, (_, kid) => ({ ...rsa, kid })) }, 'the key set has over 64 keys'],
    ['a file over the limit', ' '.repeat(70_000), 'the file is over 65536 bytes'],
  ])('a key set is refused for the same reasons as by the server that reads it: %s', async (_, set, message) => {
    write('odd.json', typeof set === 'string' ? set : JSON.stringify(set))
    const given = { ...SERVER(), 'auth.jwks.file': file('odd.json') }
    const refused = { code: 3, out: '', notes: `sallyport: --auth.jwks.file ${file('odd.json')}: ${message}\n` }
    expect(await validate('server', given)).toEqual(refused)
    await expect(fileKeys(file('odd.json'), noLogger, () => 0)).rejects.toThrow(message)
  })

  test('a list of revocations longer than what can be read is refused', async () => {
    write('long.json', ' '.repeat(2 * 1024 * 1024 + 1))
    const { code, notes } = await validate('server', { ...SERVER(), 'auth.revocations.file': file('long.json') })
    expect([code, notes]).toEqual([
      3,
      `sallyport: --auth.revocations.file ${file('long.json')}: the file is over 2097152 bytes\n`,
    ])
  })

  test('the server itself refuses the same before it listens', async () => {
    const result = await sallyport(['server', '--domain', 'a.b', '--control.plaintext'])
    expect(result).toEqual({
      code: 3,
      out: '',
      notes: 'sallyport: no key set: give --auth.jwks.file or --auth.jwks.url; without one no token can be verified\n',
    })
  })
})

describe("a file's contents given in place of its path are not repeated", () => {
  const token = `eyJ${'a'.repeat(40)}.eyJ${'b'.repeat(40)}.${'c'.repeat(40)}`
  const held: [string, () => string][] = [
    ['a short token', () => token],
    ['a token that is too long for a name', () => `${token}${'c'.repeat(300)}`],
    ['a private key', () => readFileSync(file('server-key.pem'), 'utf8').trim()],
    ['a private JWK', () => readFileSync(file('private.jwk'), 'utf8').trim()],
  ]
  /** The lines of the secret, and the members of a JWK. */
  const expectHidden = (output: string, secret: string) => {
    for (const part of secret.match(/[\w+/-]{20,}/g)!) {
      if (!secret.includes(`"x":"${part}"`) && !secret.includes(`"kid":"${part}"`)) expect(output).not.toContain(part)
    }
  }

  test.each(held)('as a setting: %s', async (_name, make) => {
    const secret = make()
    for (const environment of [
      { SALLYPORT_TOKEN_FILE: secret },
      { SALLYPORT_TLS_KEY: secret },
      { SALLYPORT_CA: secret },
    ]) {
      const args = ['--server', 'wss://a.example', '--routes', file('routes.yaml')]
      for (const command of [
        ['config', 'validate', 'client'],
        ['config', 'print', 'client'],
        ['check', 'client'],
        ['client'],
      ]) {
        const { code, out, notes } = await sallyport([...command, ...args], { environment })
        expect(out + notes).toContain('expected the path of a file, not its contents')
        expect(code).toBe(command[0] === 'check' ? 5 : 3)
        expectHidden(out + notes, secret)
      }
    }
  })

  test.each(held.slice(0, 2))('as a flag or an argument: %s', async (_name, make) => {
    for (const args of [
      ['token', 'inspect'],
      ['token', 'create', '--runtime', 'demo', '--key'],
      ['status', '--admin', 'http://127.0.0.1:1', '--admin.token.file'],
      ['revoke'],
      ['client', '--token.file'],
    ]) {
      const { code, out, notes } = await sallyport([...args, make()])
      expect([code, out]).toEqual([expect.toBeOneOf([2, 3]), ''])
      expect(notes).toContain('***')
      expectHidden(notes, make())
    }
  })
})

test('a missing folder of certificates is refused, and an unused pair is named', async () => {
  const at = (folder: string) => {
    const publicTls = { 'public.tls.cert': file('wild/server.pem'), 'public.tls.key': file('wild/server-key.pem') }
    return { ...SERVER(), domain: 'a.example', ...publicTls, 'public.tls.folder': folder }
  }
  await sallyport(['certs', 'server', '--ca', folder, '--out', file('wild'), '--host', '*.a.example'])
  const missing = await validate('server', at(file('missing')))
  expect([missing.code, missing.notes]).toEqual([3, expect.stringContaining('missing: no such file')])
  mkdirSync(file('certificates/mounted'), { recursive: true })
  write('certificates/a.crt', readFileSync(file('server.pem'), 'utf8'))
  write('certificates/a.key', readFileSync(file('ca-key.pem'), 'utf8'))
  const { notes } = await validate('server', at(file('certificates')))
  expect(notes).toContain(`the key ${file('certificates/a.key')} does not match the certificate`)
  chmodSync(file('certificates/a.key'), 0o644)
  expect((await validate('server', at(file('certificates')))).notes).toContain(
    `--public.tls.folder ${file('certificates/a.key')}: mode 0644; expected: nobody else can read it.`,
  )
})

test.each([
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', 'gRPC is not supported'],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318', 'must be a URL with http:// or https://'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'a secret', 'must be a list such as name=value'],
  ['OTEL_TRACES_SAMPLER', 'jaeger_remote', 'must be one of always_on'],
])('%s, a variable with which no component starts, is refused if tracing is on', async (name, value, problem) => {
  const routes = ['--routes', file('routes.yaml')]
  const components = {
    server: Object.entries(SERVER()).flatMap(([flag, text]) => [`--${flag}`, text]),
    client: Object.entries(CLIENT()).flatMap(([flag, text]) => [`--${flag}`, text]),
    router: routes,
  }
  for (const [component, args] of Object.entries(components)) {
    const at = (tracing: string) =>
      sallyport(['config', 'validate', component, ...args, '--tracing', tracing], { environment: { [name]: value } })
    expect(await at('otlp')).toEqual({ code: 3, out: '', notes: expect.stringContaining(problem) })
    expect((await at('off')).code).toBe(0)
  }
  const checked = await sallyport(['check', 'router', ...routes, '--tracing', 'otlp'], {
    environment: { [name]: value },
  })
  expect([checked.code, checked.out]).toEqual([5, expect.stringContaining(problem)])
})

test('an inbox that this installation cannot open is refused', async () => {
  const { versions } = process
  const sqlite = { ...SERVER(), inbox: `sqlite:${file('inbox.db')}` }
  Object.defineProperty(process, 'versions', { value: { ...versions, node: '24.14.1' } })
  const old = await validate('server', sqlite).finally(() =>
    Object.defineProperty(process, 'versions', { value: versions }),
  )
  expect(old.notes).toContain('inbox: this is Node 24.14.1, whose SQLite is not good enough')
  expect((await validate('server', sqlite)).code).toBe(0)
  const postgres = { ...SERVER(), inbox: 'postgres://u@h/d' }
  expect((await validate('server', postgres)).code).toBe(0)
  vi.doMock('pg', () => {
    throw new Error('not installed')
  })
  const missing = await validate('server', postgres).finally(() => vi.doUnmock('pg'))
  expect(missing.notes).toContain('inbox: a store in PostgreSQL needs the package pg: npm install pg')
})

test('incomplete settings for checking callers are refused', async () => {
  for (const [given, message] of [
    [{ 'access.jwt.jwks.file': file('jwks.json') }, 'need --access.jwt.audience'],
    [{ 'access.jwt.audience': 'callers' }, 'needs --access.jwt.jwks.file or .url'],
    [{ 'access.open': '/webhooks' }, 'nobody would be checked'],
    [{ 'access.runtimes': 'demo' }, 'nobody would be checked'],
    [{ 'access.forward-auth.headers': 'x-user' }, 'needs --access.forward-auth.url'],
    [{ 'access.files': '' }, '--access.files is empty'],
    [{ 'access.files': file('missing') }, 'missing: no such file'],
    [{ 'access.files': file('all.yaml') }, 'FOLDER/all.yaml: access.runtimes is missing'],
    [{ 'access.files': file('empty.yaml') }, 'FOLDER/empty.yaml: access.runtimes is missing or empty'],
    [
      { 'access.forward-auth.url': 'http://x', 'access.runtimes': '' },
      'access.runtimes is empty: nobody would be checked',
    ],
    [{ 'access.files': file('nobody.yaml') }, 'FOLDER/nobody.yaml: --access.runtimes needs'],
    [{ 'access.files': file('typo-access.yaml') }, 'FOLDER/typo-access.yaml:1:11: unknown key access.runtime;'],
    [{ 'access.files': file('other-keys.yaml') }, '--access.jwt.jwks.file FOLDER/missing: no such file'],
    [{ 'access.files': `${file('demo.yaml')},${file('demo.yaml')}` }, 'access: demo is in two sets of rules'],
    [{ 'access.client-ca': file('ca.pem') }, '--access.client-ca needs --public.tls.cert'],
    [{ 'access.jwt.jwks.file': file('missing'), 'access.jwt.audience': 'callers' }, 'missing: no such file'],
  ] as const) {
    const { code, notes } = await validate('server', { ...SERVER(), ...given })
    expect([code, notes]).toEqual([3, expect.stringContaining(message.replaceAll('FOLDER', folder))])
  }
})

describe('client and router', () => {
  test.each<[string, string, string, string]>([
    ['client', 'ca', 'missing', '--ca FOLDER/missing: no such file'],
    ['client', 'ca', 'empty', '--ca FOLDER/empty: it has no valid certificate'],
    ['client', 'routes', 'missing', 'cannot read FOLDER/missing (ENOENT)'],
    ['client', 'routes', 'typo.yaml', 'FOLDER/typo.yaml:2:25: unknown key "pathh"; did you mean "path"?'],
    ['router', 'routes', 'typo.yaml', 'FOLDER/typo.yaml:2:25: unknown key "pathh"; did you mean "path"?'],
  ])('%s --%s %s', async (component, name, value, message) => {
    const base = component === 'client' ? CLIENT() : {}
    const result = await validate(component, { ...base, [name]: file(value) })
    expect(result).toEqual({ code: 3, out: '', notes: `sallyport: ${message.replaceAll('FOLDER', folder)}\n` })
  })

  test.each(['server', 'client', 'router'])('the admin token of a %s', async component => {
    const base = { server: SERVER(), client: CLIENT(), router: { routes: file('routes.yaml') } }[component]!
    const { notes } = await validate(component, { ...base, 'admin.token.file': file('missing') })
    expect(notes).toBe(`sallyport: cannot read the admin token ${file('missing')}: no such file\n`)
    writeFileSync(file('short'), 'short\n')
    const short = await validate(component, { ...base, 'admin.token.file': file('short') })
    expect(short.notes).toBe(`sallyport: the admin token in ${file('short')} is shorter than 16 characters\n`)
    for (const text of ['a token of several words', 'schlüssel-der-verwaltung', 'x'.repeat(8193)]) {
      writeFileSync(file('unusable'), `${text}\n`)
      const { code, notes } = await validate(component, { ...base, 'admin.token.file': file('unusable') })
      expect([code, notes]).toEqual([
        3,
        expect.stringContaining(`the admin token in ${file('unusable')} has spaces or`),
      ])
    }
    const off = { 'admin.listen': 'off', 'admin.token.file': file('missing') }
    expect((await validate(component, { ...base, ...off })).code).toBe(0)
  })

  test.each<[string, Record<string, string>, string]>([
    ['server', { inbox: 'sqlite:FOLDER/missing/x.db' }, 'inbox: there is no folder FOLDER/missing'],
    ['server', { inbox: 'sqlite:FOLDER/folder' }, 'inbox: FOLDER/folder is not a plain file'],
    ['server', { inbox: 'postgres://u@h/d', 'inbox.password.file': 'FOLDER/missing' }, '--inbox.password.file FOLDER'],
    [
      'server',
      { inbox: 'sqlite:FOLDER/x', 'inbox.password.file': 'FOLDER/empty' },
      'inbox: password and ca are for PostgreSQL only',
    ],
    [
      'server',
      { inbox: 'sqlite:FOLDER/x', 'inbox.mac.file': 'FOLDER/missing' },
      '--inbox.mac.file FOLDER/missing: no such',
    ],
    ['server', { inbox: 'sqlite:FOLDER/x', 'inbox.mac.file': 'FOLDER/empty' }, 'empty: it has no secret'],
    ['client', { 'token.file': 'FOLDER/folder' }, '--token.file FOLDER/folder: it is a directory'],
    ['client', { 'inbox.key.file': 'FOLDER/missing/x' }, '--inbox.key.file FOLDER/missing/x: no such file'],
    ['client', { 'inbox.key.file': 'FOLDER/nonsense/x' }, 'FOLDER/nonsense/x: a part of its path is not a directory'],
    ['client', { 'inbox.key.file': 'FOLDER/nowhere' }, '--inbox.key.file FOLDER/nowhere: no such file'],
    ['client', { 'inbox.key.file': 'FOLDER/nonsense' }, '--inbox.key.file FOLDER/nonsense has no private key'],
    ['client', { server: 'wss://a.example/?x' }, 'the address of a server has no user, password, query'],
    ['client', { target: 'http://a/x' }, 'target: must be only host and port'],
  ])('%s: %o is refused, as at the start', async (component, more, message) => {
    const { routes, ...client } = CLIENT()
    const base = component === 'server' ? SERVER() : 'target' in more ? client : { ...client, routes }
    const here = (text: string) => text.replaceAll('FOLDER', folder)
    const given = Object.fromEntries(Object.entries(more).map(([name, value]) => [name, here(value)]))
    const { code, notes } = await validate(component, { ...base, ...given })
    expect([code, notes]).toEqual([3, expect.stringContaining(here(message))])
  })

  test('a certificate that OpenSSL would not present', async () => {
    const { certificate, key } = await oddCertificate(await createAuthority({ name: 'Old' }), { rsaBits: 1024 })
    write('short.pem', certificate)
    write('short-key.pem', key)
    const { code, notes } = await validate('client', {
      ...CLIENT(),
      'tls.cert': file('short.pem'),
      'tls.key': file('short-key.pem'),
    })
    expect([code, notes]).toEqual([3, expect.stringContaining('its key may be too short')])
  })

  test('a folder in which a client could not create its key file', async () => {
    const key = '/proc/self/inbox-key.pem'
    expect(await validate('client', { ...CLIENT(), 'inbox.key.file': key })).toMatchObject({ code: 3 })
  })

  test('only the given authorities are trusted', async () => {
    const flags = Object.entries({ ...CLIENT(), ca: file('ca.pem') }).flatMap(([name, value]) => [`--${name}`, value])
    expect((await sallyport(['config', 'validate', 'client', ...flags, '--ca-only'])).code).toBe(0)
  })

  test.each(['wss://a.example', 'ws://127.0.0.1:1'])('an empty list of authorities is none: %s', async server => {
    expect(await validate('client', { ...CLIENT(), server, ca: '' })).toMatchObject({ code: 0 })
  })

  test('a key file that a client would create is not created', async () => {
    const { code, notes } = await validate('client', { ...CLIENT(), 'inbox.key.file': file('new-key') })
    expect([code, notes]).toEqual([0, expect.stringContaining('it does not exist yet')])
    expect(existsSync(file('new-key'))).toBe(false)
  })

  test('two routes with the same conditions', async () => {
    const result = await validate('router', { routes: file('twins.yaml') })
    expect(result.code).toBe(3)
    expect(result.notes).toContain(`${file('twins.yaml')}:3:`)
    expect(result.notes).toContain('"a"')
  })

  test('a token command with unbalanced quotes', async () => {
    const { 'token.file': _, ...rest } = CLIENT()
    const result = await validate('client', { ...rest, 'token.command': 'print "token' })
    expect(result.notes).toBe('sallyport: --token.command: the quotes in it do not match\n')
  })
})

describe('certs, keys and token', () => {
  test.each<[string[], number, string]>([
    [
      ['certs', 'client', '--out', 'FOLDER', '--runtime', 'My_Runtime'],
      2,
      'runtime name "My_Runtime" is not a DNS label (a-z, 0-9, and "-" inside; at most 63 characters)',
    ],
    [
      ['certs', 'client', '--out', 'FOLDER', '--runtime', 'demo', '--ca', 'FOLDER/folder'],
      3,
      'cannot read the authority FOLDER/folder/ca.pem: no such file',
    ],
    [
      ['certs', 'init', '--out', 'FOLDER', '--host', 'a.example'],
      3,
      'FOLDER/ca.pem already exists (--force overwrites it)',
    ],
    [['certs', 'init', '--out', 'FOLDER'], 2, '--host is missing: the names that the server is reached by'],
    [
      ['certs', 'init', '--out', 'FOLDER/x', '--host', '*.localhost'],
      2,
      '*.localhost: TLS clients refuse a wildcard directly under a top-level domain; use *.something.localhost',
    ],
    [
      ['certs', 'init', '--out', 'FOLDER/x', '--host', 'a b'],
      2,
      '"a b" is not a host name: give a DNS name, "*." and a DNS name, or an IP address',
    ],
    [['certs', 'show', 'FOLDER/nonsense'], 3, 'FOLDER/nonsense: there is no certificate in it'],
    [['keys', 'create', '--out', 'FOLDER'], 3, 'FOLDER/private.jwk already exists (--force overwrites it)'],
    [
      ['keys', 'create', '--out', 'FOLDER/x', '--alg', 'HS256'],
      2,
      'algorithm "HS256" is not one of EdDSA, ES256, RS256, PS256',
    ],
    [
      ['token', 'create', '--key', 'FOLDER/missing', '--runtime', 'demo'],
      3,
      'cannot read the key FOLDER/missing: no such file',
    ],
    [
      ['token', 'create', '--key', 'FOLDER/jwks.json', '--runtime', 'demo'],
      3,
      'FOLDER/jwks.json is not a private JWK; `sallyport keys create` makes one',
    ],
    [
      ['token', 'create', '--key', 'FOLDER/private.jwk', '--runtime', 'a.b'],
      2,
      'runtime name "a.b" is not a DNS label (a-z, 0-9, and "-" inside; at most 63 characters)',
    ],
    [
      ['token', 'create', '--key', 'FOLDER/private.jwk', '--runtime', 'demo', '--ttl', '1 hour'],
      2,
      '"1 hour" is not a duration such as 90s, 30m, 1h or 90d',
    ],
    [['token', 'inspect', 'FOLDER/nonsense'], 3, 'FOLDER/nonsense: this is not a JWT'],
    [['route', 'test', 'https://a/'], 2, '--routes is missing'],
  ])('%j', async (args, code, message) => {
    const result = await sallyport(args.map(arg => arg.replaceAll('FOLDER', folder)))
    expect(result).toEqual({ code, out: '', notes: `sallyport: ${message.replaceAll('FOLDER', folder)}\n` })
  })
})
