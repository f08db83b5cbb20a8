/**
 * C7: every number that an embedder can pass has a documented meaning or is a TypeError that names it, before anything
 * listens.
 */
import { globSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest'
import {
  createAuthority,
  createClientCertificate,
  createKeys,
  createReplicaCertificate,
  createServerCertificate,
  createToken,
  exportPkcs12,
  writeFiles,
} from '../../certs/index.ts'
import { BACKOFF_LIMITS } from '../../client/dial/backoff.ts'
import { type ClientOptions, connect, createTunnel, diagnose } from '../../client/index.ts'
import { CLIENT_SESSION_LIMITS, CONNECT_LIMITS } from '../../client/limits.ts'
import { DESCRIPTOR, type Limit, type Limits, PORT, rangeOf, readLimit } from '../../protocol/base/limit.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { checkMembers } from '../../protocol/base/members.ts'
import { HTTP_LIMITS, LISTENER_LIMITS } from '../../protocol/http/limits.ts'
import { listen } from '../../protocol/http/listener.ts'
import { createTracer } from '../../protocol/trace/tracer.ts'
import { createForwarder, createRouter, gitopsRuntime, serveRouter } from '../../router/index.ts'
import { UPSTREAM_LIMITS } from '../../router/upstream/upstreams.ts'
import { RevocationStore } from '../../server/auth/revocation-store.ts'
import { StoredWebhooks } from '../../server/inbox/operations.ts'
import { createServer as createTunnelServer } from '../../server/index.ts'
import { DRAIN_TIMES, HOLD_LIMITS, LEASE, SERVER_LIMITS } from '../../server/limits.ts'
import { resolveOptions, type ServerOptions } from '../../server/options.ts'
import { createExporter } from '../../tracing/index.ts'

vi.mock(import('../../protocol/base/members.ts'), async actual => {
  const there = await actual()
  return { ...there, checkMembers: vi.fn(there.checkMembers) }
})

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

type Take = (value: number) => unknown
const TOLERANCE: Limit = { kind: 'share', default: '30', most: '60', zero: 'none', about: 'Seconds.' }
const COOL_DOWN: Limit = { kind: 'duration', default: '10s', zero: 'none', about: 'Between two fetches.' }

const tls = { cert: '', key: '' }
const server = (more: Partial<ServerOptions>) =>
  resolveOptions({
    public: { port: 0 },
    control: { port: 0, tls },
    domains: ['example.com'],
    auth: { jwks: { keys: [] } },
    ...more,
  })
const redis = { url: 'redis://127.0.0.1' }
const authority = await createAuthority()
const peerTls = { cert: '', key: '', ca: authority.certificate }

const client = (more: Partial<ClientOptions>) => {
  const options = { url: 'wss://127.0.0.1:1', token: 'a.b.c', proxy: '', target: () => new Response() }
  const tunnel = createTunnel({ ...options, ...more })
  open.push(() => tunnel.close({ graceMs: 0 }))
}

const routes = { routes: [] }
const router = (more: object) => {
  const made = createRouter({ routes, ...more })
  open.push(() => made.close())
}

/** Tables of options, and a function that uses one of them. */
const GROUPS: [string, Limits, (name: string, value: number) => unknown][] = [
  ['createServer limits.', SERVER_LIMITS, (name, value) => server({ limits: { [name]: value } })],
  ['createServer hold.', HOLD_LIMITS, (name, value) => server({ hold: { [name]: value } })],
  ['createServer ', DRAIN_TIMES, (name, value) => server({ [name]: value })],
  ['createServer directory.', LEASE, (name, value) => server({ directory: { ...redis, [name]: value } })],
  [
    'createServer public.limits.',
    HTTP_LIMITS,
    (name, value) => server({ public: { port: 0, limits: { [name]: value } } }),
  ],
  ['connect ', CONNECT_LIMITS, (name, value) => client({ [name]: value })],
  ['connect limits.', CLIENT_SESSION_LIMITS, (name, value) => client({ limits: { [name]: value } })],
  ['connect backoff.', BACKOFF_LIMITS, (name, value) => client({ backoff: { [name]: value } })],
  ['createRouter ', UPSTREAM_LIMITS, (name, value) => router({ [name]: value })],
]

/** Options outside the tables. */
const SINGLE: [string, Limit, Take][] = [
  ['createServer public.port', PORT, port => server({ public: { port } })],
  ['createServer public.fd', DESCRIPTOR, fd => server({ public: { port: 0, fd } })],
  ['createServer control.port', PORT, port => server({ control: { port, tls } })],
  ['createServer control.fd', DESCRIPTOR, fd => server({ control: { port: 0, fd, tls } })],
  ['createServer peer.port', PORT, port => server({ directory: redis, peer: { port, tls: peerTls } })],
  ['createServer peer.fd', DESCRIPTOR, fd => server({ directory: redis, peer: { port: 0, fd, tls: peerTls } })],
  ['createServer auth.clockToleranceS', TOLERANCE, s => server({ auth: { jwks: { keys: [] }, clockToleranceS: s } })],
  [
    'createServer auth.jwks.coolDownMs',
    COOL_DOWN,
    coolDownMs => server({ auth: { jwks: { url: 'https://a.example', coolDownMs } } }),
  ],
]

const VALUES = [0, 1, -1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53]
/** What is not a number, but compares or adds like one. */
const NO_NUMBERS = ['30', '', true, [30], null] as unknown as number[]
const isIn = (limit: Limit, value: number) => {
  const { least, most } = rangeOf(limit)
  return value >= readLimit(limit, least) && value <= readLimit(limit, most)
}

const rows = [
  ...GROUPS.flatMap(([where, schema, take]) =>
    Object.entries(schema).map(([name, limit]): [string, Limit, Take] => [
      where + name,
      limit,
      value => take(name, value),
    ]),
  ),
  ...SINGLE,
]

describe.each(rows)('C7: %s', (where, limit, take) => {
  const name = where.split(' ')[1]!
  test.each(VALUES)('%s', value => {
    if (isIn(limit, value)) expect(() => take(value)).not.toThrow()
    else expect(() => take(value)).toThrow(new RegExp(`^${name} must be .*from `))
  })

  test.each(NO_NUMBERS)('%j is no number', value => {
    expect(() => take(value)).toThrow(new RegExp(`^${name} must be `))
  })

  test('0 has a meaning or is refused', () => {
    expect(isIn(limit, 0)).toBe(limit.zero !== undefined)
  })
})

/** These listen if the number is good, so only bad ones are tried. */
describe.each([
  ...Object.entries({ ...HTTP_LIMITS }).map(([name, limit]): [string, Limit, object] => [`limits.${name}`, limit, {}]),
  ...Object.entries({ ...LISTENER_LIMITS, ...UPSTREAM_LIMITS }).map(([name, limit]): [string, Limit, object] => [
    name,
    limit,
    {},
  ]),
  ['port', PORT, {}],
  ['fd', DESCRIPTOR, {}],
] as [string, Limit, object][])('C7: serveRouter %s', (name, limit) => {
  test.each([...VALUES.filter(value => !isIn(limit, value)), ...NO_NUMBERS])('%j', async value => {
    const [group, member] = name.split('.') as [string, string?]
    const more = { [group]: member === undefined ? value : { [member]: value } }
    const refusal = expect.objectContaining({ name: 'TypeError', message: expect.stringContaining(`${name} must be `) })
    await expect(serveRouter({ routes, port: 0, ...more })).rejects.toEqual(refusal)
  })
})

test('C7: listen by itself names the limit that it does not know', async () => {
  const limits = { headMS: 1 } as object
  await expect(listen({ port: 0, handler: () => undefined as never, limits })).rejects.toThrow(
    'limits.headMS is unknown',
  )
})

test('C7: serveRouter takes caller limits and upstream limits side by side, and no name is in both', () => {
  const both = Object.keys(LISTENER_LIMITS).filter(name => Object.hasOwn(UPSTREAM_LIMITS, name))
  expect(both).toEqual([])
})

test.each<[string, () => unknown]>([
  ['onExchange', () => server({ onExchange: 5 as never })],
  ['auth.isRevoked', () => server({ auth: { jwks: { keys: [] }, isRevoked: 5 as never } })],
  ['onExchange', () => router({ onExchange: 5 })],
  ['onExchange', () => client({ onExchange: 5 as never })],
])('%s that is no function is refused at the call', (name, call) => {
  expect(call).toThrow(new TypeError(`${name} must be a function, not number`))
})

const inbox = { url: 'sqlite:/dev/null/a' }
const jwt = { jwks: { keys: [] }, audience: 'callers' }
const forwardAuth = { url: 'http://127.0.0.1:1' }

/** Objects of options, with a function that uses one. Each refuses what it does not know, and a type that would switch a guard on or off. */
const OBJECTS: [group: string, misspelt: string, meant: string, take: (more: object) => unknown][] = [
  ['', 'acces', 'access', server],
  ['auth.', 'isuer', 'issuer', more => server({ auth: { jwks: { keys: [] }, ...more } })],
  ['auth.', 'isrevoked', 'isRevoked', more => server({ auth: { jwks: { keys: [] }, ...more } })],
  ['auth.jwks.', 'coolDownMS', 'coolDownMs', more => server({ auth: { jwks: { url: 'https://a.example', ...more } } })],
  ['auth.jwks.', 'fle', 'file', more => server({ auth: { jwks: { file: 'jwks.json', ...more } } })],
  ['auth.revocations.', 'files', 'file', revocations => server({ auth: { jwks: { keys: [] }, revocations } })],
  ['public.', 'tlsfolder', 'tlsFolder', more => server({ public: { port: 0, ...more } })],
  ['public.tls.', 'ocps', 'ocsp', more => server({ public: { port: 0, tls: { ...tls, ...more } } })],
  ['control.tls.', 'crt', 'cert', more => server({ control: { port: 0, tls: { ...tls, ...more } } })],
  ['control.', 'clientCA', 'clientCa', more => server({ control: { port: 0, tls, ...more } })],
  ['cors.', 'origin', 'origins', more => server({ cors: { origins: [], ...more } })],
  ['access.', 'runtime', 'runtimes', more => server({ access: { jwt, ...more } })],
  ['access.jwt.', 'runtimeclaim', 'runtimeClaim', more => server({ access: { jwt: { ...jwt, ...more } } })],
  [
    'access.forwardAuth.',
    'header',
    'headers',
    more => server({ access: { forwardAuth: { ...forwardAuth, ...more } } }),
  ],
  ['directory.', 'usr', 'user', more => server({ directory: { ...redis, ...more } })],
  ['peer.', 'avertise', 'advertise', more => server({ directory: redis, peer: { port: 0, tls: peerTls, ...more } })],
  ['peer.tls.', 'Ca', 'ca', more => server({ directory: redis, peer: { port: 0, tls: { ...peerTls, ...more } } })],
  ['inbox.', 'macs', 'mac', more => server({ inbox: { ...inbox, ...more } })],
  ['inbox.mac.', 'optonal', 'optional', more => server({ inbox: { ...inbox, mac: { file: 'mac', ...more } } })],
  ['hold.', 'tme', 'timeMs', more => server({ hold: more })],
  ['', 'allowCaller', 'allowCallers', client],
  ['on.', 'conected', 'connected', on => client({ on })],
  ['tls.', 'crt', 'cert', more => client({ tls: { ...tls, ...more } })],
  ['', 'onexchange', 'onExchange', router],
  ['', 'trustErors', 'trustErrors', more => createForwarder('http://127.0.0.1:1', more).close()],
  ['', 'eventSource', 'eventSources', gitopsRuntime],
  ['', 'trustedProxys', 'trustedProxies', more => createRouter({ routes }).attach(createServer(), more)],
]

test.each(OBJECTS)('C7: %s%s is unknown', (group, misspelt, meant, take) => {
  const hint = meant === 'timeMs' ? '' : `: did you mean ${meant}?`
  expect(() => take({ [misspelt]: undefined })).toThrow(new TypeError(`${group}${misspelt} is unknown${hint}`))
})

test.each<[string, (more: object) => unknown]>([
  ['ownHosts', server],
  ['reusePort', server],
  ['public.plaintext', plaintext => server({ public: { port: 0, ...plaintext } })],
  ['control.plaintext', more => server({ control: { port: 0, ...more } })],
  ['access.jwt.forward', more => server({ access: { jwt: { ...jwt, ...more } } })],
  ['inbox.plaintext', more => server({ inbox: { ...inbox, ...more } })],
  ['inbox.mac.optional', more => server({ inbox: { ...inbox, mac: { file: 'mac', ...more } } })],
  ['tracing.parentBased', more => server({ tracing: { tracer: createTracer(() => {}), ...more } })],
  ['caOnly', client],
  ['trustErrors', more => createForwarder('http://127.0.0.1:1', more)],
])('C7: %s as text is refused, which would be true', (path, take) => {
  const name = path.split('.').at(-1)!
  expect(() => take({ [name]: 'false' })).toThrow(new TypeError(`${path} must be true or false, not string`))
})

test.each<[string, (more: object) => unknown]>([
  ['domains', server],
  ['trustedProxies', server],
  ['auth.algorithms', more => server({ auth: { jwks: { keys: [] }, ...more } })],
  ['access.runtimes', more => server({ access: { jwt, ...more } })],
  ['allowCallers', client],
  ['inboxKeys', client],
])('C7: %s must be a list', (path, take) => {
  const name = path.split('.').at(-1)!
  expect(() => take({ [name]: 'a' })).toThrow(new TypeError(`${path} must be a list of texts, not string`))
})

test('C7: serveRouter refuses what it does not know', async () => {
  await expect(serveRouter({ routes, port: 0, ...{ trustedProxys: [] } })).rejects.toThrow(
    'did you mean trustedProxies?',
  )
  await expect(serveRouter({ routes, port: 0, http2: 'false' as never })).rejects.toThrow('http2 must be true or false')
  const tls = { cert: '', key: '', ...{ requestcert: true } }
  await expect(serveRouter({ routes, port: 0, tls })).rejects.toThrow(
    'tls.requestcert is unknown: did you mean request',
  )
})

test('C7: null is no text', () => {
  const refusal = new TypeError('healthPath must be text, not null')
  expect(() => server({ healthPath: null as never })).toThrow(refusal)
})

const CERTIFICATES: [string, (more: object) => Promise<unknown>][] = [
  ['createAuthority', more => createAuthority(more)],
  ['createServerCertificate', more => createServerCertificate(authority, { hosts: ['a.example'], ...more })],
  ['createClientCertificate', more => createClientCertificate(authority, { runtime: 'demo', ...more })],
  ['createReplicaCertificate', more => createReplicaCertificate(authority, more)],
]

describe.each(CERTIFICATES)('C7: %s', (_, make) => {
  test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY, ...NO_NUMBERS])('validDays %j', async validDays => {
    await expect(make({ validDays })).rejects.toThrow(/^validDays must be /)
  })
  test.each([Number.NaN, Number.NEGATIVE_INFINITY, -1, Date.UTC(10_000, 0), 1e17, ...NO_NUMBERS])(
    'now %j',
    async now => {
      await expect(make({ now })).rejects.toThrow(/^now must be /)
    },
  )
  test('an unknown member', async () => {
    await expect(make({ validDay: 1 })).rejects.toThrow(new TypeError('validDay is unknown: did you mean validDays?'))
  })
})

