import { describe, expect, test } from 'vitest'
import { COMPONENTS, everySettingName } from '../../../cli/config/components.ts'
import { loadConfig } from '../../../cli/config/load.ts'
import { checkClientConfig, checkRouterConfig, checkServerConfig } from '../../../cli/config/rules.ts'

const everyName = everySettingName()

/** Flags as typed, with `undefined` for one to leave out. */
type Given = Record<string, string | undefined>

function sources(given: Given) {
  const entries = Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const flags = new Map(entries.map(([name, value]) => [name, [value]]))
  return { flags, environment: {}, configFile: undefined, everyName }
}

const server = async (given: Given) => checkServerConfig((await loadConfig(COMPONENTS.server, sources(given))).values)
const client = async (given: Given) => checkClientConfig((await loadConfig(COMPONENTS.client, sources(given))).values)
const router = async (given: Given) => checkRouterConfig((await loadConfig(COMPONENTS.router, sources(given))).values)

const SERVER = {
  domain: 'tunnels.example.com',
  'auth.jwks.file': 'jwks.json',
  'control.tls.cert': 'c.pem',
  'control.tls.key': 'k.pem',
}
const CLIENT = { server: 'wss://connect.example.com', 'token.file': 'token', target: 'http://127.0.0.1:3000' }
const ROUTER = { routes: 'routes.yaml' }
const TLS = { 'public.tls.cert': 'c.pem', 'public.tls.key': 'k.pem' }

