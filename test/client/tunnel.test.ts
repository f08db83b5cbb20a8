import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { queryObjects } from 'node:v8'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { Backoff } from '../../client/dial/backoff.ts'
import { type ClientOptions, connect, createTunnel, type Tunnel, type TunnelEvents } from '../../client/index.ts'
import { ClientSession } from '../../client/session.ts'
import { functionTarget } from '../../client/targets/function.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { CLOSE } from '../../protocol/wire/transport.ts'
import { createRouter } from '../../router/index.ts'
import { until } from '../support/until.ts'
import { FakeServer, type FakeSession } from './fake-server.ts'

const open: (Tunnel | FakeServer)[] = []

afterEach(async () => {
  vi.useRealTimers()
  vi.restoreAllMocks()
  for (const one of open.splice(0).reverse()) await ('stats' in one ? one.close({ graceMs: 0 }) : one.close())
})

async function fake(port?: number): Promise<FakeServer> {
  const server = await FakeServer.listen(port)
  open.push(server)
  return server
}

const hello = () => new Response('hello')
/** Waits shrink to a few milliseconds: what is tested is what happens, not how long it takes. */
const quick = { firstMs: 5, capMs: 20, refusedMs: 5 }

function optionsFor(server: { url: string }, more: Partial<ClientOptions> = {}): ClientOptions {
  return { url: server.url, token: jwt(), target: hello, connections: 1, backoff: quick, ...more }
}

function jwt(lifeS = 3600, agoS = 0): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const now = Math.floor(Date.now() / 1000) - agoS
  const random = Math.random()
  return `${part({ alg: 'EdDSA' })}.${part({ sub: 'prod', aud: 'sallyport', iat: now, exp: now + lifeS, random })}.c2ln`
}

/** The wait after a drain is half of its maximum; the next one is none. */
function halves(): () => number {
  let calls = 0
  return () => (calls++ < 2 ? 0.5 : 0)
}

function startTunnel(options: ClientOptions): Tunnel {
  const tunnel = createTunnel(options)
  open.push(tunnel)
  return tunnel
}

function event<Name extends keyof TunnelEvents>(tunnel: Tunnel, name: Name): Promise<TunnelEvents[Name]> {
  return new Promise(resolve => {
    const listener = (value: TunnelEvents[Name]) => {
      tunnel.off(name, listener)
      resolve(value)
    }
    tunnel.on(name, listener)
  })
}