test('C7: createToken refuses what it does not know, and no time', async () => {
  const { privateJwk: key } = await createKeys()
  const make = (more: object) => createToken({ key, runtime: 'demo', ...more })
  await expect(make({ certficate: '' })).rejects.toThrow('certficate is unknown: did you mean certificate?')
  for (const now of [Number.NaN, '0', null]) await expect(make({ now })).rejects.toThrow(/^now must be /)
  for (const ttl of [Number.NaN, '', true, [1]]) await expect(make({ ttl })).rejects.toThrow(TypeError)
})

test('C7: writeFiles refuses what it does not know', async () => {
  const file = { path: '/dev/null/a', text: '', secret: true }
  await expect(writeFiles([file], { forced: true } as object)).rejects.toThrow('forced is unknown: did you mean force?')
  await expect(writeFiles([{ ...file, secret: 'no' as never }])).rejects.toThrow('secret must be true or false')
})

const { privateJwk: key, jwks } = await createKeys()
const store = () => new RevocationStore({}, undefined, noLogger, Date.now)
const tracer = createTracer(() => {})
const running = await createTunnelServer({
  public: { port: 0 },
  control: { port: 0, plaintext: true },
  domains: ['example.com'],
  auth: { jwks },
})
const target = { url: 'wss://127.0.0.1:1', token: 'a.b.c', proxy: '', target: () => new Response() }
const tunnel = createTunnel({ ...target, inspect: 'heads' })
const service = await serveRouter({ routes, port: 0 })
const exporting = { url: 'http://127.0.0.1:1', resource: {} }
const exporter = createExporter(exporting)
afterAll(async () => {
  await Promise.all([running.close({ graceMs: 0 }), tunnel.close({ graceMs: 0 }), service.close(), exporter.close()])
})
const webhooks = new StoredWebhooks({} as never)

