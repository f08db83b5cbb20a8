/** security.md, C7: what a peer must be able to read is checked on entry, and durations have a maximum. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { embedRouter } from '../../cli/service/embedded-router.ts'
import { sessionStatus } from '../../cli/service/server-lifecycle.ts'
import { createTunnel, type Tunnel } from '../../client/index.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { parseControl } from '../../protocol/wire/control.ts'
import { createRouter, type RouteTable } from '../../router/index.ts'
import { parseRoutes } from '../../router/table-file.ts'
import { createServer } from '../../server/index.ts'
import type { Server } from '../../server/server.ts'
import { sallyport } from '../cli/run.ts'
import { call, DOMAIN, dial, hanging, makeWorld, startServer, token } from '../server/fixture.ts'
import { eventually } from '../support/until.ts'

let folder: string
const open: (() => unknown)[] = []
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-c7-'))
})
afterEach(async () => {
  vi.useRealTimers()
  for (const close of open.splice(0).reverse()) await close()
  rmSync(folder, { recursive: true })
})

const origin = (i: number) => `https://ui-${i}.example.com`
const many = (count: number, of: (i: number) => string) =>
  `[${Array.from({ length: count }, (_, i) => of(i)).join(', ')}]`
const route = (name: string, path: string, cors: string) =>
  `  - { name: ${name}, match: { path: ${JSON.stringify(path)} }, answer: { body: ok }, cors: { ${cors} } }\n`
const one = (cors: string, path = '/') => `routes:\n${route('r', path, cors)}`
const rules = (count: number, cors: string) =>
  `routes:\n${Array.from({ length: count }, (_, i) => route(`r${i}`, `/r${i}`, cors)).join('')}`
const UI = 'origins: ["https://ui.example.com"]'

/** Tables that do not fit into any hello, each beside the largest one that does. */
const TABLES: readonly (readonly [string, string, string, string])[] = [
  ['65 origins', one(`origins: ${many(65, origin)}`), 'routes.yaml:2:', one(`origins: ${many(64, origin)}`)],
  [
    '33 methods',
    one(`${UI}, methods: ${many(33, i => `M${i}`)}`),
    'routes.yaml:2:',
    one(`${UI}, methods: ${many(32, i => `M${i}`)}`),
  ],
  [
    '65 headers',
    one(`${UI}, headers: ${many(65, i => `x-${i}`)}`),
    'routes.yaml:2:',
    one(`${UI}, headers: ${many(64, i => `x-${i}`)}`),
  ],
  [
    '65 exposed headers',
    one(`${UI}, exposeHeaders: ${many(65, i => `x-${i}`)}`),
    'routes.yaml:2:',
    one(`${UI}, exposeHeaders: ${many(64, i => `x-${i}`)}`),
  ],
  ['a header with a space', one(`${UI}, headers: ["x y"]`), 'routes.yaml:2:', one(`${UI}, headers: ["x-y"]`)],
  ['a header that is not ASCII', one(`${UI}, headers: ["x-é"]`), 'routes.yaml:2:', one(`${UI}, headers: ["x-e"]`)],
  [
    'a method of 257 characters',
    one(`${UI}, methods: [${'M'.repeat(257)}]`),
    'routes.yaml:2:',
    one(`${UI}, methods: [${'M'.repeat(256)}]`),
  ],
  ['a maxAge over a day', one(`${UI}, maxAge: 86401`), 'routes.yaml:2:', one(`${UI}, maxAge: 86400`)],
  ['a path that is not ASCII', one(UI, '/é'), 'routes.yaml:2:', one(UI, '/%C3%A9')],
  ['a path of 257 characters', one(UI, `/${'p'.repeat(256)}`), 'routes.yaml:2:', one(UI, `/${'p'.repeat(255)}`)],
  ['65 rules', rules(65, UI), 'routes.yaml:66:', rules(64, UI)],
  [
    'rules over 12 KiB',
    rules(8, `origins: ${many(64, origin)}`),
    'routes.yaml:',
    rules(5, `origins: ${many(64, origin)}`),
  ],
]