describe('connect', () => {
  it('reports after 10 s what it is waiting for: in the log, or as a process warning', async () => {
    const server = await fake()
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const warn = vi.fn()
    const emit = vi.spyOn(process, 'emitWarning').mockReturnValue()
    const logger = { debug() {}, info() {}, warn, error() {} }
    const waiting = [undefined, logger].map(logger => connect(optionsFor(server, { logger, connectTimeoutMs: 10_001 })))
    const ends = Promise.allSettled(waiting)
    vi.advanceTimersByTime(9999)
    expect(emit.mock.calls.length + warn.mock.calls.length).toBe(0)
    vi.advanceTimersByTime(1)
    expect(emit).toHaveBeenCalledExactlyOnceWith(expect.stringMatching(/^no session within 10 s/), {
      code: 'SALLYPORT_NO_SESSION',
    })
    expect(warn).toHaveBeenCalledExactlyOnceWith({}, expect.stringMatching(/^no session within 10 s/))
    vi.advanceTimersByTime(1)
    vi.useRealTimers()
    expect((await ends).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  })

  it('reports a lasting cause once, however many connections and attempts there are', async () => {
    const server = await fake()
    const port = Number(new URL(server.url).port)
    await server.close()
    const lines: string[] = []
    const say = (_: object, message: string) => void lines.push(message)
    const logger = { debug() {}, info() {}, warn: say, error: say }
    const tunnel = startTunnel(optionsFor({ url: `ws://127.0.0.1:${port}` }, { logger, connections: 3 }))
    await until(() => tunnel.stats().connections.every(({ attempts }) => attempts > 3))
    expect(lines.filter(line => line.includes('nothing is listening'))).toHaveLength(1)
  })

  it('resolves when the first session is in service, not before', async () => {
    const server = await fake()
    let resolved = false
    const connecting = connect(optionsFor(server)).then(tunnel => {
      resolved = true
      open.push(tunnel)
      return tunnel
    })
    const session = await server.next()
    await session.welcome()
    await session.receive('ready')
    expect(resolved).toBe(false)
    session.send({ type: 'ready', epoch: 7, active: true })
    const tunnel = await connecting
    expect(tunnel.ready()).toBe(true)
    expect(tunnel.stats()).toMatchObject({ runtime: 'prod', epoch: 7, active: true, ready: true, reconnects: 0 })
  })

  it.each([
    ['has no epoch for it', 0, false],
    ['has one', 3, true],
    ['names none', undefined, true],
  ])('is ready only if a server knows its instance: the server %s', async (_, epoch, isReady) => {
    const server = await fake()
    const warn = vi.fn()
    const connecting = connect(optionsFor(server, { logger: { ...noLogger, warn } }))
    const session = await server.next()
    await session.welcome()
    await session.receive('ready')
    session.send({ type: 'ready', active: false, ...(epoch !== undefined && { epoch }) })
    const tunnel = await connecting
    open.push(tunnel)
    expect([tunnel.ready(), tunnel.stats().ready]).toEqual([isReady, isReady])
    const warning = expect.stringContaining('cannot register this instance yet')
    expect(warn.mock.calls).toEqual(isReady ? [] : [[expect.anything(), warning]])
    session.send({ type: 'ready', epoch: 4, active: true })
    await until(() => tunnel.stats().active)
    expect(tunnel.ready()).toBe(true)
  })

  it('reconnects with a token that is still good while its source fails', async () => {
    const server = await fake()
    let token: string | undefined = jwt(3600, 3000)
    const source = () => {
      const given = token
      token = undefined
      return given ?? Promise.reject(new Error('ENOENT: no such file'))
    }
    const connecting = connect(optionsFor(server, { token: source }))
    const first = await server.serve()
    open.push(await connecting)
    first.webSocket.terminate()
    await server.serve()
  })

  it('identifies itself in hello, in the same way on each session', async () => {
    const server = await fake()
    const cors = [{ path: '/app-proxy', origins: ['https://ui.example.com'] }]
    startTunnel(optionsFor(server, { connections: 3, allowCallers: ['10.0.0.0/8'], cors, instance: 'pod-1' }))
    const hellos = await Promise.all([0, 1, 2].map(async () => (await server.next()).receive('hello')))
    expect(hellos.map(({ connection }) => connection).sort()).toEqual([0, 1, 2])
    for (const message of hellos) {
      expect(message).toMatchObject({ instance: hellos[0]!.instance, lastEpoch: 0, allowCallers: ['10.0.0.0/8'], cors })
      expect(message.instance.startsWith('pod-1.')).toBe(true)
      expect(message.limits?.windowBytes).toBe(65_536)
    }
  })

  it('R7 has a name that it never had before, whatever it is told', async () => {
    const server = await fake()
    const names = new Set<string>()
    for (const instance of ['pod-1', 'pod-1', undefined, undefined]) {
      const tunnel = startTunnel(optionsFor(server, { connections: 1, instance }))
      names.add((await (await server.next()).receive('hello')).instance)
      await tunnel.close({ graceMs: 0 })
    }
    expect(names.size).toBe(4)
  })

  it("announces in hello what may be kept for its target, by the target's current table", async () => {
    const server = await fake()
    const route = { match: { path: '/hooks', methods: ['POST'] }, target: 'http://127.0.0.1:1' }
    const router = createRouter({ routes: { routes: [{ ...route, name: 'first', inbox: { maxAge: '1h' } }] } })
    startTunnel(optionsFor(server, { target: router, instance: 'pod-1' }))
    const first = await server.next()
    expect((await first.receive('hello')).inbox).toEqual([
      { route: 'first', path: '/hooks', methods: ['POST'], mode: 'fallback', maxAgeMs: 3_600_000 },
    ])
    router.reload({ routes: [{ ...route, name: 'second' }] })
    first.webSocket.terminate()
    expect(await (await server.next()).receive('hello')).not.toHaveProperty('inbox')
  })

  it('waits for a server that is not up yet, and says why', async () => {
    const gone = await FakeServer.listen()
    const { port, url } = gone
    await gone.close()
    const reasons: string[] = []
    const connecting = connect(optionsFor({ url }, { on: { reconnecting: ({ reason }) => reasons.push(reason) } }))
    await new Promise<void>(resolve => {
      const seen = reasons.push.bind(reasons)
      reasons.push = (...items) => {
        const length = seen(...items)
        if (length >= 3) resolve()
        return length
      }
    })
    const server = await fake(port)
    await server.serve()
    open.push(await connecting)
    expect(reasons[0]).toBe(`nothing is listening at 127.0.0.1:${port} (connection refused)`)
  })

  it('waits for a token that does not exist yet', async () => {
    const server = await fake()
    let calls = 0
    const token = () => {
      if (++calls < 3) throw new Error('ENOENT: no such file')
      return jwt()
    }
    const reasons: string[] = []
    const on = { reconnecting: (event: TunnelEvents['reconnecting']) => void reasons.push(event.reason) }
    const connecting = connect(optionsFor(server, { token, on }))
    await server.serve()
    open.push(await connecting)
    expect(reasons).toEqual(['there is no token: ENOENT: no such file', 'there is no token: ENOENT: no such file'])
  })

  it('keeps trying after a refusal, with a warning and a fresh token', async () => {
    const server = await fake()
    server.refusal = 'HTTP/1.1 401 No\r\nx-request-id: 7f3a\r\ncontent-length: 0\r\n\r\n'
    const refused: TunnelEvents['refused'][] = []
    const connecting = connect(
      optionsFor(server, {
        token: () => jwt(-190),
        on: {
          refused: event => {
            refused.push(event)
            if (refused.length === 3) server.refusal = undefined
          },
        },
      }),
    )
    await server.serve()
    open.push(await connecting)
    expect(refused[0]).toEqual({
      connection: 0,
      reason: expect.stringMatching(/^refused \(401, request 7f3a\): your token expired 3 min 1[01] s ago$/),
      status: 401,
      requestId: '7f3a',
    })
    expect(new Set(server.tokens).size).toBe(server.tokens.length)
  })

  it('rejects after connectTimeoutMs, with the reason, and leaves nothing running', async () => {
    const gone = await FakeServer.listen()
    const { port, url } = gone
    await gone.close()
    const error = await connect(optionsFor({ url }, { connectTimeoutMs: 80 })).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({
      code: 'ERR_SALLYPORT_RUNTIME_OFFLINE',
      message: `no session within 80 ms: nothing is listening at 127.0.0.1:${port} (connection refused)`,
    })
  })

  it("rejects with the signal's reason", async () => {
    const server = await fake()
    const stop = new AbortController()
    const connecting = connect(optionsFor(server, { signal: stop.signal })).catch((thrown: unknown) => thrown)
    const session = await server.next()
    stop.abort(new Error('enough'))
    expect(await connecting).toEqual(new Error('enough'))
    await session.closed
    const before = connect(optionsFor(server, { signal: stop.signal }))
    await expect(before).rejects.toEqual(new Error('enough'))
  })

  it("rejects with the signal's reason if the source of tokens aborts it at once", async () => {
    const server = await fake()
    const stop = new AbortController()
    const token = () => {
      stop.abort(new Error('no credentials'))
      throw new Error('no token')
    }
    await expect(connect(optionsFor(server, { signal: stop.signal, token }))).rejects.toEqual(
      new Error('no credentials'),
    )
  })

  const ed25519 = generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' }) as string
  it.each<[string, Partial<ClientOptions>, string]>([
    [
      'https',
      { url: 'https://example.com' },
      '"https://example.com" is not a WebSocket address: write wss://example.com',
    ],
    ['ftp', { url: 'ftp://example.com' }, '"ftp://example.com" is not a WebSocket address: write wss://host:port'],
    ['no URL', { url: 'example' }, '"example" is not a URL: write wss://host:port'],
    ['no server', { url: [] }, 'url is missing: give wss://host:port of the control endpoint'],
    [
      'plain ws',
      { url: 'ws://example.com' },
      '"ws://example.com" would send the token unencrypted: write wss://example.com',
    ],
    [
      'plain ws to another machine',
      { url: 'ws://localhost', connectTo: { host: '10.0.0.1', port: 80 } },
      'connectTo "10.0.0.1:80" is another machine, and ws:// would send it the token unencrypted',
    ],
    [
      'no server to dial',
      { connectTo: { host: '::', port: 80 } },
      'connectTo "[::]:80" is not a host and port that can be dialled',
    ],
    [
      'a token in the URL',
      { url: 'wss://example.com/?token=x' },
      'the address of a server has no user, password, query or fragment: the token has its own option',
    ],
    ['no token', { token: '' }, 'token is missing: give a JWT, or a function that returns one'],
    ['two tokens', { token: 'a b' }, 'the token is too long, or contains characters that no token has'],
    ['connections', { connections: 0 }, 'connections must be a whole number from 1 to 16, not 0'],
    ['a timeout', { connectTimeoutMs: -1 }, 'connectTimeoutMs must be from 0 to 2073600000 ms, not -1'],
    ['inspect', { inspect: 'all' as never }, "inspect must be 'off', 'heads' or 'bodies'"],
    ['an inbox key', { inboxKeys: [ed25519] }, 'inboxKeys: only X25519 keys are supported'],
    ['caOnly', { caOnly: true }, 'caOnly needs ca: nothing would be trusted'],
    ['the proxy', { proxy: 'socks5://p' }, 'the proxy has the scheme "socks5"; only http and https are supported'],
    [
      'a proxy for plain ws',
      { url: 'ws://localhost', proxy: 'http://proxy.corp' },
      'ws:// would send the token to the proxy unencrypted: write wss://, or leave out proxy',
    ],
    ['the instance', { instance: 'a b' }, 'an option is not valid: control message hello: malformed instance'],
    [
      'the target',
      { target: 42 as never },
      'target must be a URL, a router, an http.Server, or a function that takes a Request',
    ],
  ])('is misuse: %s', async (_name, more, message) => {
    const options = { url: 'wss://example.com', token: 'a.b.c', target: hello, ...more }
    await expect(connect(options)).rejects.toEqual(new TypeError(message))
  })

  it('is misuse: an invalid target URL', async () => {
    const options = { url: 'wss://example.com', token: 'a.b.c', target: 'ftp://example.com' }
    await expect(connect(options)).rejects.toThrow(TypeError)
  })
})

describe('a session that is lost', () => {
  it('is replaced, and the epoch is kept', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const first = await server.serve(4)
    await tunnel.connected()
    const disconnected = event(tunnel, 'disconnected')
    const reconnecting = event(tunnel, 'reconnecting')
    first.webSocket.terminate()
    expect(await disconnected).toEqual({
      connection: 0,
      session: first.id,
      reason: 'the network cut the connection',
    })
    expect((await reconnecting).inMs).toBeLessThanOrEqual(1000)
    expect(tunnel.ready()).toBe(false)
    const connected = event(tunnel, 'connected')
    const second = await server.serve(4)
    expect(second.hello).toMatchObject({ lastEpoch: 4, instance: first.hello!.instance })
    expect(await connected).toEqual({ connection: 0, session: second.id, replica: 'fake', runtime: 'prod' })
    expect(tunnel.stats().reconnects).toBe(1)
  })

  it('presents no impossible epoch, whatever a server sent', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const first = await server.serve(4)
    await tunnel.connected()
    for (const epoch of [Number.MAX_SAFE_INTEGER, 2 ** 48, 2 ** 40 + 1])
      first.send({ type: 'ready', epoch, active: true })
    const standing = event(tunnel, 'standing')
    first.send({ type: 'ready', epoch: 5, active: true })
    expect(await standing).toEqual({ epoch: 5, active: true })
    const next = event(tunnel, 'standing')
    first.webSocket.terminate()
    const second = await server.serve(2 ** 40)
    expect(second.hello).toMatchObject({ lastEpoch: 5 })
    expect(await next).toEqual({ epoch: 2 ** 40, active: true })
    second.webSocket.terminate()
    const third = await server.serve(2 ** 40)
    expect(third.hello).toMatchObject({ lastEpoch: 2 ** 40 })
  })

  it('does not affect any other connection', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { connections: 2 }))
    const [one, two] = [await server.serve(), await server.serve()]
    await tunnel.connected()
    one.webSocket.terminate()
    await event(tunnel, 'disconnected')
    expect(tunnel.ready()).toBe(true)
    expect((await two.exchange().answer()).text).toBe('hello')
  })

  it('is lost when the server does not answer pings', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { limits: { pingIntervalMs: 1000, pingTimeoutMs: 1000 } }))
    const session = await server.serve()
    await tunnel.connected()
    session.webSocket.pause()
    expect((await event(tunnel, 'disconnected')).reason).toBe('the peer does not answer pings')
  })

  it('may be one that the server welcomes and never takes into service', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const reconnecting = event(tunnel, 'reconnecting')
    const session = await server.next()
    await session.welcome()
    await session.receive('ready')
    vi.advanceTimersByTime(10_000)
    expect((await reconnecting).reason).toBe('the server did not take the session into service in time')
    await session.closed
  })

  it('reports the reason that the server gave', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.serve()
    await tunnel.connected()
    const disconnected = event(tunnel, 'disconnected')
    session.send({ type: 'bye', reason: 'revoked' })
    session.yamux.close('revoked', 1001)
    expect((await disconnected).reason).toBe('revoked')
  })

  it('has the notices of the server in the log', async () => {
    const server = await fake()
    const logged = Promise.withResolvers<string>()
    const warn = (_fields: object, message: string) => logged.resolve(message)
    startTunnel(optionsFor(server, { logger: { debug() {}, info() {}, warn, error() {} } }))
    const session = await server.serve()
    session.send({ type: 'notice', message: 'this client is two years old', code: 'old-client' })
    expect(await logged.promise).toBe('this client is two years old')
  })

  it.each<[string, (session: FakeSession, i: number) => void]>([
    ['notices', (session, i) => session.send({ type: 'notice', message: `number ${i}` })],
    ['impossible epochs', (session, i) => session.send({ type: 'ready', epoch: 2 ** 41 + i, active: true })],
  ])('has few of 200 lines of the log that a server causes by %s', async (_what, send) => {
    const server = await fake()
    let lines = 0
    const count = () => void lines++
    const tunnel = startTunnel(optionsFor(server, { logger: { debug() {}, info: count, warn: count, error() {} } }))
    const session = await server.serve()
    await tunnel.connected()
    for (let i = 0; i < 200; i++) send(session, i)
    const standing = event(tunnel, 'standing')
    session.send({ type: 'ready', epoch: 5, active: true })
    await standing
    expect(lines).toBeGreaterThan(10)
    expect(lines).toBeLessThan(60)
  })

  it.each<[string, string, (session: FakeSession) => void]>([
    ['a close', 'the token is revoked', session => session.yamux.close('the token is revoked', CLOSE.refused)],
    ['a cut', 'the network cut the connection', session => session.webSocket.terminate()],
  ])("does not take the server's earlier notice for the reason of %s", async (_how, reason, end) => {
    const server = await fake()
    const logged = Promise.withResolvers<unknown>()
    const warn = (fields: object) => 'code' in fields && logged.resolve(fields.code)
    const tunnel = startTunnel(optionsFor(server, { logger: { debug() {}, info() {}, warn, error() {} } }))
    const session = await server.serve()
    await tunnel.connected()
    const disconnected = event(tunnel, 'disconnected')
    session.send({ type: 'notice', message: "the host a.example is another runtime's", code: 'host-taken' })
    expect(await logged.promise).toBe('host-taken')
    end(session)
    expect((await disconnected).reason).toBe(reason)
  })

  it('ends if the server sends welcome twice', async () => {
    const server = await fake()
    startTunnel(optionsFor(server))
    const session = await server.serve()
    const { id } = session
    const software = 'fake/1'
    session.send({ type: 'welcome', minor: 0, software, session: id, replica: 'r', runtime: 'other', epoch: 0 })
    await session.closed
    await server.serve()
  })

  it.each([
    [
      'ready before welcome',
      { type: 'ready' as const, epoch: 1, active: true },
      'the server did not begin with welcome',
    ],
    ['a malformed message', { type: 'drain', reason: 7 } as never, 'protocol error'],
  ])('ends if the server breaks the protocol: %s', async (_name, message, why) => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const reconnecting = event(tunnel, 'reconnecting')
    const session = await server.next()
    await session.receive('hello')
    session.send(message)
    expect((await reconnecting).reason).toBe(why)
    await session.closed
    await server.serve()
    await tunnel.connected()
  })
})