/** Every function and method that takes an object of options, by its declaration. */
const CALLS: Record<string, (more: object) => unknown> = {
  'createAuthority AuthorityOptions': more => createAuthority(more),
  'createClientCertificate ClientCertificateOptions': more =>
    createClientCertificate(authority, { runtime: 'demo', ...more }),
  'createKeys { alg?: TokenAlgorithm; }': more => createKeys(more),
  'createReplicaCertificate LeafOptions': more => createReplicaCertificate(authority, more),
  'createServerCertificate ServerCertificateOptions': more =>
    createServerCertificate(authority, { hosts: ['a.example'], ...more }),
  'createToken TokenOptions': more => createToken({ key, runtime: 'demo', ...more }),
  'exportPkcs12 Pkcs12Options': more => exportPkcs12({ ...authority, password: 'a', ...more }),
  'writeFiles WriteOptions': more => writeFiles([], more),
  'connect ClientOptions': more => connect({ ...target, ...more }),
  'createTunnel ClientOptions': client,
  'diagnose ClientOptions': more => diagnose({ ...target, ...more }),
  'diagnose { deep?: boolean; }': more => diagnose(target, more),
  'Inspector.replay ReplayOptions': more => tunnel.inspector!.replay('a', more),
  "Tunnel.setTrust Pick<ClientOptions, 'ca' | 'tls'>": more => tunnel.setTrust(more),
  'Tunnel.close CloseOptions': more => tunnel.close(more),
  'createForwarder ForwarderOptions': more => createForwarder('http://127.0.0.1:1', more),
  'createRouter RouterOptions': router,
  'gitopsRuntime GitopsRuntimeOptions': gitopsRuntime,
  'serveRouter RouterServiceOptions': more => serveRouter({ routes, port: 0, ...more }),
  'Router.reload RouteTable': more => service.router.reload({ ...routes, ...more }),
  'Router.match MatchQuestion': more => service.router.match({ url: '/', ...more }),
  'Router.attach AttachOptions': more => service.router.attach(createServer(), more),
  'Router.close GraceOptions': more => service.router.close(more),
  'RouterService.reload RouteTable': more => service.reload({ ...routes, ...more }),
  "RouterService.setTls NonNullable<ListenerOptions['tls']>": more => service.setTls({ ...tls, ...more }),
  'RouterService.close GraceOptions': more => service.close(more),
  'createServer ServerOptions': more => server(more),
  'Server.fetch CallOptions': more => running.fetch('demo', '/', more),
  'Server.dispatcher CallOptions': more => running.dispatcher('demo', more),
  'Server.attach': more => (running.attach as (...all: object[]) => unknown)(createServer(), more),
  'Server.revoke Revocation': more => running.revoke({ runtime: 'demo', ...more }),
  'Server.drainSession DrainOptions': more => running.drainSession('a', more),
  'Server.drainRuntime DrainOptions': more => running.drainRuntime('demo', more),
  'Server.drain GraceOptions': more => running.drain(more),
  'Server.reload { publicTls?: TlsFiles; controlTls?: TlsFiles; }': more => running.reload(more),
  'Server.close GraceOptions': more => running.close(more),
  'InboxOperations.list Filter': more => webhooks.list({ limit: 1, ...more }),
  'InboxOperations.replay Filter': more => webhooks.replay({ limit: 1, ...more }),
  'InboxOperations.drop Filter': more => webhooks.drop({ limit: 1, ...more }),
  'createExporter ExporterOptions': more => createExporter({ ...exporting, ...more }),
  'Exporter.close GraceOptions': more => exporter.close(more),
}