describe('C7: routes that do not fit into a hello', () => {
  test.each(TABLES)('C7: %s is refused with file and line, and one less fits', (_name, bad, where, good) => {
    expect(() => parseRoutes(bad, 'routes.yaml')).toThrow(where)
    const table = parseRoutes(good, 'routes.yaml')
    const published = createRouter({ routes: table })
      .cors()
      .map(({ path, cors }) => ({ path, ...cors }))
    const rest = { minor: 0, software: 'x', instance: 'x', startedMs: 0, lastEpoch: 0, connection: 0 }
    expect(parseControl(JSON.stringify({ type: 'hello', ...rest, cors: published }))).toMatchObject({ cors: published })
    // A running router keeps its table.
    const router = createRouter({ routes: table })
    const loose = { routes: [{ name: 'x', match: { path: '/é' }, answer: {} }] } satisfies RouteTable
    expect(() => router.reload(loose)).toThrow('must be ASCII')
    expect(router.cors()).toEqual(createRouter({ routes: table }).cors())
  })

  test('C7: a rule is published for its path as written, up to the first capture', () => {
    const cors = { origins: ['https://ui.example.com'] }
    const answer = {}
    const paths = ['/a%20b/{x}/c', '/{x}', '/', '/a%2fb', '/a/']
    const routes = paths.map((path, i) => ({ name: `r${i}`, match: { path }, answer, cors }))
    expect(
      createRouter({ routes: { routes } })
        .cors()
        .map(rule => rule.path),
    ).toEqual(['/a%20b', '/', '/', '/a%2fb', '/a/'])
  })

  test('C7: a reload that does not fit into a hello keeps the old routes, and the client reconnects', async () => {
    const made = await makeWorld()
    const auth = { jwks: made.keys.jwks }
    const tls = { cert: made.server.certificate, key: made.server.key }
    let server = await createServer({ public: { port: 0 }, control: { port: 0, tls }, domains: [DOMAIN], auth })
    open.push(() => server.close({ graceMs: 0 }))
    const { port } = server.controlAddress!
    const file = join(folder, 'routes.yaml')
    writeFileSync(file, one(UI))
    const problems: string[] = []
    const logger = { ...noLogger, error: (fields: { err?: Error }) => problems.push(String(fields.err?.message)) }
    // Allowed callers and rules share the room of one message.
    const callers = Array.from(
      { length: 250 },
      (_, i) => `2001:db8:aaaa:bbbb:cccc:dddd:eeee:${(i + 4096).toString(16)}/128`,
    )
    const config = {
      routes: file,
      preset: undefined,
      'preset.namespaces': undefined,
      'preset.event-sources': undefined,
      'preset.cors-origin': undefined,
      'preset.cluster-domain': 'cluster.local',
      'preset.app-proxy': '',
      'preset.workflows': '',
      'allow.callers': callers,
    }
    const embedded = await embedRouter(config, logger)
    open.push(() => embedded.close())
    const tunnel: Tunnel = createTunnel({
      url: `wss://localhost:${port}`,
      ca: made.authority.certificate,
      proxy: '',
      token: await token('demo'),
      target: embedded.target,
      allowCallers: callers,
      connections: 1,
    })
    open.push(() => tunnel.close({ graceMs: 0 }))
    await tunnel.connected()
    const rejected = [TABLES.find(([name]) => name === '65 rules')![1], rules(3, `origins: ${many(64, origin)}`)]
    for (const [i, text] of rejected.entries()) {
      writeFileSync(file, text)
      await eventually(() => expect(problems).toHaveLength(i + 1))
    }
    expect(problems[0]).toContain(`${file}:66:`)
    expect(problems[1]).toContain(`${file}: cors, inbox and allowCallers together are too long`)
    expect(embedded.target.cors!()).toHaveLength(1)
    await server.close({ graceMs: 0 })
    server = await createServer({ public: { port: 0 }, control: { port, tls }, domains: [DOMAIN], auth })
    await eventually(() => expect(tunnel.ready()).toBe(true))
  })

  test("C7: if an embedder's rules do not fit into a hello, the client announces its last ones", async () => {
    const server = await startServer()
    open.push(() => server.close({ graceMs: 0 }))
    const made = await makeWorld()
    const policy = { path: '/', cors: { origins: ['https://ui.example.com'] } }
    let said: (typeof policy)[] = [policy]
    const errors: string[] = []
    const tunnel = createTunnel({
      url: `wss://localhost:${server.controlAddress!.port}`,
      ca: made.authority.certificate,
      proxy: '',
      token: await token('demo'),
      target: { handler: createRouter({ routes: { routes: [] } }).handler, cors: () => said },
      logger: { ...noLogger, error: (_fields: object, message: string) => errors.push(message) },
      connections: 1,
    })
    open.push(() => tunnel.close({ graceMs: 0 }))
    await tunnel.connected()
    said = Array.from({ length: 70 }, () => policy)
    const [session] = server.sessions()
    server.closeSession(session!.id)
    await eventually(() =>
      expect(server.sessions().filter(({ id, active }) => active && id !== session!.id)).toHaveLength(1),
    )
    expect(errors).toContain('the rules of the target cannot be published; the old ones stay in force')
    const answer = await call(server, `nobody.${DOMAIN}`)
    expect(answer.status).toBe(503)
  })
})

