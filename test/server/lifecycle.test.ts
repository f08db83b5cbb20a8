import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { connect } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { WebSocket } from 'ws'
import { collectGarbage } from '../../load-tests/lib/garbage.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { CONNECT_PATH, SUBPROTOCOL } from '../../protocol/wire/control.ts'
import { MemoryDirectory } from '../../server/directory/memory.ts'
import { createServer } from '../../server/index.ts'
import type { Server } from '../../server/server.ts'
import { eventually } from '../support/until.ts'
import {
  always,
  answer,
  type CallOptions,
  call,
  DOMAIN,
  dial,
  event,
  HOST,
  hanging,
  makeWorld,
  openWebSocket,
  startServer,
  type TestClient,
  token,
} from './fixture.ts'

/** The error of a connection to an address, or `connected`. */
function dialed({ host, port }: { host: string; port: number }): Promise<string | undefined> {
  return new Promise(resolve => {
    const socket = connect({ host, port })
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code))
    socket.once('connect', () => {
      resolve('connected')
      socket.destroy()
    })
  })
}

function repeat(times: number, step: () => void): void {
  for (let i = 0; i < times; i++) step()
}

let server: Server | undefined
afterEach(async () => {
  vi.useRealTimers()
  await server?.close({ graceMs: 0 })
  server = undefined
})

describe('misuse is a TypeError, and nothing listens', () => {
  test.each([
    ['no key set', { auth: {} }, 'auth.jwks is required'],
    ['a key set that is none', { auth: { jwks: 'file.json' } }, 'auth.jwks must be'],
    ['no auth at all', { auth: undefined }, 'auth.jwks is required'],
    ['no TLS at the control endpoint', { control: { port: 0 } }, 'control.tls is required'],
    ['plain HTTP off loopback', { public: { host: '0.0.0.0', port: 0 } }, 'loopback'],
    ['a domain that is none', { domains: ['*.example.com'] }, 'domains'],
    ['an unknown limit', { limits: { session: 1 } }, 'limits.session is unknown'],
    ['a negative limit', { limits: { sessions: -1 } }, 'limits.sessions'],
    ['a buffer of no bytes', { limits: { sessionBufferBytes: 0 } }, 'sessionBufferBytes'],
    ['a control host without TLS in front', { control: { hostName: 'c.example.com' } }, 'control'],
    [
      'PROXY protocol on a shared address',
      {
        public: { port: 0, tls: { cert: '', key: '' } },
        control: { hostName: 'c.example.com', tls: { cert: '', key: '' }, proxyProtocol: ['10.0.0.0/8'] },
      },
      'proxyProtocol',
    ],
    ['a health path without /', { healthPath: 'healthz' }, 'healthPath'],
    ['a bad trusted proxy', { trustedProxies: ['10.0.0.0/99'] }, '10.0.0.0/99'],
  ])('%s', async (_name, options, message) => {
    await expect(startServer(options as never)).rejects.toThrow(message)
  })

  test('a key that does not match its certificate, a missing file, a port in use', async () => {
    const made = await makeWorld()
    const tls = { cert: made.server.certificate, key: made.authority.key }
    await expect(startServer({ control: { port: 0, tls } })).rejects.toThrow('does not match')
    const missing = { cert: { file: '/nowhere/cert.pem' }, key: made.server.key }
    await expect(startServer({ control: { port: 0, tls: missing } })).rejects.toThrow(
      '/nowhere/cert.pem cannot be read',
    )
    await expect(startServer({ auth: { jwks: { file: '/nowhere/jwks.json' } } })).rejects.toThrow('ENOENT')
    server = await startServer()
    const { port } = server.publicAddress!
    await expect(startServer({ public: { port } })).rejects.toMatchObject({ code: 'EADDRINUSE' })
  })
})

test('without TLS only on purpose', async () => {
  server = await startServer({ control: { port: 0, plaintext: true } })
  const { host, port } = server.controlAddress!
  const ws = new WebSocket(`ws://${host}:${port}${CONNECT_PATH}`, [SUBPROTOCOL], {
    headers: { authorization: `Bearer ${await token('demo')}` },
  })
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject))
  expect(server.stats().sessionsOpened).toBe(1)
  ws.terminate()
})