/** Without one of their members, these reach more. */
test.each([
  ...['list', 'replay', 'drop'].flatMap(name =>
    ['runtime', 'lane', 'state', 'since', 'id', 'reason', 'before', 'limit'].map(member => [
      `InboxOperations.${name} Filter`,
      member,
    ]),
  ),
  ...['tokenId', 'runtime', 'issuedBefore', 'until'].map(member => ['Server.revoke Revocation', member]),
  ['Server.fetch CallOptions', 'caller'],
  ['Server.dispatcher CallOptions', 'caller'],
] as [string, string][])('C7: %s refuses %s: undefined, which would be as good as left out', async (call, member) => {
  const refusal = expect.objectContaining({
    name: 'TypeError',
    message: expect.stringMatching(new RegExp(`^${member} must be given or left out: undefined would `)),
  })
  await expect(Promise.resolve({ [member]: undefined }).then(CALLS[call])).rejects.toEqual(refusal)
})

/** Objects of options within those. */
const INNER: [group: string, take: (more: object) => unknown][] = [
  ['edits.', edits => tunnel.inspector!.replay('a', { edits })],
  ['routes.', more => serveRouter({ routes: { file: '/dev/null/a', ...more }, port: 0 })],
]

/** What uses each object of options, and what to give first: with an unknown member, nothing is done. */
const TAKEN: [group: string, take: (more: object) => unknown, first?: object][] = [
  ...Object.values(CALLS).map((take): [string, typeof take, object] => ['', take, { misspelt: undefined }]),
  ...INNER,
  ...OBJECTS.map(([group, , , take]): [string, typeof take] => [group, take]),
  ...CERTIFICATES.map(([, make]): [string, typeof make] => ['', make]),
  ['tracing.', more => server({ tracing: { tracer, ...more } })],
  ['', more => serveRouter({ routes, port: 0, ...more }).then(made => made.close())],
  ['tls.', more => serveRouter({ routes, port: 0, tls: { ...tls, ...more } })],
  ['', more => createToken({ key, runtime: 'demo', ...more })],
  ['', more => writeFiles([], more)],
  ['', more => writeFiles([{ path: '/dev/null/a', text: '', secret: true, ...more }])],
  ['', more => store().add({ runtime: 'demo', ...more })],
]