describe('server', () => {
  test.each<[string, Given]>([
    ['the least', SERVER],
    [
      'a URL for the key set',
      { ...SERVER, 'auth.jwks.file': undefined, 'auth.jwks.url': 'https://issuer.example/jwks' },
    ],
    ['TLS off loopback', { ...SERVER, ...TLS, 'public.listen': '0.0.0.0:443' }],
    ['plain HTTP off loopback, on purpose', { ...SERVER, 'public.listen': '0.0.0.0:80', 'public.plaintext': 'true' }],
    ['plain HTTP on loopback', { ...SERVER, 'public.listen': '[::1]:80' }],
    ['one address', { domain: 'a.b', 'auth.jwks.file': 'j', ...TLS, 'control.host': 'connect.a.b' }],
    ['control behind a proxy', { domain: 'a.b', 'auth.jwks.file': 'j', 'control.plaintext': 'true' }],
    ['admin off loopback with a token', { ...SERVER, 'admin.listen': '0.0.0.0:9090', 'admin.token.file': 't' }],
    ...['rediss://a:1', 'rediss+sentinel://a:1,b:1/n'].map((directory): [string, Given] => [
      `an authority of the directory, ${directory}`,
      { ...SERVER, directory, 'directory.tls.ca': 'ca.pem' },
    ]),
    [
      'an authority of the forward-auth service',
      { ...SERVER, 'access.forward-auth.url': 'HTTPS://auth.example', 'access.forward-auth.ca': 'ca.pem' },
    ],
    ...['postgres://a@db.example/a', 'postgres://a@127.0.0.1/a?sslmode=verify-full'].map((inbox): [string, Given] => [
      `an authority of the inbox, ${inbox}`,
      { ...SERVER, inbox, 'inbox.tls.ca': 'ca.pem' },
    ]),
    ['one port at two addresses', { ...SERVER, 'public.listen': '127.0.0.2:9090', 'control.listen': '127.0.0.1:0' }],
    ['no admin listener', { ...SERVER, 'public.listen': '127.0.0.1:9090', 'admin.listen': 'off' }],
    ['health checks from anywhere', { ...SERVER, 'health.listen': '0.0.0.0:8086' }],
  ])('%s', async (_, given) => {
    await expect(server(given)).resolves.toBeUndefined()
  })

  test.each<[Given, string]>([
    ...['redis://a:1', 'redis+sentinel://a:1/n'].map((directory): [Given, string] => [
      { ...SERVER, directory, 'directory.tls.ca': 'ca.pem' },
      '--directory.tls.ca needs rediss:// or rediss+sentinel://',
    ]),
    [{ ...SERVER, 'auth.jwks.ca': 'ca.pem' }, '--auth.jwks.ca needs --auth.jwks.url'],
    [{ ...SERVER, 'auth.revocations.ca': 'ca.pem' }, '--auth.revocations.ca needs --auth.revocations.url'],
    [
      { ...SERVER, 'access.jwt.jwks.file': 'j', 'access.jwt.audience': 'a', 'access.jwt.jwks.ca': 'ca.pem' },
      '--access.jwt.jwks.ca needs --access.jwt.jwks.url',
    ],
    [
      { ...SERVER, 'access.forward-auth.url': 'http://auth.example', 'access.forward-auth.ca': 'ca.pem' },
      '--access.forward-auth.ca needs --access.forward-auth.url https://...',
    ],
    ...['sqlite:a.db', 'postgres://a@127.0.0.1/a', 'postgres://a@db.example/a?sslmode=disable'].map(
      (inbox): [Given, string] => [
        { ...SERVER, inbox, 'inbox.tls.ca': 'ca.pem' },
        '--inbox.tls.ca needs PostgreSQL over TLS, such as with ?sslmode=verify-full',
      ],
    ),
    ...['mac.file', 'password.file', 'tls.ca'].map((name): [Given, string] => [
      { ...SERVER, [`inbox.${name}`]: 'a' },
      `--inbox.${name} needs --inbox`,
    ]),
    [
      { ...SERVER, inbox: 'postgres://a:b@c/d' },
      '--inbox: the URL has a password: put it into a file (--inbox.password.file)',
    ],
    [{ ...SERVER, domain: undefined }, '--domain is missing: runtimes are reached as <runtime>.<domain>'],
    [
      { ...SERVER, 'auth.jwks.file': undefined },
      'no key set: give --auth.jwks.file or --auth.jwks.url; without one no token can be verified',
    ],
    [{ ...SERVER, 'auth.jwks.url': 'https://a/b' }, '--auth.jwks.file and --auth.jwks.url cannot be used together'],
    [
      { ...SERVER, 'public.listen': '0.0.0.0:80' },
      '--public.listen 0.0.0.0:80 is not loopback: give --public.tls.cert and --public.tls.key, or --public.plaintext behind a proxy that terminates TLS',
    ],
    [
      { ...SERVER, 'public.listen': '[::]:80' },
      '--public.listen [::]:80 is not loopback: give --public.tls.cert and --public.tls.key, or --public.plaintext behind a proxy that terminates TLS',
    ],
    [{ ...SERVER, 'public.tls.cert': 'c' }, '--public.tls.cert needs --public.tls.key'],
    [{ ...SERVER, 'public.tls.key': 'k' }, '--public.tls.key needs --public.tls.cert'],
    [
      { ...SERVER, 'control.tls.cert': undefined, 'control.tls.key': undefined },
      'the control endpoint has no certificate: give --control.tls.cert and --control.tls.key (or --control.plaintext behind a proxy that terminates TLS)',
    ],
    [{ ...SERVER, 'control.plaintext': 'true' }, '--control.plaintext and --control.tls.cert cannot be used together'],
    [{ ...SERVER, 'inbox.mac.optional': 'true' }, '--inbox.mac.optional needs --inbox.mac.file'],
    [{ ...SERVER, 'control.listen': 'off' }, '--control.listen off needs --control.host: no client could connect'],
    [
      { ...SERVER, 'control.host': 'connect.a.b' },
      '--control.host shares the public TLS listener: give --public.tls.cert',
    ],
    [
      {
        ...SERVER,
        'control.tls.cert': undefined,
        'control.tls.key': undefined,
        'control.plaintext': 'true',
        'control.tls.client-ca': 'ca',
      },
      '--control.tls.client-ca needs TLS on the control endpoint',
    ],
    [
      { ...SERVER, 'public.listen': '127.0.0.1:9090' },
      '--public.listen 127.0.0.1:9090 has the port of --admin.listen (127.0.0.1:9090): give one of them another',
    ],
    [
      { ...SERVER, 'control.listen': '[::]:9090' },
      '--control.listen [::]:9090 has the port of --admin.listen (127.0.0.1:9090): give one of them another',
    ],
    [
      { ...SERVER, 'admin.listen': '0.0.0.0:9090' },
      '--admin.listen 0.0.0.0:9090 is not loopback: give --admin.token.file',
    ],
  ])('%j', async (given, message) => {
    await expect(server(given)).rejects.toMatchObject({ message, exitCode: 3 })
  })
})

describe('a replica', () => {
  const tls = { 'peer.tls.cert': 'c.pem', 'peer.tls.key': 'k.pem', 'peer.tls.ca': 'a.pem' }
  const replica = { ...SERVER, ...tls, directory: 'redis://redis:6379', 'peer.listen': '0.0.0.0:8444' }

  test.each(['10.0.0.7:8444', '[fd00::7]:8444', 'one.replicas:8444'])('can be reached at %s', async advertise => {
    await expect(server({ ...replica, 'peer.advertise': advertise })).resolves.toBeUndefined()
  })

  test.each([':8444', '0.0.0.0:8444', '[::]:8444', '[0:0::0]:8444', 'one.replicas:0'])(
    'cannot be reached at %s',
    async advertise => {
      const problem = /^--peer\.advertise \S+ cannot be dialled/
      await expect(server({ ...replica, 'peer.advertise': advertise })).rejects.toThrow(problem)
    },
  )
})