describe('the life of a session', () => {
  test('welcome names session, replica and runtime, and the window is agreed', async () => {
    server = await startServer({ replica: 'r1' })
    const client = await dial(server, { hello: { limits: { windowBytes: 65_536 }, features: ['from-the-future'] } })
    const [welcome] = client.messages
    expect(welcome).toMatchObject({
      type: 'welcome',
      session: server.sessions()[0]!.id,
      replica: 'r1',
      runtime: 'demo',
      limits: { windowBytes: 65_536 },
      features: [],
    })
    expect(client.messages[1]).toEqual({ type: 'ready', epoch: 1, active: true })
  })

  test('events report it', async () => {
    server = await startServer()
    const seen: string[] = []
    for (const name of ['session', 'ready', 'sessionEnded'] as const)
      server.on(name, info => seen.push(`${name} ${info.runtime}`))
    const client = await dial(server)
    const ended = event(server, 'sessionEnded')
    client.session.control({ type: 'bye', reason: 'done' })
    expect((await ended).reason).toBe('done')
    expect(seen).toEqual(['session demo', 'ready demo', 'sessionEnded demo'])
  })

  test('events say once that it is ready, and not after it has ended', async () => {
    const directory = new MemoryDirectory()
    const answering = Promise.withResolvers<void>()
    const { ready } = directory
    directory.ready = registration => answering.promise.then(() => ready.call(directory, registration))
    server = await startServer({ directory })
    const seen: string[] = []
    for (const name of ['session', 'ready', 'sessionEnded'] as const)
      server.on(name, info => seen.push(`${name} ${info.connection}`))
    const [first, second] = [
      await dial(server, { notReady: true }),
      await dial(server, { notReady: true, hello: { connection: 1 } }),
    ]
    for (const { session } of [first, second]) repeat(2, () => session.control({ type: 'ready' }))
    const ended = event(server, 'sessionEnded')
    first.session.control({ type: 'bye' })
    await ended
    answering.resolve()
    await second.message('ready')
    second.session.control({ type: 'ready' })
    const last = event(server, 'sessionEnded')
    second.session.control({ type: 'bye' })
    await last
    expect(seen).toEqual(['session 0', 'session 1', 'sessionEnded 0', 'ready 1', 'sessionEnded 1'])
  })

  test('a second hello, or anything before hello, ends it', async () => {
    server = await startServer()
    const twice = await dial(server)
    twice.session.control({
      ...({ minor: 0, software: 'x', instance: 'i', startedMs: 0 } as object),
      type: 'hello',
      lastEpoch: 0,
      connection: 0,
    })
    expect((await twice.closed).code).toBe(1002)
    const early = await dial(server, { silent: true })
    early.session.control({ type: 'ready' })
    expect((await early.closed).code).toBe(1002)
  })

  test('unknown messages are ignored', async () => {
    server = await startServer()
    const client = await dial(server)
    client.session.control({ type: 'dance', wildly: true })
    expect((await call(server, HOST)).status).toBe(200)
  })

  test('the sessions of a runtime and of the server are bounded', async () => {
    server = await startServer({ limits: { sessionsPerRuntime: 1 } })
    await dial(server)
    const told = event(server, 'refused')
    await expect(openWebSocket(server, {})).rejects.toMatchObject({ status: 503 })
    expect(await told).toMatchObject({ reason: 'too-many-sessions', detail: 'runtime demo', address: '127.0.0.1' })
    expect(server.stats().handshakesRefused).toEqual({ 'too-many-sessions': 1 })
    await dial(server, { runtime: 'other' })
    await server.close({ graceMs: 0 })
    server = await startServer({ limits: { sessions: 1 } })
    await dial(server)
    await expect(openWebSocket(server, { runtime: 'other' })).rejects.toMatchObject({ status: 503 })
  })

  test('a runtime whose clients say nothing takes no places from others', async () => {
    const running = await startServer({ limits: { sessionsPerRuntime: 2, sessions: 3 } })
    server = running
    const silent = [await openWebSocket(running, {}), await openWebSocket(running, {})]
    for (const ws of silent) ws.on('error', () => {})
    await expect(openWebSocket(server, {})).rejects.toMatchObject({ status: 503 })
    await dial(server, { runtime: 'other' })
    for (const ws of silent) ws.terminate()
    const isIn = () => dial(running).then(({ ws }) => ws.on('error', () => {}))
    await eventually(isIn)
  })

  test.each<[string, (client: TestClient) => void]>([
    ['its client said bye', ({ session }) => session.control({ type: 'bye' })],
    ['its client broke the protocol', ({ session }) => session.control({ type: 'ready', epoch: 'x' })],
    ['its client says too much', ({ session }) => repeat(400, () => session.control({ type: 'ready' }))],
    [
      'its client resets too much',
      ({ session }) => repeat(20_000, () => session.control({ type: 'reset', stream: 2, code: 'cancelled' })),
    ],
    ['an operator has drained it', () => server!.drainRuntime('demo', { graceMs: 0 })],
    ['its token was revoked', () => void server!.revoke({ tokenId: 'old' })],
  ])('a session that is over keeps its place until its socket is closed: %s', async (_name, end) => {
    const running = await startServer({ limits: { sessionsPerRuntime: 2, sessionsPerAddress: 3 } })
    server = running
    const old = await token('demo', { id: 'old' })
    const clients = [await dial(running, { token: old }), await dial(running, { token: old })]
    for (const client of clients) {
      client.ws.on('error', () => {})
      end(client)
      client.ws.pause()
    }
    await eventually(() => expect(running.sessions()).toEqual([]))
    await expect(openWebSocket(running, {})).rejects.toMatchObject({ status: 503 })
    await dial(running, { runtime: 'other' })
    await expect(openWebSocket(running, { runtime: 'another' })).rejects.toMatchObject({ status: 503 })
    for (const { ws } of clients) ws.terminate()
    const isIn = () => openWebSocket(running, { runtime: 'another' }).then(ws => ws.on('error', () => {}))
    await eventually(isIn)
  })

  test('drained by its client, it finishes its exchanges and gets no new ones', async () => {
    server = await startServer()
    const { handler, begun } = hanging()
    const client = await dial(server, { handler })
    const calling = call(server, HOST)
    const response = await begun
    client.session.control({ type: 'drain', reason: 'test', afterMs: 0, deadlineMs: 10_000 })
    expect(await client.message('drained')).toEqual({ type: 'drained', lastStream: 2 })
    expect((await call(server, HOST)).status).toBe(503)
    answer(response, 200, 'finished')
    expect((await calling).text).toBe('finished')
  })

  test('drained by its client, it first tells it of the exchanges that wait for a path that is full', {
    timeout: 20_000,
  }, async () => {
    const running = await startServer()
    server = running
    const client = await dial(running, { handler: hanging().handler })
    client.ws.pause()
    const calls = async (count: number, options: CallOptions) => {
      const before = running.sessions()[0]!.exchanges
      for (let i = 0; i < count; i++) call(running, HOST, '/', options).catch(() => {})
      await eventually(() => expect(running.sessions()[0]!.exchanges).toBe(before + count))
    }
    await calls(3, { method: 'POST', body: Buffer.alloc(200_000) })
    await calls(6, { headers: { large: 'x'.repeat(12_000) } })
    client.session.control({ type: 'drain', reason: 'leaving', afterMs: 0, deadlineMs: 20_000 })
    await eventually(() => expect(running.sessions()[0]!.state).toBe('draining'))
    client.ws.resume()
    expect(await client.message('drained')).toEqual({ type: 'drained', lastStream: 18 })
    expect(client.session.streams).toBe(9)
    client.session.close('done')
  })

  test('drained by an operator, its client opens another first, and nothing is lost in between', async () => {
    server = await startServer()
    const client = await dial(server, { handler: always('old') })
    expect(server.drainRuntime('other')).toBe(0)
    expect(server.drainSession(server.sessions()[0]!.id, { reason: 'mov\ning', afterMs: 60_000 })).toBe(true)
    expect(await client.message('drain')).toMatchObject({ reason: 'mov ing', afterMs: 60_000, deadlineMs: 90_000 })
    expect((await call(server, HOST)).text).toBe('old')
    await dial(server, { handler: always('new'), hello: { connection: 1 } })
    client.session.control({ type: 'drained', lastStream: 0 })
    expect((await client.message('bye')).reason).toBe('mov ing')
    expect((await client.closed).code).toBe(1001)
    expect((await call(server, HOST)).text).toBe('new')
  })

  test('drained by an operator, a client that stays is left at the deadline', async () => {
    server = await startServer()
    const { handler, begun } = hanging()
    const client = await dial(server, { handler })
    const calling = call(server, HOST)
    await begun
    expect(server.drainRuntime('demo', { graceMs: 200 })).toBe(1)
    expect((await client.closed).code).toBe(1001)
    expect((await calling).headers['sallyport-error']).toBe('session-lost')
  })

  test('messages that cost us work or a log line are paced', async () => {
    const notices: object[] = []
    const logger = { ...noLogger, info: (fields: object) => void ('notice' in fields && notices.push(fields)) }
    server = await startServer({ logger })
    const client = await dial(server)
    for (let i = 0; i < 100; i++) client.session.control({ type: 'notice', message: 'x' })
    const fresh = await token('demo')
    for (let i = 0; i < 50; i++) {
      client.session.control({ type: 'reauth', token: fresh })
      await client.message('reauth-ok')
    }
    expect(notices.length).toBeLessThan(30)
    for (let i = 0; i < 60; i++) client.session.control({ type: 'reauth', token: fresh })
    await client.message('reauth-refused')
  })

  test('tokens in band are checked at a fixed rate, however patiently they arrive', async () => {
    let checked = 0
    const { jwks } = (await makeWorld()).keys
    server = await startServer({ auth: { jwks, isRevoked: async () => ++checked < 0 } })
    const client = await dial(server)
    const fresh = await token('demo')
    const refused = client.message('reauth-refused')
    let sent = 0
    // Each waits for the answer to the previous one. A second admits one more.
    for (let last = ''; last !== 'reauth-refused'; sent++) {
      expect(sent).toBeLessThan(300)
      client.session.control({ type: 'reauth', token: fresh })
      last = (await Promise.race([client.message('reauth-ok'), refused])).type
    }
    expect(sent).toBeGreaterThan(100)
    expect(checked).toBe(sent)
    expect(client.session.closed).toBe(false)
  })

  test('W4 a flood of control messages ends the session', async () => {
    server = await startServer()
    const client = await dial(server)
    for (let i = 0; i < 400; i++) client.session.control({ type: 'unheard-of' })
    expect(await client.closed).toMatchObject({ code: 1002, reason: 'too many control messages' })
  })
})