/** All tables of members that a call uses for the group. */
async function tablesOf(group: string, take: (more: object) => unknown, first: object = {}): Promise<object[]> {
  vi.mocked(checkMembers).mockClear()
  await Promise.resolve(first)
    .then(take)
    .catch(() => {})
  const calls = vi.mocked(checkMembers).mock.calls.filter(([name]) => name === group.replace(/\.$/, ''))
  return calls.map(([, , members]) => members)
}

const seen = new Set<object>()
const members: [path: string, kind: string, take: (value: unknown) => unknown][] = []
for (const [group, take, first] of TAKEN) {
  for (const table of await tablesOf(group, take, first)) {
    if (seen.has(table)) continue
    seen.add(table)
    for (const [name, kind] of Object.entries(table))
      members.push([group + name, kind, value => take({ [name]: value })])
  }
}

describe('C7: no member of any object of options takes', () => {
  test.each(members)('null for %s, which would be as good as absent', async (path, _, take) => {
    const refusal = expect.objectContaining({ name: 'TypeError', message: expect.stringContaining(`${path} must be`) })
    await expect(Promise.resolve(null).then(take)).rejects.toEqual(refusal)
  })

  test.each(members)('another type for %s (%s)', async (path, kind, take) => {
    const refusal = expect.objectContaining({
      name: 'TypeError',
      message: kind === 'any' ? expect.any(String) : expect.stringContaining(path),
    })
    await expect(Promise.resolve(kind === 'boolean' ? 5 : true).then(take)).rejects.toEqual(refusal)
  })
})