describe('C7: names and texts', () => {
  test.each(['', 'a b', 'é', 'x'.repeat(65), 'a/b'])('C7: the replica name %j is refused', async replica => {
    await expect(startServer({ replica })).rejects.toThrow('replica must be 1 to 64')
    const { code, notes } = await sallyport(['server', '--domain', 'example.com', `--replica=${replica}`])
    expect(code).toBe(2)
    expect(notes).toContain('--replica')
  })

  test("C7: an operator's reason reaches the client with enough of it to read", async () => {
    const server = await startServer()
    open.push(() => server.close({ graceMs: 0 }))
    for (const reason of [`${'x'.repeat(119)}\u{1f600}`, '\ud83d', 'a\nb\u0000', 'ü'.repeat(256)]) {
      const client = await dial(server)
      server.drainSession(server.sessions().at(-1)!.id, { reason, graceMs: 5000 })
      expect((await client.message('drain')).reason.isWellFormed()).toBe(true)
      const ended = client.closed
      client.session.control({ type: 'drain', reason, afterMs: 0, deadlineMs: 1000 })
      client.session.control({ type: 'bye' })
      await ended
    }
  })
})

describe('C7: durations', () => {
  const tooLong = [86_400_001, 30 * 86_400_000, Number.POSITIVE_INFINITY, Number.NaN, -1]

  test.each(tooLong)('C7: a grace of %d ms is refused everywhere and cuts nothing', async ms => {
    const server = await startServer()
    open.push(() => server.close({ graceMs: 0 }))
    const { handler, begun } = hanging()
    const client = await dial(server, { handler })
    const calling = call(server, `demo.${DOMAIN}`).catch(() => {})
    await begun
    const id = server.sessions()[0]!.id
    const misuses: (() => unknown)[] = [
      () => server.drainSession(id, { graceMs: ms }),
      () => server.drainSession(id, { afterMs: ms }),
      () => server.drainRuntime('demo', { graceMs: ms }),
      () => server.drain({ graceMs: ms }),
      () => server.close({ graceMs: ms }),
    ]
    for (const misuse of misuses) expect(misuse).toThrow(TypeError)
    expect(() => server.drainSession(id, { graceMs: 86_400_000, afterMs: 1 })).toThrow(TypeError)
    for (const options of [{ drainSpreadMs: ms }, { drainDelayMs: ms }]) {
      await expect(startServer(options)).rejects.toThrow(TypeError)
    }
    expect(server.ready()).toBe(true)
    expect(server.sessions()[0]).toMatchObject({ state: 'open', exchanges: 1 })
    client.ws.terminate()
    await calling
  })

  test('C7: a grace of a day, less a fraction of a millisecond, reaches the client', async () => {
    const server = await startServer()
    open.push(() => server.close({ graceMs: 0 }))
    const client = await dial(server)
    server.drainSession(server.sessions()[0]!.id, { graceMs: 86_400_000 - 0.5 })
    expect(await client.message('drain')).toMatchObject({ deadlineMs: 86_399_999 })
  })

  test.each([
    ['limits', { handshakeMs: 2 ** 31 }],
    ['limits', { handshakeMs: 0 }],
    ['limits', { responseHeadMs: Number.POSITIVE_INFINITY }],
    ['limits', { corsKeepMs: 2 ** 31 }],
    ['hold', { holdMs: 2 ** 31 }],
    ['public', { port: 0, limits: { headMs: 2 ** 31 } }],
  ])('C7: %s %o is longer than a timer can wait', async (group, value) => {
    await expect(startServer({ [group]: value })).rejects.toThrow(TypeError)
  })

  test.each([
    ['--grace', '25h'],
    ['--drain-spread', '25h'],
    ['--drain-delay', '25h'],
    ['--hold.time', '25d'],
    ['--limits.handshake', '0s'],
    ['--limits.response-head', '30d'],
    ['--limits.cors-keep', '999999999d'],
    ['--auth.clock-tolerance', '61s'],
  ])('C7: the flag %s %s is refused', async (flag, value) => {
    const { code, notes } = await sallyport(['server', '--domain', 'example.com', flag, value])
    expect([code, notes]).toEqual([2, expect.stringContaining(`${flag}: "${value}" is not valid, expected a duration`)])
  })

  test.each([
    ['sessions', 'drain', '--runtime', 'demo', '--grace', '25h'],
    ['drain', '--grace', '25h'],
  ])('C7: sallyport %s %s %s %s is refused', async (...words) => {
    const { code, notes } = await sallyport([...words, '--admin', '127.0.0.1:1'])
    expect([code, notes]).toEqual([2, expect.stringContaining('expected a duration from 0s to 24h')])
  })

  test('C7: routes made in code have the same bounds as those in a file', () => {
    for (const timeouts of [{ connectMs: 2 ** 31 }, { headMs: Number.POSITIVE_INFINITY }, { connectMs: 0 }]) {
      const routes = [{ name: 'x', match: {}, target: 'http://a', timeouts }]
      expect(() => createRouter({ routes: { routes } })).toThrow(/Ms: must be at (least 1|most 2147483647)$/)
    }
    expect(() => createRouter({ routes: { routes: [] }, idleMs: 2 ** 31 })).toThrow(TypeError)
  })

  test('C7: a client refuses what its timers and messages cannot hold', async () => {
    const server = await startServer()
    open.push(() => server.close({ graceMs: 0 }))
    const options = {
      url: `wss://localhost:${server.controlAddress!.port}`,
      ca: (await makeWorld()).authority.certificate,
      proxy: '',
      token: await token('demo'),
      target: () => new Response(),
    }
    for (const more of [
      { connectTimeoutMs: 2 ** 31 },
      { handshakeTimeoutMs: Number.POSITIVE_INFINITY },
      { limits: { pingTimeoutMs: 2 ** 31 } },
      { backoff: { capMs: 2 ** 31 } },
    ]) {
      expect(() => createTunnel({ ...options, ...more })).toThrow(TypeError)
    }
    const tunnel = createTunnel(options)
    open.push(() => tunnel.close({ graceMs: 0 }))
    for (const graceMs of tooLong) expect(() => tunnel.close({ graceMs })).toThrow(TypeError)
    await tunnel.connected()
  })
})

describe('C7: times in tokens', () => {
  test.each([253_402_300_800, 8.64e12 + 1, 1e300, Number.MAX_VALUE])(
    'C7: exp %d can be shown and announced',
    async exp => {
      const server: Server = await startServer()
      open.push(() => server.close({ graceMs: 0 }))
      const client = await dial(server, { token: await signed({ exp }) })
      const [session] = server.sessions()
      expect(sessionStatus(session!).tokenEnds).toBe(new Date(Math.min(exp, 8.64e12) * 1000).toISOString())
      client.session.control({ type: 'reauth', token: await signed({ exp }) })
      expect((await client.message('reauth-ok')).expiresMs).toBe(session!.tokenEndsAt)
    },
  )
})

async function signed(claims: object): Promise<string> {
  const { importJWK, SignJWT } = await import('jose')
  const { keys } = await makeWorld()
  const key = await importJWK(keys.privateJwk, keys.privateJwk.alg)
  return new SignJWT({ aud: 'sallyport', sub: 'demo', ...claims }).setProtectedHeader({ alg: 'EdDSA' }).sign(key)
}
