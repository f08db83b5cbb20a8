import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createKeys } from '../../certs/index.ts'
import { sallyport } from './run.ts'

let folder: string
const file = (name: string) => join(folder, name)

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-commands-'))
  await sallyport(['keys', 'create', '--out', file('keys')])
  await sallyport([
    'certs',
    'init',
    '--out',
    file('certs'),
    '--host',
    'tunnels.example.com',
    '*.tunnels.example.com',
    '::1',
  ])
})
afterAll(() => rmSync(folder, { recursive: true }))

describe('certs', () => {
  test('init writes four files, secrets 0600, and show describes them', async () => {
    for (const [name, mode] of [
      ['ca.pem', 0o644],
      ['ca-key.pem', 0o600],
      ['server.pem', 0o644],
      ['server-key.pem', 0o600],
    ] as const) {
      expect(statSync(file(`certs/${name}`)).mode & 0o777).toBe(mode)
    }
    const { out } = await sallyport(['certs', 'show', file('certs/server.pem')])
    expect(out).toContain('names    DNS:tunnels.example.com, DNS:*.tunnels.example.com, IP Address:0:0:0:0:0:0:0:1')
    expect(out).toContain('use      serverAuth')
  })

  test('client uses the authority of --ca, and export creates a PKCS#12 file', async () => {
    const made = await sallyport([
      'certs',
      'client',
      '--out',
      file('clients'),
      '--ca',
      file('certs'),
      '--runtime',
      'demo',
    ])
    expect(made).toEqual({ code: 0, out: `${file('clients/demo.pem')}\n${file('clients/demo-key.pem')}\n`, notes: '' })
    const { out } = await sallyport(['certs', 'show', file('clients/demo.pem'), '--json'])
    expect(JSON.parse(out)).toMatchObject([{ runtime: 'demo', usages: ['clientAuth'], authority: false }])
    writeFileSync(file('password'), 'open sesame\n')
    const p12 = file('demo.p12')
    const args = [
      'certs',
      'export',
      '--cert',
      file('clients/demo.pem'),
      '--p12',
      p12,
      '--password.file',
      file('password'),
    ]
    expect(await sallyport(args)).toMatchObject({ code: 0, out: `${p12}\n` })
    expect(statSync(p12).mode & 0o777).toBe(0o600)
    expect((await sallyport(args)).code).toBe(3)
  })

  test('server renews its certificate with the existing authority', async () => {
    const before = readFileSync(file('certs/server.pem'), 'utf8')
    const args = ['certs', 'server', '--out', file('certs'), '--host', 'b.example', '--force']
    expect((await sallyport(args)).code).toBe(0)
    expect(readFileSync(file('certs/server.pem'), 'utf8')).not.toBe(before)
  })
})

describe('token', () => {
  const create = (...more: string[]) =>
    sallyport(['token', 'create', '--key', file('keys/private.jwk'), '--runtime', 'demo', ...more])

  test('create prints only the token on stdout, and its expiry on stderr', async () => {
    const { out, notes } = await create('--ttl', '90s', '--audience', 'edge', '--issuer', 'me')
    const jwks = JSON.parse(readFileSync(file('keys/jwks.json'), 'utf8'))
    const { payload } = await jwtVerify(out.trim(), createLocalJWKSet(jwks), { audience: 'edge', issuer: 'me' })
    expect(payload.exp! - payload.iat!).toBe(90)
    expect(out).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+\n$/)
    expect(notes).toMatch(/^token for demo, valid until 20\d\d-.*Z\n$/)
  })

  test('--out replaces a file in one step, 0600, and stdout stays empty', async () => {
    writeFileSync(file('token'), 'old', { mode: 0o644 })
    const before = statSync(file('token')).ino
    expect((await create('--out', file('token'))).out).toBe('')
    expect(statSync(file('token')).mode & 0o777).toBe(0o600)
    expect(statSync(file('token')).ino).not.toBe(before)
    expect((await sallyport(['token', 'inspect', file('token')])).out).toContain('runtime  demo\n')
  })

  test('inspect reads stdin, and shows what somebody else wrote as plain text', async () => {
    const { out: token } = await create()
    expect((await sallyport(['token', 'inspect'], { stdin: token })).out).toContain('audience sallyport\n')
    expect((await sallyport(['token', 'inspect', '-'], { stdin: token })).out).toMatch(
      /ends {5}.*\(in (1 h|59 min \d+ s)\)/,
    )
    const claims = Buffer.from(JSON.stringify({ sub: '\u001b[31mred' })).toString('base64url')
    const forged = await sallyport(['token', 'inspect'], { stdin: `eyJhbGciOiJub25lIn0.${claims}.x` })
    expect(forged.out).toContain('runtime  ?[31mred\n')
    expect(forged.out).toContain('problem  its algorithm is not accepted\n')
  })

  test('keys of every algorithm', async () => {
    for (const alg of ['ES256', 'RS256', 'PS256']) {
      expect((await sallyport(['keys', 'create', '--out', file(alg), '--alg', alg])).code).toBe(0)
      expect(JSON.parse(readFileSync(file(`${alg}/jwks.json`), 'utf8')).keys[0].alg).toBe(alg)
    }
  })
})