test('C7: a member is not inherited, so that no copy of the options loses it', () => {
  class Auth {
    issuer = 'https://a.test'
    audience = 'sallyport'
    isRevoked(): boolean {
      return true
    }
  }
  expect(() => server({ auth: new Auth() as never })).toThrow('auth.isRevoked must be a member of the object itself')
  const options = Object.create({ access: {} }) as object
  expect(() => resolveOptions(options as never)).toThrow('access must be a member of the object itself')
})

test('C7: the members above are those of all tables', () => {
  const files = globSync('{certs,client,protocol,router,server,tracing}/**/*.ts')
  const declared = files.flatMap(file => [...readFileSync(file, 'utf8').matchAll(/^(?:export )?const \w+: Members</gm)])
  const named = [...seen].filter(table => Object.keys(table).length > 0)
  expect(named.length).toBeGreaterThanOrEqual(declared.length)
})

test.each<[string, () => unknown]>([
  ['createServer', () => createTunnelServer(undefined as never)],
  ['createTunnel', () => createTunnel(undefined as never)],
  ['connect', () => connect(undefined as never)],
  ['diagnose', () => diagnose(undefined as never)],
  ['createRouter', () => createRouter(undefined as never)],
  ['serveRouter', () => serveRouter(undefined as never)],
  ['createToken', () => createToken(undefined as never)],
])('C7: %s without options says so', async (_, call) => {
  const refusal = new TypeError('the options must be an object, not undefined')
  await expect(Promise.resolve().then(call)).rejects.toEqual(refusal)
})

test('C7: an empty list of rules is not taken for none', () => {
  expect(() => server({ access: [] })).toThrow('access is empty')
  expect(() => server({ domains: [] })).toThrow('domains is empty')
  expect(() => server({ domains: [], ownHosts: true })).not.toThrow()
})

test.each<[string, () => unknown]>([
  ['seconds', () => Date.now() / 1000],
  ['microseconds', () => Date.now() * 1000],
  ['times since the start', () => performance.now()],
  ['a text', Date],
  ['a Date', () => new Date()],
  ['NaN', () => Number.NaN],
  ['nothing', () => {}],
])('C7: a clock of %s is refused', (_, clock) => {
  expect(() => server({ clock: clock as never })).toThrow(/^clock must return the time in ms since 1970/)
})

const remote = { url: 'https://a.example' }
describe.each<[string, (ca: never) => unknown]>([
  ['auth.jwks.ca', ca => server({ auth: { jwks: { ...remote, ca } } })],
  ['auth.revocations.ca', ca => server({ auth: { jwks: { keys: [] }, revocations: { ...remote, ca } } })],
  ['access.jwt.jwks.ca', ca => server({ access: { jwt: { ...jwt, jwks: { ...remote, ca } } } })],
  ['access.forwardAuth.ca', ca => server({ access: { forwardAuth: { ...forwardAuth, ca } } })],
  ['access.clientCa', clientCa => server({ public: { port: 0, tls }, access: { clientCa } })],
  ['control.clientCa', clientCa => server({ control: { port: 0, tls, clientCa } })],
  ['control.tls.ca', ca => server({ control: { port: 0, tls: { ...tls, ca } } })],
  ['public.tls.ca', ca => server({ public: { port: 0, tls: { ...tls, ca } } })],
  ['peer.tls.ca', ca => server({ directory: redis, peer: { port: 0, tls: { ...peerTls, ca } } })],
  ['directory.ca', ca => server({ directory: { url: 'rediss://127.0.0.1', ca } })],
  ['inbox.ca', ca => server({ inbox: { url: 'postgres://a@127.0.0.1/a', ca } })],
  ['ca', ca => client({ ca })],
  ['tls.ca', ca => serveRouter({ routes, port: 0, tls: { ...tls, ca } })],
])('C7: %s without a certificate, which would mean all authorities of the system:', (name, take) => {
  test.each(['', 'a', [], [''], Buffer.alloc(0)])('%j', async ca => {
    const message = expect.stringMatching(new RegExp(`^${name} has no (readable )?certificate`))
    await expect(Promise.resolve(ca as never).then(take)).rejects.toEqual(expect.objectContaining({ message }))
  })
})