describe('changed rules of the target', () => {
  const route = { match: { path: '/webhooks', methods: ['POST'] }, target: 'http://127.0.0.1:9' }
  const table = (name: string) => ({ routes: [{ ...route, name, inbox: {} }] })

  it('reach the server with a new session, and what is open on the old one finishes', async () => {
    const server = await fake()
    const router = createRouter({ routes: table('first') })
    const answer = Promise.withResolvers<Response>()
    const target = { handler: functionTarget(() => answer.promise), inbox: () => router.inbox() }
    const tunnel = startTunnel(optionsFor(server, { target }))
    const old = await server.serve()
    await tunnel.connected()
    tunnel.republish()
    router.reload({ routes: [{ ...route, name: 'first', inbox: {}, cors: { origins: ['https://ui.example.com'] } }] })
    tunnel.republish()
    const open = old.exchange()
    router.reload(table('second'))
    tunnel.republish()
    const fresh = await server.serve()
    expect(fresh.hello?.inbox).toMatchObject([{ route: 'second' }])
    expect(await old.receive('drain')).toMatchObject({ reason: 'the inbox rules have changed' })
    old.send({ type: 'drained', lastStream: open.streamId })
    answer.resolve(new Response('whole'))
    expect((await open.answer()).text).toBe('whole')
    await old.closed
    expect(server.sessions).toHaveLength(2)
    expect(tunnel.stats()).toMatchObject({ active: true, reconnects: 0 })
    fresh.webSocket.terminate()
    await event(tunnel, 'disconnected')
    expect(tunnel.stats().active).toBe(false)
    const connected = event(tunnel, 'connected')
    await server.serve()
    await connected
    expect(tunnel.stats()).toMatchObject({ active: true, reconnects: 1 })
  })

  it('that keep changing bring no more sessions while an old one still serves', async () => {
    const server = await fake()
    const router = createRouter({ routes: table('first') })
    const target = { handler: functionTarget(() => new Promise(() => {})), inbox: () => router.inbox() }
    const tunnel = startTunnel(optionsFor(server, { target }))
    const change = (name: string) => {
      router.reload(table(name))
      tunnel.republish()
      return tunnel.stats().connections[0]?.attempts
    }
    const old = await server.serve()
    await tunnel.connected()
    const open = old.exchange()
    expect([change('second'), change('third')]).toEqual([2, 2])
    const fresh = await server.serve()
    expect(fresh.hello?.inbox).toMatchObject([{ route: 'third' }])
    await old.receive('drain')
    expect(change('fourth')).toBe(2)
    old.send({ type: 'drained', lastStream: open.streamId })
    open.request.requestAbort(new SallyportError('cancelled'))
    await old.closed
    expect(change('fifth')).toBe(3)
    expect((await server.serve()).hello?.inbox).toMatchObject([{ route: 'fifth' }])
  })

  it('that change again while an old session still serves reach the server later', async () => {
    const server = await fake()
    const router = createRouter({ routes: table('first') })
    const target = { handler: functionTarget(() => new Promise(() => {})), inbox: () => router.inbox() }
    const tunnel = startTunnel(optionsFor(server, { target, backoff: { ...quick, moveMs: 10 } }))
    const old = await server.serve()
    await tunnel.connected()
    old.exchange()
    for (const name of ['second', 'third']) {
      router.reload(table(name))
      tunnel.republish()
      const fresh = await server.serve()
      expect(fresh.hello?.inbox).toMatchObject([{ route: name }])
      await until(() => tunnel.stats().sessions.at(-1)?.state === 'ready')
    }
  })

  it('do not wait for the next try to find another replica', async () => {
    const [a, b] = [await fake(), await fake()]
    const router = createRouter({ routes: table('first') })
    const target = { handler: functionTarget(() => new Promise(() => {})), inbox: () => router.inbox() }
    vi.spyOn(Backoff.prototype, 'move').mockImplementation(again => (again ? 600_000 : 1))
    const tunnel = startTunnel(optionsFor(a, { url: [a.url, b.url], connections: 2, target }))
    await a.serve(1, 'a')
    await tunnel.connected()
    await (await b.next()).welcome('a')
    const old = await a.serve(1, 'a')
    const leaveSame = async (server: FakeServer) => {
      const same = await server.next()
      await same.welcome('a')
      await same.closed
    }
    await leaveSame(b)
    old.exchange()
    await until(() => tunnel.stats().exchanges.live === 1)
    old.send({ type: 'drain', reason: 'test', afterMs: 0, deadlineMs: 600_000 })
    await a.serve(1, 'a')
    await leaveSame(b)
    router.reload(table('second'))
    tunnel.republish()
    const fresh = await Promise.all([a.serve(1, 'a1'), b.serve(1, 'b1')])
    expect(fresh.map(({ hello }) => hello?.inbox)).toMatchObject([[{ route: 'second' }], [{ route: 'second' }]])
    expect(new Set(fresh.map(({ hello }) => hello?.connection)).size).toBe(2)
  })

  it('reach it although a replacement that is not needed any more becomes ready meanwhile', async () => {
    const server = await fake()
    const router = createRouter({ routes: table('first') })
    const tunnel = startTunnel(optionsFor(server, { target: router, backoff: { ...quick, moveMs: 500 } }))
    const lost = await server.serve()
    await tunnel.connected()
    router.reload(table('second'))
    tunnel.republish()
    const late = await server.next()
    await late.welcome()
    await late.receive('ready')
    lost.webSocket.terminate()
    const current = await server.serve()
    await until(() => tunnel.stats().sessions.some(({ session, state }) => session === current.id && state === 'ready'))
    router.reload(table('third'))
    tunnel.republish()
    late.send({ type: 'ready', epoch: 1, active: true })
    await late.receive('drain')
    expect((await server.serve()).hello?.inbox).toMatchObject([{ route: 'third' }])
  })

  it('leave nothing behind of the sessions that were replaced', async () => {
    const server = await fake()
    const router = createRouter({ routes: table('first') })
    const tunnel = startTunnel(optionsFor(server, { target: router }))
    await server.serve()
    await tunnel.connected()
    const kept = () => queryObjects(ClientSession, { format: 'count' })
    const before = kept()
    for (let i = 0; i < 10; i++) {
      const old = server.sessions.at(-1)!
      router.reload(table(`route-${i}`))
      tunnel.republish()
      await server.serve()
      await old.receive('drain')
      old.send({ type: 'drained', lastStream: 0 })
      await old.closed
    }
    expect(kept() - before).toBeLessThan(5)
  })

  it('bring a warning, once each, if webhooks cannot be kept for want of a key', async () => {
    const { privateKey } = generateKeyPairSync('x25519')
    const inboxKeys = [privateKey.export({ format: 'pem', type: 'pkcs8' }) as string]
    for (const [keys, expected] of [
      [undefined, [['first'], ['second']]],
      [inboxKeys, []],
    ] as const) {
      const server = await fake()
      const warn = vi.fn()
      const logger = { debug() {}, info() {}, warn, error() {} }
      const router = createRouter({ routes: table('first') })
      const tunnel = startTunnel(optionsFor(server, { target: router, inboxKeys: keys, logger }))
      const kept = () => warn.mock.calls.filter(([, text]) => text.includes('--inbox.key.file'))
      expect(kept().map(([{ routes }]) => routes)).toEqual(expected.slice(0, 1))
      await server.serve()
      tunnel.republish()
      router.reload(table('second'))
      tunnel.republish()
      router.reload({ routes: [{ ...route, name: 'none' }] })
      tunnel.republish()
      expect(kept().map(([{ routes }]) => routes)).toEqual(expected)
    }
  })

  it('reach it later if it accepts no session now, and the log says so', async () => {
    const server = await fake()
    const router = createRouter({ routes: table('first') })
    const warnings: string[] = []
    const warn = (_fields: object, text: string) => void warnings.push(text)
    const logger = { debug() {}, info() {}, warn, error() {} }
    const tunnel = startTunnel(optionsFor(server, { target: router, logger, backoff: { ...quick, moveMs: 10 } }))
    const old = await server.serve()
    await tunnel.connected()
    server.refusal = 'HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n'
    router.reload(table('second'))
    tunnel.republish()
    const missed = 'the inbox rules have changed, but no new session was opened: '
    await until(() => warnings.some(text => text.startsWith(`${missed}refused (503)`)))
    server.refusal = undefined
    ;(await server.next()).webSocket.terminate()
    const fresh = await server.serve()
    expect(warnings.at(-1)).toBe(`${missed}the network cut the connection`)
    expect(fresh.hello?.inbox).toMatchObject([{ route: 'second' }])
    await old.receive('drain')
  })
})