describe('own input does not control the terminal:', () => {
  const evil = '\x1b[2J\x9b31m'

  test.each(['route', 'setting', 'key'])('a %s', async kind => {
    const routes = 'routes: [{ name: "x", match: { path: "/a/{name}" }, target: "http://127.0.0.1:1" }]\n'
    writeFileSync(file('captures.yaml'), routes)
    const args = {
      route: ['route', 'test', 'https://a/a/%9b31m', '--routes', file('captures.yaml')],
      setting: [
        'config',
        'print',
        'client',
        '--server',
        'wss://h',
        '--token.file',
        `a${evil}b`,
        '--target',
        'http://h',
      ],
      key: ['keys', 'retire', '--jwks', file('evil-keys.json'), '--kid', `k${evil}`],
    }[kind]!
    if (kind === 'key') {
      const { jwks } = await createKeys()
      const keys = [{ ...jwks.keys[0]!, kid: `k${evil}` }, ...(await createKeys()).jwks.keys]
      writeFileSync(file('evil-keys.json'), JSON.stringify({ keys }))
    }
    const { out, notes } = await sallyport(args)
    expect(out + notes).not.toMatch(/(?!\n)\p{Cc}/u)
    expect(out + notes).toMatch(/\?31m/)
  })
})

describe('route test', () => {
  const PRESET = ['--preset', 'gitops-runtime', '--preset.namespaces', 'argo-events']
  const ask = (url: string, ...more: string[]) => sallyport(['route', 'test', url, ...PRESET, ...more])

  test('prints the route, what it captured, the target and the path', async () => {
    const { code, out } = await ask('https://demo.example/webhooks/argo-events/github/push?a=1', '--method', 'POST')
    expect(code).toBe(0)
    expect(out).toContain('route    webhooks\n')
    expect(out).toContain('captures namespace=argo-events, eventSource=github\n')
    expect(out).toContain('target   http://github-eventsource-svc.argo-events.svc.cluster.local:80\n')
    expect(out).toContain('path     /webhooks/argo-events/github/push?a=1\n')
  })

  test('says why there is none', async () => {
    const { code, out } = await ask('https://demo.example/webhooks/kube-system/github')
    expect(code).toBe(1)
    expect(out).toContain('allow.namespace is argo-events, and not "kube-system"')
    expect((await ask('https://demo.example/nothing')).out).toContain('code     no-route\n')
  })

  test('as JSON, from a file', async () => {
    writeFileSync(
      file('routes.yaml'),
      'routes:\n  - { name: a, match: { path: /a, headers: { x-k: v } }, target: "http://a:1" }\n',
    )
    const args = ['route', 'test', '/a', '--routes', file('routes.yaml'), '--json']
    expect(JSON.parse((await sallyport([...args, '--header', 'X-K: v'])).out)).toMatchObject({
      route: 'a',
      target: 'http://a:1',
    })
    expect((await sallyport(args)).code).toBe(1)
  })

  test('from the configuration of a client or a router, unless a flag says otherwise', async () => {
    for (const name of ['a', 'b']) {
      writeFileSync(file(`${name}.yaml`), `routes: [{ name: ${name}, match: { path: / }, target: "http://a:1" }]\n`)
    }
    writeFileSync(file('client.yaml'), `server: [wss://connect.example]\nroutes: ${file('a.yaml')}\n`)
    writeFileSync(file('router.yaml'), `listen: 127.0.0.1:1\nroutes: ${file('b.yaml')}\n`)
    writeFileSync(file('target.yaml'), 'target: http://a:1\n')
    const test = (...args: string[]) => sallyport(['route', 'test', '/x', ...args])
    expect((await test('--config', file('client.yaml'))).out).toContain('route    a\n')
    expect((await test('--config', file('router.yaml'))).out).toContain('route    b\n')
    expect((await test('--config', file('client.yaml'), '--routes', file('b.yaml'))).out).toContain('route    b\n')
    expect(await test('--config', file('target.yaml'))).toMatchObject({
      code: 2,
      notes: expect.stringContaining('--routes'),
    })
  })
})

describe('config', () => {
  test('print shows each value with its source, and masks secrets', async () => {
    writeFileSync(file('client.yaml'), 'connections: 3\n')
    const { out } = await sallyport(
      ['config', 'print', 'client', '--config', file('client.yaml'), '--target', 'http://a:1'],
      {
        environment: {
          SALLYPORT_PROXY: 'http://user:password@proxy:3128',
          SALLYPORT_TOKEN_FILE: '/t',
          SALLYPORT_TOKEN_COMMAND: 'get --pass hidden',
        },
      },
    )
    const rows = new Map(out.split('\n').map(line => [line.split(/ {2,}/)[0], line.split(/ {2,}/).slice(1)]))
    expect(rows.get('target')).toEqual(['http://a:1', 'flag --target'])
    expect(rows.get('token.file')).toEqual(['/t', 'environment SALLYPORT_TOKEN_FILE'])
    expect(rows.get('connections')).toEqual(['3', `file ${file('client.yaml')}:1:1 (connections)`])
    expect(rows.get('admin.listen')).toEqual(['127.0.0.1:9091', 'default'])
    expect(rows.get('tls.cert')).toEqual(['-', 'not set'])
    expect(rows.get('token.command')).toEqual(['***', 'environment SALLYPORT_TOKEN_COMMAND'])
    expect(out).not.toMatch(/password|hidden/)
    expect(rows.get('proxy')![0]).toBe('http://***@proxy:3128')
  })

  test.each(['server', 'client', 'router'])(
    'schema of the %s is closed and describes each setting',
    async component => {
      const schema = JSON.parse((await sallyport(['config', 'schema', component])).out)
      expect(schema).toMatchObject({ title: `sallyport ${component}`, type: 'object', additionalProperties: false })
      expect(schema.properties.admin.properties.token.properties.file.description).toContain('bearer token')
    },
  )
})