const ca = authority.certificate
const sentinels = { url: 'redis+sentinel://127.0.0.1/name' }
const clear = { url: 'ws://127.0.0.1:1' }
/** Each `ca`, with what makes its connection one without TLS. */
const IN_CLEAR: [path: string, needed: string, take: () => unknown][] = [
  ['directory.ca', 'needs rediss:', () => server({ directory: { ...redis, ca } })],
  ['directory.ca', 'needs rediss:', () => server({ directory: { ...sentinels, ca } })],
  ['access.forwardAuth.ca', 'needs an https URL', () => server({ access: { forwardAuth: { ...forwardAuth, ca } } })],
  ['inbox.ca', 'needs PostgreSQL over TLS', () => server({ inbox: { url: 'postgres://a@127.0.0.1/a', ca } })],
  ['inbox.ca', 'needs PostgreSQL over TLS', () => server({ inbox: { url: 'postgres:///a?user=a&host=/run', ca } })],
  [
    'inbox.ca',
    'needs PostgreSQL over TLS',
    () => server({ inbox: { url: 'postgres://a@db.example/a?sslmode=disable', ca } }),
  ],
  ['inbox.ca', 'ca are for PostgreSQL only', () => server({ inbox: { url: 'sqlite:a.db', ca } })],
  ['auth.revocations.ca', 'needs auth.rev', () => server({ auth: { jwks: { keys: [] }, revocations: { ca } } })],
  ['auth.jwks.ca', 'must be an https URL', () => server({ auth: { jwks: { url: 'http://a.example', ca } } })],
  ['auth.jwks.ca', 'ca is unknown', () => server({ auth: { jwks: { file: 'a', ...{ ca } } } })],
  [
    'access.jwt.jwks.ca',
    'must be an https URL',
    () => server({ access: { jwt: { ...jwt, jwks: { url: 'http://a.example', ca } } } }),
  ],
  ['access.clientCa', 'needs public.tls', () => server({ access: { clientCa: ca } })],
  ['control.clientCa', 'cannot be used', () => server({ control: { port: 0, plaintext: true, clientCa: ca } })],
  ['ca', 'needs a wss URL', () => client({ ...clear, ca })],
  [
    'ca',
    'needs a wss URL',
    () => {
      const tunnel = createTunnel({ ...target, ...clear })
      open.push(() => tunnel.close({ graceMs: 0 }))
      tunnel.setTrust({ ca })
    },
  ],
]

test.each(IN_CLEAR)('C7: %s where nothing is encrypted: %s', async (_, needed, take) => {
  await expect(Promise.resolve().then(take)).rejects.toThrow(needed)
})

test('C7: no authority is missing above, unless it stands beside a certificate', () => {
  const all = members
    .map(([path]) => path)
    .filter(path => /(?:^|\.)(?:ca|clientCa)$/.test(path) && !path.includes('tls.ca'))
  expect(IN_CLEAR.map(([path]) => path)).toEqual(expect.arrayContaining(all))
})

describe('C7: new certificates are refused', () => {
  test.each([
    ['publicTls.ca would let in callers', { publicTls: { ...tls, ca } }],
    ['controlTls: the control endpoint has no TLS', { controlTls: tls }],
  ])('%s', async (problem, fresh) => {
    const { certificate: cert, key } = await createServerCertificate(authority, { hosts: ['a.example'] })
    const encrypted = await createTunnelServer({
      public: { port: 0, tls: { cert, key } },
      control: { port: 0, plaintext: true },
      domains: ['example.com'],
      auth: { jwks },
    })
    open.push(() => encrypted.close({ graceMs: 0 }))
    await expect(encrypted.reload(fresh)).rejects.toThrow(problem)
  })

  test('where there is no TLS', async () => {
    await expect(running.reload({ publicTls: tls })).rejects.toThrow('publicTls: the public listener has no TLS')
  })
})

test.each<[string, () => unknown]>([
  ['access.jwt.audience is required', () => server({ access: { jwt: { jwks: { keys: [] } } as never } })],
  ['access.jwt.jwks must be', () => server({ access: { jwt: { audience: 'a' } as never } })],
  ['auth.jwks must be', () => server({ auth: { jwks: {} as never } })],
  ['control.clientCa and tls.ca', () => server({ control: { port: 0, tls: { ...tls, ca }, clientCa: ca } })],
  [
    'control.proxyProtocol needs an address',
    () => resolveOptions({ control: { proxyProtocol: ['10.0.0.0/8'] }, domains: ['a.b'], auth: { jwks } }),
  ],
])('C7: %s', (problem, take) => {
  expect(take).toThrow(problem)
})

test.each([null, '', 'nobody', ['203.0.113.9']])('C7: a caller that is %j is not 127.0.0.1', async caller => {
  const options = { caller: caller as never }
  await expect(running.fetch('demo', '/', options)).rejects.toThrow(/^caller /)
})

/** A type whose values are no options: what is sent or stored, what is called, and what others have made. */
const NO_OPTIONS =
  /^(?:string|number|boolean|unknown|object|\w+ \| \w+.*|typeof Api|Api\.\w+|Name|Environment|readonly .*|\(.*|Request.*|HttpServer|Logger|Handler|CertificateAndKey|DirectoryListener|Registration|SpanKind|SpanContext.*|AttributeValue|FinishedSpan|Socket)$/

/** `Owner.method Type` of each parameter in these declarations that may be an object of options. */
function optionsIn(text: string): string[] {
  const declarations = text.replaceAll(/\/\*\*[\s\S]*?\*\//g, '').split(/\n(?=\S)(?!\})/)
  return declarations.flatMap(declaration => {
    const [, owner, name] = /^(?:export )?(?:interface (\w+)|function (\w+))/.exec(declaration) ?? []
    if (owner === undefined && name === undefined) return []
    const signatures = declaration.matchAll(
      /^(?:function|export function| +) ?(\w+)(?:<.*?>)?\(([\s\S]*?)\)(?:: .*)?;?$/gm,
    )
    return [...signatures].flatMap(([, method, parameters = '']) =>
      typesIn(parameters.replaceAll(/\s+/g, ' ')).flatMap(type =>
        NO_OPTIONS.test(type) ? [] : [`${owner === undefined ? '' : `${owner}.`}${method} ${type}`],
      ),
    )
  })
}

function typesIn(parameters: string): string[] {
  const types = parameters.matchAll(/(?:^|, )(?:\w+|\{[^}]*\})\??: ((?:\{[^}]*\}|<[^>]*>|\([^)]*\)|[^,])+)/g)
  return [...types].map(([, type = '']) => type)
}