describe('client', () => {
  test.each<[string, Given]>([
    ['the least', CLIENT],
    ['a command', { ...CLIENT, 'token.file': undefined, 'token.command': 'print-token' }],
    ['routes', { ...CLIENT, target: undefined, routes: 'r.yaml' }],
    ['the preset', { ...CLIENT, target: undefined, preset: 'gitops-runtime' }],
    ['ws on loopback', { ...CLIENT, server: 'ws://127.0.0.1:1,ws://[::1]:1,ws://localhost:1' }],
    ['no authority', { ...CLIENT, ca: '' }],
    ['no authority over ws', { ...CLIENT, server: 'ws://127.0.0.1:1', ca: '' }],
  ])('%s', async (_, given) => {
    await expect(client(given)).resolves.toBeUndefined()
  })

  test.each<[Given, string]>([
    [
      { ...CLIENT, server: undefined },
      '--server is missing: the control endpoint of the tunnel server, wss://host:port',
    ],
    [
      { ...CLIENT, server: 'https://a.b:8443' },
      '--server https://a.b:8443: write wss:// instead of https://: wss://a.b:8443',
    ],
    [
      { ...CLIENT, server: 'ws://a.b:80' },
      '--server ws://a.b:80: ws:// sends the token in the clear and is for loopback only; use wss://',
    ],
    [
      { ...CLIENT, server: 'ws://127.0.0.1.evil.example' },
      '--server ws://127.0.0.1.evil.example: ws:// sends the token in the clear and is for loopback only; use wss://',
    ],
    [
      { ...CLIENT, server: 'ws://localhost:1', 'connect-to': 'a.b:80' },
      '--server ws://localhost:1: ws:// sends the token in the clear and is for loopback only; use wss://',
    ],
    [{ ...CLIENT, 'connect-to': '0.0.0.0:80' }, '--connect-to 0.0.0.0:80 cannot be dialled: give a host and a port'],
    [{ ...CLIENT, 'token.file': undefined }, 'no token: give --token.file or --token.command'],
    [{ ...CLIENT, 'token.command': 'x' }, '--token.file and --token.command cannot be used together'],
    [{ ...CLIENT, server: 'ws://127.0.0.1:1', ca: 'ca.pem' }, '--ca needs --server wss://...'],
    [{ ...CLIENT, 'ca-only': 'true', ca: '' }, '--ca-only needs --ca: no certificate would be trusted'],
    [{ ...CLIENT, 'ca-only': 'true' }, '--ca-only needs --ca: no certificate would be trusted'],
    [
      { ...CLIENT, target: undefined },
      'requests have nowhere to go: give --target, --routes or --preset gitops-runtime',
    ],
    [{ ...CLIENT, routes: 'r' }, 'give only one of --target, --routes or --preset gitops-runtime'],
    [{ ...CLIENT, 'tls.cert': 'c' }, '--tls.cert needs --tls.key'],
  ])('%j', async (given, message) => {
    await expect(client(given)).rejects.toMatchObject({ message, exitCode: 3 })
  })
})

test('authorities that nothing is checked with are named with their place', async () => {
  const given = { ...CLIENT, server: 'ws://127.0.0.1:1', ca: 'ca.pem' }
  const { values } = await loadConfig(COMPONENTS.client, sources(given))
  const check = () => checkClientConfig(values, new Map([['ca', { where: 'client.yaml:3:1 (ca)' }]]))
  expect(check).toThrow('--ca needs --server wss://...; given: client.yaml:3:1 (ca)')
})

describe('router', () => {
  test('the minimum, in plain text and off loopback, as behind an ingress', async () => {
    await expect(router({ ...ROUTER, listen: '0.0.0.0:8080' })).resolves.toBeUndefined()
  })

  test.each<[Given, string]>([
    [{}, 'requests have nowhere to go: give --routes or --preset gitops-runtime'],
    [{ ...ROUTER, preset: 'gitops-runtime' }, 'give only one of --routes or --preset gitops-runtime'],
    [{ ...ROUTER, 'tls.key': 'k' }, '--tls.key needs --tls.cert'],
  ])('%j', async (given, message) => {
    await expect(router(given)).rejects.toMatchObject({ message, exitCode: 3 })
  })
})
