/** `sallyport check`: each probe against the fault that it reports. */
import { execFile } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { Resolver } from 'node:dns'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer as createHttp } from 'node:http'
import { createServer as createHttps, request as requestHttps } from 'node:https'
import { type AddressInfo, connect as connectTcp, createServer as createTcp, type Server as TcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer as createTls } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { type WebSocket, WebSocketServer } from 'ws'
import { createAuthority, createKeys, createServerCertificate, createToken } from '../../certs/index.ts'
import { COMPONENTS } from '../../cli/config/components.ts'
import * as kinds from '../../cli/config/kinds.ts'
import { SECRET_FILE, type Settings } from '../../cli/config/setting.ts'
import { connect, diagnose } from '../../client/index.ts'
import { createServer, type Server } from '../../server/index.ts'
import { needs } from '../support/needs.ts'
import { freePort } from '../support/proxy-program.ts'
import { Relay } from '../support/relay.ts'
import { eventually } from '../support/until.ts'
import { sallyport } from './run.ts'

interface Found {
  code: string
  status: string
  what: string
  found: string
  hint: string
  docs: string
}

let folder: string
const file = (name: string) => join(folder, name)
let server: Server
let port: number
let token: (claims: { ttl?: string; audience?: string }) => Promise<string>
let certificate: { cert: string; key: string }
let service: TcpServer
let target: string
const stops: (() => unknown)[] = []

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-check-'))
  const authority = await createAuthority({ name: 'The CA of this test' })
  const made = await createServerCertificate(authority, { hosts: ['*.tunnels.localhost', '127.0.0.1', 'slow.invalid'] })
  certificate = { cert: made.certificate, key: made.key }
  const keys = await createKeys()
  writeFileSync(file('ca.pem'), authority.certificate)
  writeFileSync(file('server.pem'), certificate.cert)
  writeFileSync(file('server-key.pem'), certificate.key, { mode: 0o600 })
  writeFileSync(file('jwks.json'), JSON.stringify(keys.jwks))
  token = async claims => (await createToken({ key: keys.privateJwk, runtime: 'demo', ttl: '1h', ...claims })).token
  writeFileSync(file('token'), await token({}), { mode: 0o600 })
  server = await createServer({
    public: { port: 0 },
    control: { host: '127.0.0.1', port: 0, tls: certificate },
    domains: ['tunnels.localhost'],
    auth: { jwks: keys.jwks },
  })
  port = server.controlAddress!.port
  service = createHttp((_, response) => void response.end('hello'))
  target = `http://127.0.0.1:${await listening(service)}`
})
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})
afterAll(async () => {
  await server.close({ graceMs: 0 })
  service.close()
  rmSync(folder, { recursive: true })
})

async function listening(one: TcpServer): Promise<number> {
  one.listen(0, '127.0.0.1')
  await once(one, 'listening')
  return (one.address() as AddressInfo).port
}

/** A listener for one test. */
async function serve(one: TcpServer): Promise<number> {
  stops.push(() => one.close())
  one.on('connection', socket => void stops.push(() => socket.destroy()))
  return await listening(one)
}

async function check(component: string, ...args: string[]) {
  const { code, out } = await sallyport(['check', component, '--json', ...args])
  const { schema, component: named, probes } = JSON.parse(out) as { schema: number; component: string; probes: Found[] }
  expect([schema, named]).toEqual([1, component])
  const of = (name: string) => probes.filter(probe => probe.code === name)
  return { code, probes, of, statuses: Object.fromEntries(probes.map(probe => [probe.code, probe.status])) }
}

type Flags = Record<string, string>
const words = (flags: Flags) => Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value])

const client = (url = `wss://127.0.0.1:${port}`, more: Flags = {}) =>
  check('client', ...words({ server: url, ca: file('ca.pem'), 'token.file': file('token'), target, ...more }))

const NETWORK = ['name', 'tcp', 'tls', 'upgrade', 'authentication', 'clock', 'round-trip', 'throughput']

/** Everything up to `failed` is well, and the steps after it were not reached. */
function expectFailed({ code, statuses }: Awaited<ReturnType<typeof check>>, failed: string): void {
  const at = NETWORK.indexOf(failed)
  const expected = NETWORK.map((name, index) => [name, index < at ? 'ok' : index === at ? 'fail' : 'skip'])
  expect(Object.fromEntries(NETWORK.map(name => [name, statuses[name]]))).toEqual(Object.fromEntries(expected))
  expect(code).toBe(5)
}