describe('the end of a server', () => {
  test('ends connections that wait for their handshake, which then count as refused for no full queue', async () => {
    const running = await startServer()
    server = running
    const { host, port } = running.controlAddress!
    const waiting = [connect({ host, port }), connect({ host, port })]
    const ended = waiting.map(socket => once(socket, 'close'))
    await eventually(() => expect(running.stats().handshakesWaiting).toBe(2))
    await running.close({ graceMs: 1000 })
    await Promise.all(ended)
    expect(running.stats().handshakesRefused).toEqual({})
  })

  test('waits for exchanges, tells clients, and answers the callers', async () => {
    server = await startServer()
    const { handler, begun } = hanging()
    const client = await dial(server, { handler })
    const calling = call(server, HOST)
    const response = await begun
    const closing = server.close({ graceMs: 10_000 })
    expect(server.ready()).toBe(false)
    await client.message('drain')
    client.session.control({ type: 'drained', lastStream: 0 })
    answer(response, 200, 'finished')
    expect((await calling).text).toBe('finished')
    await closing
    expect((await client.closed).code).toBe(1001)
    expect(server.stats()).toMatchObject({ sessions: 0, runtimes: 0, streams: 0, exchanges: 0, bufferedBytes: 0 })
  })

  test('cuts what outlasts the grace', async () => {
    server = await startServer()
    const { handler, begun } = hanging()
    await dial(server, { handler })
    const calling = call(server, HOST).then(
      answered => answered.status,
      () => 'cut',
    )
    await begun
    await server.close({ graceMs: 100 })
    expect([502, 'cut']).toContain(await calling)
  })

  test('cuts sooner if a later close says so, and never later', async () => {
    server = await startServer()
    const { handler, begun } = hanging()
    const client = await dial(server, { handler })
    const calling = server.fetch('demo', '/')
    await begun
    const closing = server.close()
    await Promise.all([server.close({ graceMs: 0 }), server.close()])
    expect((await calling).headers.get('sallyport-error')).toBe('session-lost')
    await Promise.all([closing, client.closed])
  })

  test('nobody waits for a session any more', async () => {
    server = await startServer({ hold: { holdMs: 86_400_000 } })
    const waiting = server.fetch('demo', '/')
    await eventually(() => expect(server!.stats().held).toBe(1))
    await server.close({ graceMs: 0 })
    for (const answered of [waiting, server.fetch('demo', '/')])
      expect((await answered).headers.get('sallyport-error')).toBe('runtime-offline')
    expect(server.stats()).toMatchObject({ held: 0, exchanges: 0 })
  })

  test("an embedder's server from which it was detached can be garbage-collected", async () => {
    server = await startServer({ control: { port: 0, plaintext: true } })
    const attached = new WeakRef(createHttpServer())
    server.attach(attached.deref()!)()
    await eventually(async () => {
      await collectGarbage()
      expect(attached.deref()).toBeUndefined()
    })
  })

  test('nothing listens afterwards, and closing twice is the same as closing once', async () => {
    server = await startServer()
    const { publicAddress, controlAddress } = server
    await Promise.all([server.close({ graceMs: 0 }), server.close()])
    expect(await dialed(publicAddress!)).toBe('ECONNREFUSED')
    expect(await dialed(controlAddress!)).toBe('ECONNREFUSED')
  })

  test('nor does it if it ends during the delay before a drain', async () => {
    server = await startServer({ drainDelayMs: 60_000 })
    void server.drain()
    await server.close({ graceMs: 0 })
    expect(await dialed(server.publicAddress!)).toBe('ECONNREFUSED')
  })

  test('await using closes it', async () => {
    let address: { host: string; port: number }
    {
      await using used = await createServer({
        public: { port: 0 },
        control: 'off',
        domains: [DOMAIN],
        auth: { jwks: (await makeWorld()).keys.jwks },
      })
      address = used.publicAddress!
      expect(used.controlAddress).toBeUndefined()
    }
    await new Promise(resolve => connect(address).once('error', resolve))
  })
})