describe('several replicas', () => {
  it('each connection goes to its own server', async () => {
    const [a, b] = [await fake(), await fake()]
    startTunnel(optionsFor(a, { url: [a.url, b.url], connections: 2 }))
    const [first, second] = await Promise.all([a.serve(1, 'a'), b.serve(1, 'b')])
    expect([first.hello?.connection, second.hello?.connection]).toEqual([0, 1])
  })

  it('the log says whether any session is left', async () => {
    const [a, b] = [await fake(), await fake()]
    const warnings: string[] = []
    const warn = (_fields: object, text: string) => void warnings.push(text)
    const logger = { debug() {}, info() {}, warn, error() {} }
    const slow = { backoff: { firstMs: 60_000 }, random: () => 0.9 }
    const tunnel = startTunnel(optionsFor(a, { url: [a.url, b.url], connections: 2, logger, ...slow }))
    const [first, second] = await Promise.all([a.serve(1, 'a'), b.serve(1, 'b')])
    await until(() => tunnel.stats().sessions.filter(({ state }) => state === 'ready').length === 2)
    first.webSocket.terminate()
    await until(() => warnings.length === 1)
    second.webSocket.terminate()
    await until(() => warnings.length === 2)
    expect(warnings).toEqual([
      expect.stringMatching(/^a session is missing: the network cut the connection; /),
      expect.stringMatching(/^no session: the network cut the connection; /),
    ])
  })

  it('a refusal is logged once, and not again as a missing session', async () => {
    const server = await fake()
    server.refusal = 'HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n'
    const logged: string[] = []
    const log = (_fields: object, text: string) => void logged.push(text)
    let rounds = 0
    const on = { reconnecting: () => void rounds++ }
    startTunnel(optionsFor(server, { on, logger: { debug() {}, info() {}, warn: log, error: log } }))
    await until(() => rounds >= 2)
    expect(logged).toEqual([expect.stringMatching(/^the server refused this client: refused \(401/)])
  })

  it.each([
    ['us:wrong@', 5000, 10_000],
    ['', 0, 5],
  ])('a proxy that answers 407 to "%s" is asked again after %i to %i ms', async (credentials, least, most) => {
    const proxy = createServer().on('connect', (_, socket) => {
      socket.end('HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm="a"\r\n\r\n')
    })
    await once(proxy.listen(0, '127.0.0.1'), 'listening')
    const through = `http://${credentials}127.0.0.1:${(proxy.address() as AddressInfo).port}`
    const backoff = { firstMs: 5, refusedMs: 10_000 }
    const refused = vi.fn()
    const tunnel = startTunnel(optionsFor({ url: 'wss://example.test' }, { proxy: through, backoff, on: { refused } }))
    const { inMs, reason } = await event(tunnel, 'reconnecting')
    expect(reason).toContain('(407)')
    expect(inMs).toBeGreaterThanOrEqual(least)
    expect(inMs).toBeLessThanOrEqual(most)
    expect(refused).not.toHaveBeenCalled()
    proxy.close()
  })

  it('a refusal that ends a session is logged once, too', async () => {
    const server = await fake()
    const logged: string[] = []
    const log = (_fields: object, text: string) => void logged.push(text)
    const tunnel = startTunnel(optionsFor(server, { logger: { debug() {}, info() {}, warn: log, error: log } }))
    const session = await server.serve()
    await tunnel.connected()
    const reconnecting = event(tunnel, 'reconnecting')
    session.yamux.close('the token is revoked', CLOSE.refused)
    await reconnecting
    expect(logged).toEqual(['the server refused this client: the server ended the session: the token is revoked'])
  })

  it('a replica that another connection has is left for another address', async () => {
    const [a, b] = [await fake(), await fake()]
    const tunnel = startTunnel(optionsFor(a, { url: [a.url, b.url], connections: 2 }))
    await a.serve(1, 'a')
    await tunnel.connected()
    const same = await b.next()
    await same.welcome('a')
    expect((await same.receive('bye')).reason).toBe('another connection of this instance already has this replica')
    const other = await a.serve(1, 'b')
    expect(other.hello?.connection).toBe(1)
    expect(
      tunnel
        .stats()
        .sessions.map(({ replica }) => replica)
        .sort(),
    ).toEqual(['a', 'b'])
    expect(tunnel.stats().reconnects).toBe(0)
  })

  it('if all lead to the same one, it is kept', async () => {
    const [a, b] = [await fake(), await fake()]
    const tunnel = startTunnel(optionsFor(a, { url: [a.url, b.url], connections: 2 }))
    await a.serve(1, 'a')
    await tunnel.connected()
    await (await b.next()).welcome('a')
    const connected = event(tunnel, 'connected')
    await a.serve(1, 'a')
    expect((await connected).connection).toBe(1)
  })

  it('if all had one, another is tried later, and the old session is left for it without loss', {
    tags: ['slow'],
  }, async () => {
    const [a, b] = [await fake(), await fake()]
    const answer = Promise.withResolvers<Response>()
    const target = () => answer.promise
    const tunnel = startTunnel(
      optionsFor(a, { url: [a.url, b.url], connections: 2, backoff: { ...quick, moveMs: 20 }, target }),
    )
    await a.serve(1, 'a')
    await tunnel.connected()
    await (await b.next()).welcome('a')
    const old = await a.serve(1, 'a')
    const slow = old.exchange()
    const fresh = await b.serve(1, 'b')
    expect(fresh.hello?.connection).toBe(1)
    expect(await old.receive('drain')).toMatchObject({
      reason: 'moved to another replica',
      deadlineMs: 86_400_000,
    })
    old.send({ type: 'drained', lastStream: slow.streamId })
    const disconnected = event(tunnel, 'disconnected')
    fresh.webSocket.terminate()
    expect((await disconnected).session).toBe(fresh.id)
    const again = await b.serve(1, 'b')
    expect(again.hello?.connection).toBe(1)
    answer.resolve(new Response('whole'))
    expect((await slow.answer()).text).toBe('whole')
    await old.closed
    expect(tunnel.stats().sessions.map(({ connection, replica }) => [connection, replica])).toEqual([
      [0, 'a'],
      [1, 'b'],
    ])
  })

  it('sessions that were left for another replica are bounded', { tags: ['slow'] }, async () => {
    const server = await fake()
    const target = () => new Promise<never>(() => {})
    startTunnel(
      optionsFor(server, {
        url: [server.url, server.url.replace('127.0.0.1', 'localhost')],
        connections: 2,
        backoff: { ...quick, moveMs: 20 },
        target,
      }),
    )
    await server.serve(1, 'a')
    /** The next session that the client does not pass over for another replica. */
    const shared = async () => {
      for (;;) {
        const session = await server.next()
        await session.welcome('a')
        const isReady = session.receive('ready').then(() => true)
        if (!(await Promise.race([isReady, session.closed.then(() => false)]))) continue
        session.send({ type: 'ready', epoch: 1, active: true })
        return session
      }
    }
    const left: FakeSession[] = []
    for (let i = 0; i < 9; i++) {
      const session = await shared()
      left.push(session)
      session.exchange()
      const other = await server.serve(1, 'b')
      await session.receive('drain')
      other.webSocket.terminate()
    }
    await left[0]!.closed
    expect(left.map(({ webSocket }) => webSocket.readyState)).toEqual([3, ...Array(8).fill(1)])
    // One that the server asks to leave, and that is idle, stays until it is replaced.
    const idle = await server.serve(1, 'b')
    idle.send({ type: 'drain', reason: 'update', afterMs: 0, deadlineMs: 60_000 })
    await server.serve(1, 'c')
    await idle.receive('drained')
    expect(left[1]!.webSocket.readyState).toBe(3)
  })

  it('a shared replica is kept as long as there is no other', async () => {
    const [a, b] = [await fake(), await fake()]
    const tunnel = startTunnel(
      optionsFor(a, { url: [a.url, b.url], connections: 2, backoff: { ...quick, moveMs: 10 } }),
    )
    await a.serve(1, 'a')
    await tunnel.connected()
    await (await b.next()).welcome('a')
    const kept = await a.serve(1, 'a')
    for (const server of [b, a, b]) {
      const same = await server.next()
      await same.welcome('a')
      await same.receive('bye')
    }
    expect(kept.has('drain')).toBe(false)
    expect((await kept.exchange().answer()).text).toBe('hello')
    expect(tunnel.stats().reconnects).toBe(0)
  })

  it('if there is no other, it is accepted without a wait', async () => {
    const [a, b] = [await fake(), await fake()]
    const waits: number[] = []
    const on = { reconnecting: ({ inMs }: TunnelEvents['reconnecting']) => void waits.push(inMs) }
    const tunnel = startTunnel(optionsFor(a, { url: [a.url, b.url], connections: 2, on, backoff: { firstMs: 60_000 } }))
    await a.serve(1, 'a')
    await tunnel.connected()
    a.refusal = 'HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n'
    await (await b.next()).welcome('a')
    const connected = event(tunnel, 'connected')
    await b.serve(1, 'a')
    expect((await connected).connection).toBe(1)
    expect(waits).toEqual([])
  })
})

describe('drain', () => {
  it('of the server: a new session is up before the old one is left, and the old one finishes', async () => {
    const server = await fake()
    const answer = Promise.withResolvers<Response>()
    const target = (request: Request) => (request.url.endsWith('/slow') ? answer.promise : hello())
    const tunnel = startTunnel(optionsFor(server, { target }))
    const old = await server.serve()
    await tunnel.connected()
    const slow = old.exchange({ path: '/slow' })
    old.send({ type: 'drain', reason: 'rolling update', afterMs: 1, deadlineMs: 60_000 })
    const fresh = await server.next()
    await fresh.welcome()
    await fresh.receive('ready')
    expect(old.has('drained')).toBe(false)
    fresh.send({ type: 'ready', epoch: 1, active: true })
    expect(await old.receive('drained')).toEqual({ type: 'drained', lastStream: 0 })
    expect((await fresh.exchange().answer()).text).toBe('hello')
    answer.resolve(new Response('late'))
    expect((await slow.answer()).text).toBe('late')
    const disconnected = event(tunnel, 'disconnected')
    old.send({ type: 'bye', reason: 'rolling update' })
    old.yamux.close('rolling update', 1001)
    expect((await disconnected).session).toBe(old.id)
    expect(tunnel.ready()).toBe(true)
    expect(tunnel.stats().reconnects).toBe(0)
    expect(server.sessions).toHaveLength(2)
  })

  it('no reconnect is counted if an older session ends before the next one is up', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const drain = { type: 'drain', reason: 'rolling update', afterMs: 0, deadlineMs: 60_000 } as const
    const first = await server.serve()
    first.send(drain)
    const second = await server.serve()
    await first.receive('drained')
    second.send(drain)
    const third = await server.next()
    const disconnected = event(tunnel, 'disconnected')
    first.yamux.close('rolling update', 1001)
    expect((await disconnected).session).toBe(first.id)
    await third.welcome()
    const connected = event(tunnel, 'connected')
    third.send({ type: 'ready', epoch: 1, active: true })
    await connected
    expect(tunnel.stats().reconnects).toBe(0)
  })

  it("is also what yamux's go-away means", async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const old = await server.serve()
    await tunnel.connected()
    old.yamux.goAway()
    await server.serve()
    await old.receive('drained')
  })

  it('of the server, with no other available: the old session is given up anyway', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const old = await server.serve()
    await tunnel.connected()
    server.refusal = 'HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n'
    old.send({ type: 'drain', reason: 'restart', afterMs: 0, deadlineMs: 60_000 })
    expect(await old.receive('drained')).toEqual({ type: 'drained', lastStream: 0 })
    server.refusal = undefined
    await server.serve()
  })

  it('of the server: when it has ended, a new attempt starts at once, however long the wait was', async () => {
    const server = await fake()
    const tunnel = startTunnel(
      optionsFor(server, { backoff: { firstMs: 3_600_000, capMs: 3_600_000 }, random: halves() }),
    )
    const old = await server.serve()
    await tunnel.connected()
    server.refusal = 'HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n'
    const waiting = event(tunnel, 'reconnecting')
    old.send({ type: 'drain', reason: 'deploy', afterMs: 0, deadlineMs: 30_000 })
    expect((await waiting).inMs).toBe(1_800_000)
    server.refusal = undefined
    old.yamux.close('deployed', 1001)
    await server.serve()
  })

  it('of the client: streams up to drained are served, later ones refused unprocessed, then bye', async () => {
    const server = await fake()
    const answer = Promise.withResolvers<string>()
    let calls = 0
    const target = async () => {
      calls++
      return new Response(await answer.promise)
    }
    const tunnel = startTunnel(optionsFor(server, { target }))
    const session = await server.serve()
    await tunnel.connected()
    const first = session.exchange()
    const closing = tunnel.close({ graceMs: 10_000 })
    expect(tunnel.ready()).toBe(false)
    const drain = await session.receive('drain')
    expect(drain).toMatchObject({ afterMs: 0, deadlineMs: 10_000 })
    const inFlight = session.exchange()
    session.send({ type: 'drained', lastStream: inFlight.streamId })
    const late = session.exchange()
    await expect(late.head$.promise).rejects.toMatchObject({ refusal: 'draining', unprocessed: true })
    answer.resolve('done')
    expect((await first.answer()).text).toBe('done')
    expect((await inFlight.answer()).text).toBe('done')
    expect((await session.receive('bye')).reason).toBe('the client is closing')
    await closing
    expect(calls).toBe(2)
    expect(await session.closed).toBe(1000)
  })

  it('of the client ends at its grace', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { target: () => new Promise<Response>(() => {}) }))
    const session = await server.serve()
    await tunnel.connected()
    const endless = session.exchange()
    const closing = tunnel.close({ graceMs: 50 })
    await session.receive('drain')
    session.send({ type: 'drained', lastStream: endless.streamId })
    await expect(endless.head$.promise).rejects.toMatchObject({ reason: 'session-lost' })
    await closing
  })

  it('of the client ends sooner if a later close says so, and never later', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { target: () => new Promise<Response>(() => {}) }))
    const session = await server.serve()
    await tunnel.connected()
    const endless = session.exchange()
    const closing = [tunnel.close({ graceMs: 86_400_000 })]
    await session.receive('drain')
    session.send({ type: 'drained', lastStream: endless.streamId })
    closing.push(tunnel.close({ graceMs: 50 }), tunnel.close({ graceMs: 86_400_000 }))
    await expect(endless.head$.promise).rejects.toMatchObject({ reason: 'session-lost' })
    await Promise.all(closing)
  })

  it('of the client does not wait for a server that says nothing', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.serve()
    await tunnel.connected()
    const closing = tunnel.close({ graceMs: 100 })
    await session.receive('drain')
    await closing
    await session.closed
  })

  it('of the client waits a moment for a server that has gone silent, no longer', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.serve()
    await tunnel.connected()
    session.webSocket.pause()
    await tunnel.close({ graceMs: 0 })
    expect(tunnel.stats().sessions).toEqual([])
  })

  it('is what Symbol.asyncDispose does', async () => {
    const server = await fake()
    const serving = server.serve()
    {
      await using tunnel = await connect(optionsFor(server))
      const session = await serving
      void session.receive('drain').then(() => session.send({ type: 'drained', lastStream: 0 }))
      expect(tunnel.ready()).toBe(true)
    }
    expect(await (await serving).closed).toBe(1000)
  })
})