describe('check client', () => {
  test('every step passes, and the running client keeps its traffic', async () => {
    const live = await connect({
      url: `wss://127.0.0.1:${port}`,
      token: () => token({}),
      ca: readFileSync(file('ca.pem')),
      proxy: '',
      target,
    })
    stops.push(() => live.close({ graceMs: 0 }))
    // `connect` waits for the first of two connections.
    await eventually(() => expect(server.sessions()).toHaveLength(2))
    const before = server.sessions().map(({ id }) => id)
    const { code, probes } = await client()
    expect(probes.filter(({ status }) => status !== 'ok')).toEqual([])
    expect(probes.map(probe => probe.code)).toEqual([
      'configuration',
      'rights',
      'token',
      'proxy-choice',
      ...NETWORK,
      'upstream',
    ])
    expect(code).toBe(0)
    expect(server.sessions().map(({ id }) => id)).toEqual(before)
    expect([live.stats().reconnects, live.stats().active]).toEqual([0, true])
    for (const probe of probes) expect(probe.docs).toBe(`docs/check.md#${probe.code}`)
  })

  test('as text: the findings, and for each failure what was expected and what helps', async () => {
    const args = ['--server', 'wss://127.0.0.1:1', '--ca', file('ca.pem'), '--token.file', file('token')]
    const { code, out } = await sallyport(['check', 'client', ...args, '1'])
    expect(code).toBe(5)
    expect(out).toMatch(/^STATUS {2}CODE {14}WHAT: FOUND\nok {6}configuration /)
    expect(out).toMatch(
      /^fail {4}tcp {15}127\.0\.0\.1:1: nothing is listening at 127\.0\.0\.1:1 \(connection refused\)$/m,
    )
    expect(out).toMatch(/^ {26}expected: the address accepts connections$/m)
    expect(out).toMatch(/^ {26}Refused: nothing is listening there\. No answer: a firewall/m)
    expect(out).toMatch(/^skip {4}tls .*not reached$/m)
    expect(out).toMatch(/^fail {4}upstream .*route "target": http:\/\/localhost:1/m)
  })

  test('a name that does not resolve', async () => {
    expectFailed(await client('wss://no-such-name.invalid'), 'name')
  })

  test('a resolver that hangs', { tags: ['slow'] }, async () => {
    const silent = createSocket('udp4').bind(0, '127.0.0.1')
    await once(silent, 'listening')
    const resolver = new Resolver({ timeout: 60_000 })
    resolver.setServers([`127.0.0.1:${silent.address().port}`])
    stops.push(() => {
      resolver.cancel()
      silent.close()
    })
    const probes = await diagnose({
      url: 'wss://connect.tunnels.example.com',
      token: await token({}),
      proxy: '',
      target,
      lookup: (name, _, callback) => resolver.resolve4(name, (error, found) => callback(error, found?.[0] ?? '')),
    })
    const failed = probes.filter(({ status }) => status === 'fail')
    expect(failed).toMatchObject([
      {
        code: 'name',
        found: expect.stringMatching(
          /^no answer from the resolver to the name connect.tunnels.example.com within 5/,
        ) as unknown,
      },
    ])
  })

  test('a slow path', { tags: ['slow'] }, async () => {
    const relay = await Relay.start({ port, bytesPerSecond: 16_384 })
    stops.push(() => relay.stop())
    const { statuses, of, code } = await client(`wss://127.0.0.1:${relay.port}`)
    expect([statuses['round-trip'], statuses.throughput, code]).toEqual(['ok', 'warn', 0])
    expect(of('throughput')[0]!.found).toBe('they did not arrive in time')
  })

  test('a round trip of more than a second', { tags: ['slow'] }, async () => {
    const relay = await Relay.start({ port, roundTripMs: 1600 })
    stops.push(() => relay.stop())
    const url = `wss://127.0.0.1:${relay.port}`
    const options = { url, token: () => token({}), ca: readFileSync(file('ca.pem')), proxy: '', target }
    const probes = await diagnose(options, { deep: true })
    expect(probes.filter(({ status }) => status !== 'ok')).toEqual([])
    const found = probes.map(({ code, found }) => `${code}: ${found}`)
    expect(found).toContainEqual(expect.stringMatching(/^round-trip: [12]\d{3}\.\d ms, the median of [12]$/))
  })

  test.each([
    ['50s', 'ok'],
    ['32s', 'warn'],
    ['20s', 'fail'],
  ])('with %s to stop, the drain of 30 s is %s', async (time, status) => {
    const args = ['--routes', file('none.yaml'), '--termination-grace', time]
    writeFileSync(file('none.yaml'), 'routes: []')
    const { of, code } = await check('router', ...args)
    expect([of('stop')[0]!.status, code]).toEqual([status, status === 'fail' ? 5 : 0])
    expect(of('stop')[0]!.found).toBe(`it has ${time.replace('s', ' s')}`)
  })

  test('a middlebox that intercepts TLS: its authority is named', async () => {
    const other = await createServerCertificate(await createAuthority({ name: 'Inspecting Corp' }), {
      hosts: ['127.0.0.1'],
    })
    const box = createTls({ cert: other.certificate, key: other.key }, inner => {
      inner.on('error', () => {})
      const outer = connectTcp(port, '127.0.0.1')
      inner
        .pipe(outer)
        .on('error', () => {})
        .pipe(inner)
    })
    const found = await client(`wss://127.0.0.1:${await serve(box)}`)
    expectFailed(found, 'tls')
    expect(found.of('tls')[0]).toMatchObject({ found: expect.stringContaining('"Inspecting Corp"') as unknown })
    expect(found.of('tls')[0]!.hint).toContain('something on the path intercepts TLS')
  })

  test('a balancer that does not pass Upgrade', async () => {
    const balancer = createHttps(certificate, (_, response) => void response.writeHead(404).end('no such page'))
    balancer.on('upgrade', (_, socket) => socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n'))
    const found = await client(`wss://127.0.0.1:${await serve(balancer)}`)
    expectFailed(found, 'upgrade')
    expect(found.of('upgrade')[0]!.found).toContain('answered 404')
  })

  test('a proxy that strips Upgrade on the way to the server, and names itself', async () => {
    const proxy = createHttps(certificate, (request, response) => {
      const { upgrade: _upgrade, connection: _connection, ...headers } = request.headers
      const on = requestHttps(
        { port, host: '127.0.0.1', path: request.url, headers, ca: readFileSync(file('ca.pem')), agent: false },
        answer => {
          response.writeHead(answer.statusCode!, { ...answer.headers, via: '1.1 middlebox' })
          answer.pipe(response)
        },
      )
      on.end()
    })
    const found = await client(`wss://127.0.0.1:${await serve(proxy)}`)
    expectFailed(found, 'upgrade')
    expect(found.of('upgrade')[0]!.found).toMatch(/does not pass WebSocket.*"1\.1 middlebox"/)
  })

  test('an invalid proxy variable', async () => {
    vi.stubEnv('HTTPS_PROXY', 'socks5://user:a-secret@127.0.0.1:1080')
    stops.push(() => vi.unstubAllEnvs())
    const found = await client('wss://connect.tunnels.example.com')
    expect([found.statuses['proxy-choice'], found.statuses.name, found.code]).toEqual(['fail', 'skip', 5])
    expect(found.of('proxy-choice')[0]!.found).toContain('socks5')
    expect(JSON.stringify(found.probes)).not.toContain('a-secret')
    // docs/corporate-proxy.md: it turns the proxy off.
    const without = await client('wss://no-such-name.invalid', { proxy: '' })
    expect([without.statuses['proxy-choice'], without.statuses.name]).toEqual(['ok', 'fail'])
  })

  test.runIf(needs('netns', 'iptables'))(
    'a port that drops packets is distinguished from one that refuses',
    { tags: ['slow'] },
    async () => {
      const drop = 'ip link set lo up && iptables -A INPUT -p tcp --dport 8443 -j DROP && exec "$@"'
      const flags = words({ server: 'wss://127.0.0.1:8443', ca: file('ca.pem'), 'token.file': file('token'), target })
      const command = [
        process.execPath,
        join(import.meta.dirname, '../../cli/main.ts'),
        'check',
        'client',
        ...flags,
        '--json',
      ]
      const out = await new Promise<string>(resolve => {
        execFile('unshare', ['--net', 'sh', '-c', drop, 'sh', ...command], (_error, stdout) => resolve(stdout))
      })
      const { probes } = JSON.parse(out) as { probes: Found[] }
      const tcp = probes.find(({ code }) => code === 'tcp')
      expect(tcp).toMatchObject({
        status: 'fail',
        found: expect.stringMatching(/^no answer from .* within 5/) as unknown,
      })
    },
  )

  test('each step has its own 5 s', { tags: ['slow'] }, async () => {
    const slow = createTcp(inner => {
      inner.on('error', () => {})
      const begin = () => {
        const outer = connectTcp(port, '127.0.0.1').on('error', () => {})
        inner.pipe(outer).pipe(inner)
      }
      setTimeout(begin, 2600)
    })
    const probes = await diagnose({
      url: `wss://slow.invalid:${await serve(slow)}`,
      token: await token({}),
      ca: readFileSync(file('ca.pem')),
      proxy: '',
      target,
      lookup: (_name, _, callback) => void setTimeout(callback, 2600, null, [{ address: '127.0.0.1', family: 4 }]),
    })
    expect(probes.filter(({ status }) => status !== 'ok')).toEqual([])
  })

  describe('--deep', { tags: ['slow'] }, () => {
    /** A middlebox that cuts quiet connections after this time, or forgets them and then drops everything. */
    const middlebox = (quietMs: number, how: 'cuts' | 'forgets') =>
      createTcp(inner => {
        const outer = connectTcp(port, '127.0.0.1')
        let forgotten = false
        let timer: NodeJS.Timeout | undefined
        const due = () => {
          forgotten = true
          if (how === 'cuts') inner.destroy()
        }
        const pass = (to: typeof inner) => (chunk: Buffer) => {
          clearTimeout(timer)
          timer = setTimeout(due, quietMs)
          if (!forgotten) to.write(chunk)
        }
        inner.on('data', pass(outer)).on('error', () => {})
        outer.on('data', pass(inner)).on('error', () => {})
        inner.on('close', () => outer.destroy())
        outer.on('close', () => inner.destroy())
      })

    const deep = async (at: number) => {
      const options = {
        url: `wss://127.0.0.1:${at}`,
        token: () => token({}),
        ca: readFileSync(file('ca.pem')),
        proxy: '',
        target,
      }
      return (await diagnose(options, { deep: true })).find(({ code }) => code === 'quiet')
    }

    test('nothing on the path', async () => {
      expect(await deep(port)).toMatchObject({ status: 'ok', found: 'survives 8 s idle' })
    })

    test.each([
      [5000, { status: 'ok', found: 'survives 4 s idle' }],
      [800, { status: 'skip', found: expect.stringContaining('--limits.handshake') }],
    ])('a server that waits %i ms for a hello', async (handshakeMs, found) => {
      const impatient = await createServer({
        public: { port: 0 },
        control: { host: '127.0.0.1', port: 0, tls: certificate },
        domains: ['tunnels.localhost'],
        auth: { jwks: { file: file('jwks.json') } },
        limits: { handshakeMs },
      })
      stops.push(() => impatient.close({ graceMs: 0 }))
      expect(await deep(impatient.controlAddress!.port)).toMatchObject(found)
    })

    test('a second connection is refused', async () => {
      let dialled = 0
      const front = createTcp(inner => {
        if (++dialled > 2) return void inner.resetAndDestroy()
        const outer = connectTcp(port, '127.0.0.1')
        inner.pipe(outer).pipe(inner)
        for (const socket of [inner, outer]) socket.on('error', () => {})
      })
      expect(await deep(await serve(front))).toMatchObject({ status: 'fail', found: expect.stringContaining('closed') })
    })

    test.each(['cuts', 'forgets'] as const)('a middlebox that %s quiet connections', async how => {
      const found = (await deep(await serve(middlebox(6000, how))))!
      expect([found.status, found.found]).toEqual([
        'fail',
        expect.stringMatching(
          how === 'cuts' ? /^survives 4 s idle, but is cut after [678]/ : /cut after 8 s$/,
        ) as unknown,
      ])
    })
  })

  test('a clock that is off', async () => {
    const far = createHttps(certificate)
    const sockets = new WebSocketServer({ server: far, handleProtocols: () => 'sallyport.v1' })
    stops.push(() => sockets.close())
    sockets.on('headers', headers => headers.push(`Date: ${new Date(Date.now() - 120_000).toUTCString()}`))
    const { statuses, of } = await client(`wss://127.0.0.1:${await serve(far)}`)
    expect([statuses.authentication, statuses.clock, statuses['round-trip']]).toEqual(['ok', 'fail', 'ok'])
    expect(of('clock')[0]!.found).toMatch(/^2 min( 0 s| 1 s)? apart$/)
  })

  test.each([
    ['says goodbye', 1000, (socket: WebSocket) => socket.close(1000)],
    ['is gone', 1006, (socket: WebSocket) => socket.terminate()],
  ])('a server that accepts the client and then %s', async (_, code, leave) => {
    const brief = createHttps(certificate)
    const sockets = new WebSocketServer({ server: brief, handleProtocols: () => 'sallyport.v1' })
    stops.push(() => sockets.close())
    sockets.on('connection', leave)
    const found = await client(`wss://127.0.0.1:${await serve(brief)}`)
    expectFailed(found, 'round-trip')
    expect(found.of('round-trip')[0]!.found).toBe(`the server ended the connection (${code})`)
  })

  test('a server that wants a client certificate', async () => {
    const strict = createHttps({ ...certificate, ca: certificate.cert, requestCert: true, rejectUnauthorized: true })
    const found = await client(`wss://127.0.0.1:${await serve(strict)}`)
    expectFailed(found, 'tls')
    expect(found.of('tls')[0]!.found).toContain('wants a client certificate: give --tls.cert and --tls.key')
  })

  test.each([
    [503, 'the server itself', { requestId: '9b1' }, 'authentication', 'the server accepts'],
    [500, 'the server itself', { requestId: '9b1' }, 'authentication', 'the server accepts'],
    [503, 'something in front of it', {}, 'upgrade', 'the server, or a proxy in front of it, accepts'],
  ])('a %d of %s', async (status, _, body, failed, who) => {
    const full = createHttps(certificate)
    full.on('upgrade', (_request, socket) => {
      socket.end(`HTTP/1.1 ${status} No\r\nconnection: close\r\n\r\n${JSON.stringify(body)}`)
    })
    const found = await client(`wss://127.0.0.1:${await serve(full)}`)
    expectFailed(found, failed)
    expect(found.of(failed)[0]!.found).toContain(`${who} no clients right now`)
  })

  test.each([
    ['401 Unauthorized', 'not-authenticated'],
    ['503 Service Unavailable', 'runtime-offline'],
  ])('the public name of a server, which answers %s', async (status, code) => {
    const edge = createHttps(certificate)
    edge.on('upgrade', (_request, socket) => {
      const body = JSON.stringify({ code, requestId: '9b1' })
      socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\nsallyport-error: ${code}\r\n\r\n${body}`)
    })
    const found = await client(`wss://127.0.0.1:${await serve(edge)}`)
    expectFailed(found, 'upgrade')
    expect(found.of('upgrade')[0]!.found).toContain('is for callers, not for clients')
  })

  test('the public name of a runtime that is offline, which answers only after the hold', async () => {
    const edge = createHttps(certificate).on('upgrade', () => {})
    const found = await client(`wss://127.0.0.1:${await serve(edge)}`)
    expectFailed(found, 'upgrade')
    expect(found.of('upgrade')[0]).toMatchObject({
      found: expect.stringMatching(/^no answer from .* within 5/) as unknown,
      hint: expect.stringContaining(
        'Dial the control endpoint: the public name of a runtime that is offline',
      ) as unknown,
    })
  })

  test('a control endpoint with TLS, dialled without', async () => {
    const flags = { server: `ws://127.0.0.1:${port}`, 'token.file': file('token'), target }
    const { of } = await check('client', ...words(flags))
    expect(of('upgrade')[0]!.hint).toContain('If the server has TLS, dial wss://.')
  })

  test('a proxy whose own certificate is not trusted', async () => {
    const other = await createServerCertificate(await createAuthority({ name: 'Corp' }), { hosts: ['127.0.0.1'] })
    const proxy = createHttps({ cert: other.certificate, key: other.key })
    const address = `127.0.0.1:${await serve(proxy)}`
    const { statuses, of } = await client(undefined, { proxy: `https://${address}` })
    expect([statuses.tcp, statuses.proxy, statuses.tls]).toEqual(['ok', 'fail', 'skip'])
    expect(of('proxy')[0]!.found).toContain(`the certificate of the proxy ${address} was issued by`)
  })

  test('a proxy that refuses', async () => {
    const proxy = createHttp().on('connect', (_, socket) => socket.end('HTTP/1.1 403 Forbidden\r\n\r\n'))
    const address = `127.0.0.1:${await serve(proxy)}`
    const { statuses, of, code } = await client(undefined, { proxy: `http://${address}` })
    expect([statuses.tcp, statuses.proxy, statuses.tls, code]).toEqual(['ok', 'fail', 'skip', 5])
    expect(of('proxy-choice')[0]!.found).toBe(address)
    expect(of('proxy')[0]!.found).toContain('it answered 403')
  })

  test('tokens: expired, for another audience, missing, and readable by others', async () => {
    const give = async (text: string, mode = 0o600) => {
      writeFileSync(file('other'), text)
      chmodSync(file('other'), mode)
      return await client(undefined, { 'token.file': file('other') })
    }
    const short = await token({ ttl: '1s' })
    await expect.poll(() => Date.now() / 1000 > Number(JSON.parse(atob(short.split('.')[1]!)).exp)).toBe(true)
    const ended = await give(short)
    expect(ended.of('token')[0]!.found).toMatch(/^it expired \d+ m?s ago/)
    expect([ended.statuses.token, ended.code]).toEqual(['fail', 5])
    // Its server tolerates 30 s, and says so itself.
    expect(ended.statuses.tls).toBe('ok')
    const other = await give(await token({ audience: 'another' }))
    expect(other.statuses.token).toBe('warn')
    expectFailed(other, 'authentication')
    expect(other.of('authentication')[0]!.found).toContain('audience "another"')
    const none = await give('')
    expect(none.of('token')[0]!.found).toContain('is empty')
    // The path is reported up to where a token is needed.
    expect(NETWORK.map(name => none.statuses[name])).toEqual([...Array(4).fill('ok'), ...Array(4).fill('skip')])
    const open = await give(await token({}), 0o644)
    expect([open.statuses.rights, open.code]).toEqual(['warn', 0])
  })

  test('silent servers take no time from the next one', {
    tags: ['slow'],
  }, async () => {
    const silent = await serve(createTcp())
    const urls = [...Array(7).fill(`wss://127.0.0.1:${silent}`), `wss://127.0.0.1:${port}`]
    const { of } = await client(urls.join(','))
    expect(of('tls').map(({ status }) => status)).toEqual([...Array(7).fill('fail'), 'ok'])
    expect(of('name').map(({ status }) => status)).toEqual(Array(8).fill('ok'))
  })

  test('a missing file, and an unreachable target', async () => {
    const bad = await client(undefined, { ca: file('none.pem') })
    expect([bad.statuses, bad.code]).toEqual([{ configuration: 'fail' }, 5])
    const down = await client(undefined, { target: 'http://127.0.0.1:1' })
    expect([down.statuses.upstream, down.statuses['round-trip'], down.code]).toEqual(['fail', 'ok', 5])
  })
})

describe('check server and router', () => {
  const server = (more: Flags = {}) => {
    const pair = (name: string) => ({ [`${name}.cert`]: file('server.pem'), [`${name}.key`]: file('server-key.pem') })
    const listen = { 'public.listen': '127.0.0.1:0', 'control.listen': '127.0.0.1:0' }
    const keys = { 'auth.jwks.file': file('jwks.json'), domain: 'tunnels.localhost' }
    return check('server', ...words({ ...listen, ...pair('public.tls'), ...pair('control.tls'), ...keys, ...more }))
  }

  test('every step passes', async () => {
    const { code, probes } = await server()
    expect(probes.filter(({ status }) => status !== 'ok')).toEqual([])
    expect(code).toBe(0)
  })

  test('every file with a secret is checked, and no other', () => {
    const files = Object.values(COMPONENTS).flatMap((settings: Settings) =>
      Object.entries(settings).flatMap(([name, { kind }]) => (kind === kinds.file ? [name] : [])),
    )
    expect(new Set(files.filter(name => SECRET_FILE.test(name)))).toEqual(
      new Set([
        ...['public.tls.key', 'control.tls.key', 'peer.tls.key', 'tls.key', 'inbox.key.file', 'token.file'],
        ...[
          'admin.token.file',
          'inbox.password.file',
          'inbox.mac.file',
          'directory.password.file',
          'directory.sentinel.password.file',
        ],
      ]),
    )
    const open = files.filter(name => !SECRET_FILE.test(name))
    const isPublic = /(?:^|[.-])(?:cert|ca|ocsp|jwks\.file|revocations\.file|routes)$/
    expect(open.filter(name => !isPublic.test(name))).toEqual([])
  })

  test('the secret files of a routes file, too', async () => {
    for (const [name, mode] of Object.entries({ 'open-hook': 0o644, hook: 0o600 })) {
      writeFileSync(file(name), 'a-secret-of-a-webhook\n', { mode })
      chmodSync(file(name), mode)
    }
    const verify = 'verify: { scheme: gitlab, secrets: [{ file: hook }, { file: open-hook }] }'
    writeFileSync(
      file('hooks.yaml'),
      `routes: [{ name: a, match: { path: / }, target: 'http://127.0.0.1:${port}', ${verify} }]`,
    )
    const { of, code } = await check('router', ...words({ routes: file('hooks.yaml'), listen: '127.0.0.1:0' }))
    expect(of('rights').map(({ what, status }) => [what, status])).toEqual([
      [`--routes ${file('hook')}`, 'ok'],
      [`--routes ${file('open-hook')}`, 'warn'],
    ])
    expect(code).toBe(0)
  })

  test('a Secret that Kubernetes has mounted: only the pod can read it, whatever its mode', async () => {
    const secret = file('secret')
    mkdirSync(join(secret, '..2026_11_26'), { recursive: true })
    writeFileSync(join(secret, '..2026_11_26', 'token'), 'a-token-of-sixteen-letters\n', { mode: 0o644 })
    symlinkSync('..2026_11_26', join(secret, '..data'))
    symlinkSync('..data/token', join(secret, 'token'))
    const { of } = await server({ 'admin.token.file': join(secret, 'token') })
    expect(of('rights').find(({ what }) => what.includes('admin'))).toMatchObject({ status: 'ok', found: 'mode 0644' })
  })

  test('on Windows, modes say nothing', async () => {
    writeFileSync(file('open'), 'a-token-of-sixteen-letters\n', { mode: 0o666 })
    chmodSync(file('open'), 0o666)
    const { getuid } = process
    stops.push(() => Object.assign(process, { getuid }))
    delete process.getuid
    const { of } = await server({ 'admin.token.file': file('open') })
    expect(of('rights').filter(({ status }) => status !== 'ok')).toEqual([])
  })

  test("files that others can read, a replica's certificate, and the operator's addresses", async () => {
    writeFileSync(file('open'), 'a-token-of-sixteen-letters\n', { mode: 0o644 })
    chmodSync(file('open'), 0o644)
    const { of, code } = await server({
      ...{ 'admin.token.file': file('open'), 'admin.listen': '127.0.0.1:0', 'health.listen': `127.0.0.1:${port}` },
      ...{ directory: 'redis://127.0.0.1:1', 'directory.password.file': file('open'), 'peer.listen': '127.0.0.1:0' },
      ...{ 'peer.tls.cert': file('server.pem'), 'peer.tls.key': file('server-key.pem'), 'peer.tls.ca': file('ca.pem') },
    })
    const open = of('rights').filter(({ status }) => status === 'warn')
    expect(open.map(({ hint }) => hint)).toEqual([`chmod o= ${file('open')}`, `chmod o= ${file('open')}`])
    expect(of('certificate').map(({ status }) => status)).toEqual(['ok', 'ok', 'fail', 'ok'])
    expect(of('certificate')[2]!.hint).toContain('replica.sallyport.internal')
    expect(of('listen').map(({ status }) => status)).toEqual(['ok', 'ok', 'ok', 'ok', 'warn'])
    expect(code).toBe(5)
  })

  test('a domain whose certificate is in the folder', async () => {
    const second = join(folder, 'second')
    mkdirSync(second)
    stops.push(() => rmSync(second, { recursive: true }))
    const domains = { domain: 'tunnels.localhost,second.localhost', 'public.tls.folder': second }
    const without = await server(domains)
    expect(without.of('certificate')[0]).toMatchObject({
      status: 'fail',
      hint: expect.stringContaining('*.second.localhost'),
    })
    const pair = await createServerCertificate(await createAuthority(), { hosts: ['*.second.localhost'] })
    writeFileSync(join(second, 'second.crt'), pair.certificate)
    writeFileSync(join(second, 'second.key'), pair.key, { mode: 0o600 })
    const found = await server(domains)
    expect([found.of('certificate').map(({ status }) => status), found.code]).toEqual([['ok', 'ok', 'ok'], 0])
  })

  test('two settings with one port; a folder without a pair; certificates that have expired', async () => {
    const same = `127.0.0.1:${await freePort()}`
    const { of, code } = await server({ 'public.listen': same, 'health.listen': same, 'public.tls.folder': folder })
    expect(of('listen').map(({ status, found }) => [status, found])).toEqual([
      ['ok', 'free'],
      ['ok', 'free'],
      ['fail', '--public.listen has the same port'],
    ])
    expect(of('certificate').at(-1)).toMatchObject({ status: 'warn', found: 'no certificate in it' })
    expect(code).toBe(5)
    const authority = await createAuthority({ now: Date.now() - 3_000_000_000, validDays: 30 })
    writeFileSync(file('old-ca.pem'), authority.certificate)
    const old = await server({ 'control.tls.client-ca': file('old-ca.pem') })
    expect(old.of('certificate').at(-1)).toMatchObject({
      status: 'fail',
      found: expect.stringMatching(/^expired 4 d 1\d h ago$/),
    })
  })

  test('targets beyond the limit are reported as left out', async () => {
    const row = (at: number) =>
      `  - { name: r${at}, match: { path: /${at} }, target: "http://127.0.0.${at}:${port}" }\n`
    writeFileSync(file('routes.yaml'), `routes:\n${Array.from({ length: 25 }, (_, at) => row(at + 1)).join('')}`)
    const { of } = await check('router', '--listen', '127.0.0.1:0', '--routes', file('routes.yaml'))
    expect(of('upstream')).toHaveLength(21)
    expect(of('upstream').at(-1)).toMatchObject({ status: 'skip', what: '5 more targets' })
  })

  test('a certificate for another domain, an address in use, an invalid key set', async () => {
    const other = await server({ domain: 'tunnels.example.com' })
    expect(other.of('certificate').map(({ status }) => status)).toEqual(['fail', 'ok'])
    expect(other.of('certificate')[0]!.hint).toContain('*.tunnels.example.com')
    // Without a certificate of its own, the control endpoint has that of callers.
    const shared = { domain: 'tunnels.localhost', 'auth.jwks.file': file('jwks.json'), 'public.listen': '127.0.0.1:0' }
    const pair = { 'public.tls.cert': file('server.pem'), 'public.tls.key': file('server-key.pem') }
    const named = await check('server', ...words({ ...shared, ...pair, 'control.host': 'connect.example.com' }))
    expect(named.of('certificate')).toMatchObject([
      { status: 'fail', hint: 'Get one that is also for connect.example.com.' },
    ])
    const taken = await server({ 'control.listen': `127.0.0.1:${port}` })
    expect(taken.of('listen').map(({ status }) => status)).toEqual(['ok', 'warn'])
    writeFileSync(file('bad.json'), '{}')
    const bad = await server({ 'auth.jwks.file': file('bad.json') })
    expect([bad.statuses, bad.code]).toEqual([{ configuration: 'fail' }, 5])
  })

  test('a key set behind a URL: present, something else, from an untrusted authority, gone', async () => {
    let body = readFileSync(file('jwks.json'), 'utf8')
    const keys = createHttps(certificate, (_, response) => void response.end(body))
    const url = `https://127.0.0.1:${await serve(keys)}/jwks`
    const pair = (name: string) => ({ [`${name}.cert`]: file('server.pem'), [`${name}.key`]: file('server-key.pem') })
    const listen = { 'public.listen': '127.0.0.1:0', 'control.listen': '127.0.0.1:0', domain: 'tunnels.localhost' }
    const flags = { ...listen, ...pair('public.tls'), ...pair('control.tls') }
    const status = async (more: Flags) => (await check('server', ...words({ ...flags, ...more }))).statuses['key-set']
    const trusted = { 'auth.jwks.url': url, 'auth.jwks.ca': file('ca.pem') }
    expect(await status(trusted)).toBe('ok')
    expect(await status({ 'auth.jwks.url': url })).toBe('fail')
    expect(await status({ ...trusted, 'auth.jwks.url': 'https://127.0.0.1:1/jwks' })).toBe('fail')
    body = '{}'
    expect(await status(trusted)).toBe('fail')
  })

  test('several problems of a file are in one line', async () => {
    writeFileSync(file('routes.yaml'), 'routs: []\ntargt: x\n')
    const { out } = await sallyport(['check', 'router', '--routes', file('routes.yaml')])
    expect(out).toMatch(/^fail .*routes\.yaml:1:1: unknown key .*\?; \S*routes\.yaml:2:1: unknown key /m)
  })

  test('the router: each target once', async () => {
    const closed = createTcp()
    const gone = await listening(closed)
    await new Promise(resolve => closed.close(resolve))
    const route = (name: string, to: string) => `  - { name: ${name}, match: { path: /${name} }, target: "${to}" }\n`
    const captured = '  - { name: c, match: { path: "/c/{x}" }, target: "http://{x}.svc.invalid" }\n'
    const strange = `https://127.0.0.1:${port}`
    const text =
      route('a', target) +
      route('b', target) +
      route('gone', `http://127.0.0.1:${gone}`) +
      route('tls', strange) +
      captured
    writeFileSync(file('routes.yaml'), `routes:\n${text}`)
    const { of, code } = await check('router', '--listen', '127.0.0.1:0', '--routes', file('routes.yaml'))
    expect(of('upstream').map(({ status, hint }) => [status, hint.split(' ')[0]])).toEqual([
      ['ok', ''],
      ['fail', 'Start'],
      ['fail', 'Trust'],
    ])
    expect(code).toBe(5)
  })
})