/** Those of `protocol` are for each stream, and what they are given comes from the wire. */
test('C7: no function or method takes options that are not in the table', () => {
  const pages = globSync('docs/api/*.md', { exclude: ['docs/api/protocol.md'] })
  const published = pages.flatMap(page =>
    [...readFileSync(page, 'utf8').matchAll(/^```ts\n([\s\S]*?)^```$/gm)].flatMap(([, code = '']) => optionsIn(code)),
  )
  const handed = ['server/inbox/operations.ts'].flatMap(file => optionsIn(readFileSync(file, 'utf8')))
  const found = [...published, ...handed].map(each => each.replace(/\{(?: readonly)? graceMs\?: .*/, 'GraceOptions'))
  expect(found.length).toBeGreaterThan(30)
  expect(found.filter(each => !Object.hasOwn(CALLS, each))).toEqual([])
})

test.each(Object.entries(CALLS))('C7: %s refuses a member that it does not know', async (_, take) => {
  const refusal = expect.objectContaining({
    message: expect.stringMatching(/misspelt.* is unknown|unknown key.*misspelt/),
  })
  await expect(Promise.resolve({ misspelt: 1 }).then(take)).rejects.toEqual(refusal)
})

test.each(INNER)('C7: a member of %s that is unknown is refused', async (group, take) => {
  await expect(Promise.resolve({ misspelt: 1 }).then(take)).rejects.toThrow(`${group}misspelt is unknown`)
})

test('C7: public.tls.ca, which would ask callers for a certificate and take them without one', () => {
  const withAuthorities = { ...tls, ca: authority.certificate }
  expect(() => server({ public: { port: 0, tls: withAuthorities } })).toThrow('set access.clientCa')
})

test('C7: serveRouter with other certificates, too', async () => {
  const service = await serveRouter({ routes, port: 0 })
  open.push(() => service.close())
  expect(() => service.setTls({ ca: '' })).toThrow('tls.ca has no readable certificate')
  expect(() => service.setTls({ ...tls, Ca: '' } as never)).toThrow('tls.Ca is unknown: did you mean ca?')
})

test.each<[string, string, () => unknown]>([
  ['control.tlsMin', 'must be TLSv1.2', () => server({ control: { port: 0, tls, tlsMin: '1.2' as never } })],
  ['tlsMin', 'must be TLSv1.2', () => client({ tlsMin: 'TLSv1' as never })],
  ['tls.minVersion', 'must be TLSv1.2', () => serveRouter({ routes, port: 0, tls: { ...tls, minVersion: 'TLSv1.1' } })],
  ['logger', 'must have the functions', () => client({ logger: {} as never })],
  ['namespaces', 'is not a name', () => gitopsRuntime({ namespaces: ['*'] })],
  ['eventSources', 'is not a name', () => gitopsRuntime({ eventSources: ['a.b'] })],
  [
    'allow.ns',
    'undefined would allow all',
    () =>
      router({
        routes: {
          routes: [{ name: 'a', match: { path: '/{ns}' }, target: 'http://a:1', allow: { ns: undefined as never } }],
        },
      }),
  ],
])('C7: a bad %s %s', async (name, text, call) => {
  const message = expect.stringMatching(new RegExp(`${name}.*${text}`, 's'))
  await expect(Promise.resolve().then(call)).rejects.toEqual(expect.objectContaining({ message }))
})

describe('C7: what was given instead of a path or an address is not quoted:', () => {
  const { d } = key
  const jwt = `eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJkZW1vIn0.${d}`
  test.each<[string, () => unknown]>([
    ['a key as tls.key', () => server({ public: { port: 0, tls: { ...tls, key: { file: authority.key } } } })],
    ['a private JWK as auth.jwks', () => server({ auth: { jwks: { file: JSON.stringify(key) } } })],
    ['a token as url', () => client({ url: jwt })],
    ['a token as public.url', () => server({ public: { port: 0, url: jwt } })],
    ['a token as runtime', () => createToken({ key, runtime: jwt })],
    ['a token as the runtime of a revocation', () => store().add({ runtime: jwt })],
  ])('%s', async (_, call) => {
    const error = await Promise.resolve()
      .then(call)
      .catch((error: unknown) => error)
    expect(error).toBeInstanceOf(TypeError)
    expect(String(error)).not.toContain(d)
    expect(String(error)).not.toMatch(/PRIVATE KEY|eyJ/)
  })
})