describe('a token', () => {
  it('is sent in band on each session when there is a fresh one', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { connections: 2 }))
    const sessions = [await server.serve(), await server.serve()]
    await tunnel.connected()
    const fresh = jwt(7200)
    tunnel.setToken(fresh)
    for (const session of sessions) {
      expect(await session.receive('reauth')).toEqual({ type: 'reauth', token: fresh })
      session.send({ type: 'reauth-ok', expiresMs: Date.now() + 7_200_000 })
    }
    expect(tunnel.stats().tokenExpiresMs).toBeGreaterThan(Date.now() + 7_000_000)
    expect(server.sessions).toHaveLength(2)
  })

  it('waits for the answer to the previous one; only the last of several is sent', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.serve()
    await tunnel.connected()
    const tokens = [jwt(100), jwt(200), jwt(300)]
    for (const token of tokens) tunnel.setToken(token)
    expect((await session.receive('reauth')).token).toBe(tokens[0])
    expect(session.has('reauth')).toBe(false)
    session.send({ type: 'reauth-ok', expiresMs: Date.now() })
    expect((await session.receive('reauth')).token).toBe(tokens[2])
  })

  it('is fetched again by refreshToken', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { token: () => jwt() }))
    const session = await server.serve()
    await tunnel.connected()
    await tunnel.refreshToken()
    expect((await session.receive('reauth')).token).not.toBe(server.tokens[0])
  })

  it('is fetched when the machine has slept past its time, or its clock was set', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { token: () => jwt() }))
    const session = await server.serve()
    await tunnel.connected()
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_000_000 })
    expect((await session.receive('reauth')).token).not.toBe(server.tokens[0])
  })

  it('is fetched in time though the clock was set back', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server, { token: () => jwt(6) }))
    const session = await server.serve()
    await tunnel.connected()
    const now = Date.now
    vi.spyOn(Date, 'now').mockImplementation(() => now() - 3_600_000)
    expect((await session.receive('reauth')).token).not.toBe(server.tokens[0])
  })

  it('is fetched while the client closes, too, when the machine has slept past its time', async () => {
    const server = await fake()
    const answer = Promise.withResolvers<Response>()
    const tunnel = startTunnel(optionsFor(server, { token: () => jwt(), target: () => answer.promise }))
    const session = await server.serve()
    await tunnel.connected()
    const last = session.exchange()
    const closing = tunnel.close({ graceMs: 60_000 })
    await session.receive('drain')
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_000_000 })
    expect((await session.receive('reauth')).token).not.toBe(server.tokens[0])
    answer.resolve(new Response('done'))
    expect((await last.answer()).text).toBe('done')
    await closing
  })

  it('is renewed while the client closes, until its last exchange has ended', async () => {
    const server = await fake()
    const answer = Promise.withResolvers<Response>()
    const tunnel = startTunnel(optionsFor(server, { token: () => jwt(6), target: () => answer.promise }))
    const session = await server.serve()
    await tunnel.connected()
    const last = session.exchange()
    const closing = tunnel.close({ graceMs: 60_000 })
    await session.receive('drain')
    expect((await session.receive('reauth')).token).not.toBe(server.tokens[0])
    answer.resolve(new Response('done'))
    expect((await last.answer()).text).toBe('done')
    await closing
  })

  it('that is refused in band causes an event, and the session stays', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.serve()
    await tunnel.connected()
    const refused = event(tunnel, 'refused')
    tunnel.setToken(jwt())
    await session.receive('reauth')
    session.send({ type: 'reauth-refused', requestId: '9b1' })
    expect(await refused).toEqual({
      connection: 0,
      reason: 'the server did not accept the fresh token; the old one stays in force',
      status: 401,
      requestId: '9b1',
    })
    expect(tunnel.ready()).toBe(true)
    expect((await session.exchange().answer()).text).toBe('hello')
  })

  it('that was refused in band is sent again when it is given again', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.serve()
    await tunnel.connected()
    const fresh = jwt(7200)
    for (let i = 0; i < 2; i++) {
      const refused = event(tunnel, 'refused')
      tunnel.setToken(fresh)
      expect((await session.receive('reauth')).token).toBe(fresh)
      session.send({ type: 'reauth-refused' })
      await refused
    }
    tunnel.setToken(fresh)
    await session.receive('reauth')
    session.send({ type: 'reauth-ok', expiresMs: Date.now() + 7_200_000 })
  })

  it('that arrives while a session is being opened is sent in band once that is in service', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.next()
    const fresh = jwt(7200)
    tunnel.setToken(fresh)
    await session.welcome()
    await session.receive('ready')
    session.send({ type: 'ready', epoch: 1, active: true })
    expect((await session.receive('reauth')).token).toBe(fresh)
    expect(server.tokens).not.toContain(fresh)
  })

  it('that is given while the client waits makes it retry at once', async () => {
    const server = await fake()
    server.refusal = 'HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n'
    const tunnel = startTunnel(optionsFor(server, { backoff: { refusedMs: 600_000, capMs: 600_000 } }))
    await event(tunnel, 'reconnecting')
    server.refusal = undefined
    const fresh = jwt(7200)
    tunnel.setToken(fresh)
    await server.serve()
    expect(server.tokens.at(-1)).toBe(fresh)
  })

  it('that the server no longer accepts is a refusal', async () => {
    const server = await fake()
    const tunnel = startTunnel(optionsFor(server))
    const session = await server.serve()
    await tunnel.connected()
    const refused = event(tunnel, 'refused')
    session.yamux.close('the token was revoked', 4401)
    expect(await refused).toMatchObject({ reason: 'the server ended the session: the token was revoked', status: 0 })
  })
})

it('a listener that throws affects nobody', async () => {
  const server = await fake()
  const errors: string[] = []
  const logger = {
    debug() {},
    info() {},
    warn() {},
    error: (_fields: object, message: string) => void errors.push(message),
  }
  const on = {
    connected: () => {
      throw new Error('mine')
    },
  }
  const tunnel = startTunnel(optionsFor(server, { logger, on }))
  await server.serve()
  await tunnel.connected()
  expect(errors).toEqual(['a listener of "connected" threw'])
})

it('close before the first session rejects whoever waits', async () => {
  const server = await fake()
  const tunnel = startTunnel(optionsFor(server))
  const session = await server.next()
  await tunnel.close()
  await session.closed
  await expect(tunnel.connected()).rejects.toMatchObject({ reason: 'runtime-offline' })
})
