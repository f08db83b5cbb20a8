/**
 * P1: an internal exception ends its owner (an exchange, a connection or a session), and the process and everything
 * else go on.
 */
import { once } from 'node:events'
import { rm, writeFile } from 'node:fs/promises'
import { request, ServerResponse } from 'node:http'
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { listenHealth } from '../../admin/index.ts'
import { createAuthority, createReplicaCertificate } from '../../certs/index.ts'
import { DeadlineWatch } from '../../protocol/base/deadline-watch.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import { watchFiles } from '../../protocol/base/watch-files.ts'
import type { Handler, RequestSink } from '../../protocol/exchange.ts'
import { Intake } from '../../protocol/http/http1/intake.ts'
import { SocketWriter } from '../../protocol/http/http1/socket-writer.ts'
import { Http2ServerExchange } from '../../protocol/http/http2/server-exchange.ts'
import { listen } from '../../protocol/http/listener.ts'
import { memoryPair } from '../../protocol/wire/transport-memory.ts'
import { type Clock, systemClock } from '../../protocol/wire/yamux/clock.ts'
import { FrameDecoder } from '../../protocol/wire/yamux/decoder.ts'
import { Delivery } from '../../protocol/wire/yamux/delivery.ts'
import { Outgoing } from '../../protocol/wire/yamux/outgoing.ts'
import { Pings } from '../../protocol/wire/yamux/pings.ts'
import { TickClock } from '../../protocol/wire/yamux/tick-clock.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { Credentials } from '../../server/control/credentials.ts'
import { RedisLink } from '../../server/directory/redis-link.ts'
import { PeerLink } from '../../server/peer/link.ts'
import { PeerListener } from '../../server/peer/listener.ts'
import { call, ok, RawPeer, recorder } from '../protocol/http/http1/raw.ts'
import { dial, startServer, token } from '../server/fixture.ts'
import { unhurried } from '../support/busy.ts'
import { needs } from '../support/needs.ts'
import { Redis } from '../support/redis.ts'
import { makeSecrets } from '../support/secrets.ts'
import { until } from '../support/until.ts'

const uncaught: unknown[] = []
const note = (error: unknown) => uncaught.push(error)
const open: (() => unknown)[] = []
beforeAll(() => {
  process.on('uncaughtException', note)
  process.on('unhandledRejection', note)
})
afterEach(async () => {
  vi.restoreAllMocks()
  for (const close of open.splice(0).reverse()) await close()
  expect(uncaught.splice(0)).toEqual([])
})
afterAll(() => {
  process.off('uncaughtException', note)
  process.off('unhandledRejection', note)
})

const boom = (): never => {
  throw new Error('thrown on purpose')
}

/** The next call of an internal step throws; returns whether it has. */
function trip<Of extends object>(prototype: Of, step: keyof Of & string): () => boolean {
  const spy = vi.spyOn(prototype as never, step as never) as unknown as ReturnType<typeof vi.fn>
  spy.mockImplementationOnce(boom)
  return () => spy.mock.results.some(({ type }) => type === 'throw')
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'

describe('P1 a connection over HTTP/1.1', () => {
  test.each([
    ['as it reads', () => trip(Intake.prototype, 'add'), GET],
    ['as it writes', () => trip(SocketWriter.prototype, 'flushDue'), GET],
    ['as a head is late', () => trip(Intake.prototype, 'clear'), 'GET / HTTP/1.1\r\nHos'],
  ])('%s', async (_, arm, text) => {
    const { handler } = recorder(({ response }) => ok(response))
    const errors: string[] = []
    const logger = { ...noLogger, error: (_fields: object, message: string) => void errors.push(message) }
    const listener = await listen({ port: 0, handler, logger, limits: { headMs: unhurried(600) } })
    open.push(() => listener.close({ graceMs: 0 }))
    const other = await call(listener.address.port)
    other.send(GET)
    await other.saying('ok')
    const victim = await call(listener.address.port)
    victim.send(GET)
    await victim.saying('ok')
    const hasThrown = arm()
    victim.send(text)
    await victim.close()
    expect(hasThrown()).toBe(true)
    expect(errors).toEqual(['a connection of a caller failed'])
    other.send(GET)
    await other.saying('ok', 2)
  })
})

describe('P1 a connection while it is accepted', () => {
  test.each([
    ['plain', false, 'onConnection'],
    ['before its handshake', true, 'onConnection'],
    ['behind its handshake', true, 'handleSocket'],
  ])('%s', async (_, encrypted, step) => {
    const secrets = await makeSecrets()
    const { handler } = recorder(({ response }) => ok(response))
    const errors: string[] = []
    const logger = { ...noLogger, error: (_fields: object, message: string) => void errors.push(message) }
    const onConnection = vi.fn(() => true)
    const listener = await listen({ port: 0, handler, logger, onConnection, ...(encrypted && { tls: secrets.server }) })
    open.push(() => listener.close({ graceMs: 0 }))
    if (step === 'onConnection') onConnection.mockImplementationOnce(boom)
    else vi.spyOn(listener, 'handleSocket').mockImplementationOnce(boom)
    const ask = async () => {
      const { port } = listener.address
      const socket = encrypted
        ? connectTls({ port, host: '127.0.0.1', ca: secrets.ca, servername: 'localhost' })
        : connect({ port, host: '127.0.0.1' })
      open.push(() => socket.destroy())
      const peer = new RawPeer(socket)
      peer.send(GET)
      return peer
    }
    expect(await (await ask()).close()).toBe('')
    expect(errors).toEqual(['a connection could not be taken'])
    await (await ask()).saying('ok')
  })
})

describe('P1 over HTTP/2', () => {
  const throwing: Handler = (asked, response): RequestSink => {
    const sink: RequestSink = {
      requestData: chunk => response.requestConsumed(chunk.length),
      requestEnd: () => ok(response),
      requestAbort() {},
      responseConsumed() {},
    }
    return asked.path === '/' ? sink : { ...sink, [asked.path.slice(1)]: boom }
  }

  async function start(): Promise<() => ClientHttp2Session> {
    const secrets = await makeSecrets()
    const listener = await listen({ port: 0, handler: throwing, tls: secrets.server })
    open.push(() => listener.close({ graceMs: 0 }))
    return () => {
      const session = connectHttp2(`https://127.0.0.1:${listener.address.port}`, {
        ca: secrets.ca,
        servername: 'localhost',
      })
      session.on('error', () => {})
      open.push(() => session.destroy())
      return session
    }
  }

  async function status(session: ClientHttp2Session): Promise<number> {
    const stream = session.request({ ':path': '/' })
    const [headers] = await once(stream, 'response')
    stream.resume()
    return headers[':status']
  }

  const STEPS: [string, string, () => () => boolean][] = [
    ['what takes the body', '/data', () => () => true],
    ['what takes the end', '/end', () => () => true],
    ['as it is begun', '/', () => trip(Http2ServerExchange.prototype, 'start')],
    ['as it ends', '/', () => trip(Http2ServerExchange.prototype, 'finished')],
  ]
  test.each(STEPS)('an exchange: %s', async (_, path, arm) => {
    const session = (await start())()
    expect(await status(session)).toBe(200)
    const hasThrown = arm()
    const stream = session.request({ ':method': 'POST', ':path': path })
    stream.on('error', () => {})
    stream.end('body')
    stream.resume()
    await new Promise(resolve => stream.once('close', resolve))
    await until(hasThrown, 'the step threw')
    expect(await status(session)).toBe(200)
  })

  test('a session', async () => {
    const dialled = await start()
    const [victim, other] = [dialled(), dialled()]
    expect(await status(victim)).toBe(200)
    expect(await status(other)).toBe(200)
    // The first ping after an answer is not counted.
    await new Promise<void>(resolve => victim.ping(() => resolve()))
    const hasThrown = trip(TokenBucket.prototype, 'take')
    const closed = new Promise(resolve => victim.once('close', resolve))
    // The first one after a piece of an answer is not counted.
    for (let i = 0; i < 2; i++) victim.ping(() => {})
    await closed
    expect(hasThrown()).toBe(true)
    expect(await status(other)).toBe(200)
  })
})

describe('P1 a yamux session', () => {
  test.each([
    ['as it reads', () => trip(FrameDecoder.prototype, 'push')],
    ['as it writes', () => trip(Outgoing.prototype, 'flush')],
    ['by its timer', () => trip(Pings.prototype, 'dead')],
  ])('%s', async (_, arm) => {
    const pairs = [0, 1].map(() => {
      const [left, right] = memoryPair()
      const limits = { pingIntervalMs: 1000, pingTimeoutMs: 10_000 }
      return [createSession(left, { role: 'client', ...limits }), createSession(right, { role: 'server', ...limits })]
    })
    open.push(() => {
      for (const session of pairs.flat()) session.close('the test is over')
    })
    const hasThrown = arm()
    for (const [session] of pairs) session!.ping(() => {})
    const ended = () => pairs.filter(sessions => sessions.every(({ closed }) => closed)).length
    await until(() => ended() === 1, 'one has ended')
    expect(hasThrown()).toBe(true)
    const [other] = pairs.find(sessions => sessions.every(({ closed }) => !closed))!
    await new Promise(resolve => other!.ping(resolve))
  })
})

test('P1 a yamux session whose bodies go on after a pause', async () => {
  let hasThrown: (() => boolean) | undefined
  let next = (step: () => void) => step
  const clock: Clock = { ...systemClock, setTimeout: (step, ms) => systemClock.setTimeout(next(step), ms) }
  vi.spyOn(Delivery.prototype, 'waitMs').mockImplementationOnce(() => {
    next = goOn => {
      next = step => step
      return () => {
        hasThrown = trip(Outgoing.prototype, 'schedule')
        goOn()
      }
    }
    return 1
  })
  const [left, right] = memoryPair()
  const [session, peer] = [createSession(left, { role: 'client', clock }), createSession(right, { role: 'server' })]
  open.push(() => session.close('the test is over'))
  for (let i = 0; i < 2; i++) session.open().write(Buffer.alloc(100_000))
  await until(() => session.closed && peer.closed, 'it has ended')
  expect(hasThrown!()).toBe(true)
})

test('P1 a yamux session that flushes early because one turn writes to many streams', async () => {
  const [left, right] = memoryPair()
  const [session, peer] = [createSession(left, { role: 'client' }), createSession(right, { role: 'server' })]
  open.push(() => session.close('the test is over'))
  const hasThrown = trip(Outgoing.prototype, 'flush')
  for (let i = 0; i < 8; i++) session.open().write(Buffer.from('x'))
  await until(() => session.closed && peer.closed, 'it has ended')
  expect(hasThrown()).toBe(true)
})

test('P1 a control session', async () => {
  const server = await startServer()
  open.push(() => server.close({ graceMs: 0 }))
  const [victim, other] = [await dial(server), await dial(server, { token: await token('other') })]
  const hasThrown = trip(Credentials.prototype, 'renew')
  victim.session.control({ type: 'reauth', token: await token('demo') })
  await victim.closed
  expect(hasThrown()).toBe(true)
  expect(other.session.closed).toBe(false)
  other.session.control({ type: 'reauth', token: await token('other') })
  await other.message('reauth-ok')
})

test('P1 a link to another replica', async () => {
  const authority = await createAuthority({ name: 'Authority of the replicas' })
  const { certificate: cert, key } = await createReplicaCertificate(authority)
  const tls = { cert, key, ca: authority.certificate }
  const onReplica = vi.fn()
  const listener = new PeerListener({
    tls,
    replica: 'this~1',
    session: {},
    pick: () => undefined,
    states: () => [],
    stateOf: () => undefined,
    onReplica,
    logger: noLogger,
  })
  open.push(() => listener.close())
  const place = await listener.listen({ port: 0 })
  const lost: string[] = []
  const linkOf = (replica: string, onUp: () => void) => {
    const warn = (_fields: object, message: string) => void lost.push(`${replica}: ${message}`)
    const link = new PeerLink(
      'this~1',
      { host: '127.0.0.1', port: place.port },
      {
        replica,
        address: () => '',
        tls: () => tls,
        session: {},
        logger: { ...noLogger, warn },
        now: () => performance.now(),
        onStanding: () => {},
        onSpans: () => {},
        onUp,
        onChange: () => {},
      },
    )
    open.push(() => link.close())
    return link
  }
  const other = linkOf('other~1', () => {})
  await until(() => other.up, 'the other link is up')
  // Once at this end and once at the other; each time another connection follows.
  onReplica.mockImplementationOnce(boom)
  const onUp = vi.fn().mockImplementationOnce(boom)
  const victim = linkOf('victim~1', onUp)
  await until(() => onUp.mock.calls.length > 1 && victim.up, 'the link is up again')
  expect(onReplica.mock.calls.length).toBeGreaterThan(2)
  expect(lost.filter(line => line.startsWith('other'))).toEqual([])
  expect(other.up).toBe(true)
})

test.runIf(needs('redis'))('P1 a link to the directory', async () => {
  const redis = await Redis.start({ user: { name: 'replica', password: 'secret' } })
  open.push(() => redis.stop())
  const address = { url: redis.url, user: 'replica', password: 'secret' }
  const place = { channel: 'sallyport:changes', key: '{sallyport}:replicas' }
  const closed = Promise.withResolvers<Error>()
  const heard: string[] = []
  const others = { message: (text: string) => void heard.push(text), closed: boom }
  const other = await RedisLink.open(address, place, 5000, others)
  await RedisLink.open(address, place, 5000, { message: boom, closed: closed.resolve })
  await other.publish('one')
  expect((await closed.promise).message).toBe('thrown on purpose')
  await other.publish('two')
  await until(() => heard.length === 2, 'the other link hears')
  vi.spyOn(others, 'closed').mockImplementation((() => {}) as never)
  other.close()
})

test('P1 a connection to the admin listener', async () => {
  const health = await listenHealth({
    port: 0,
    source: { ready: () => true, status: () => ({}), metrics: async () => ({ contentType: 'text/plain', text: '' }) },
  })
  open.push(() => health.close())
  const ask = async () => {
    const asked = request({ host: '127.0.0.1', port: health.address.port, path: '/livez', agent: false }).end()
    const [response] = await once(asked, 'response')
    return response.resume().statusCode
  }
  expect(await ask()).toBe(200)
  const hasThrown = trip(ServerResponse.prototype, 'writeHead')
  await expect(ask()).rejects.toThrow('socket hang up')
  expect(hasThrown()).toBe(true)
  expect(await ask()).toBe(200)
})

describe('P1 timers', () => {
  test('a watch ends only its owner', async () => {
    const threw = vi.fn()
    const checks = vi.fn(() => 1)
    const other = new DeadlineWatch(checks, { threw: boom })
    other.within(1)
    open.push(() => other.stop())
    new DeadlineWatch(boom, { threw }).within(1)
    await until(() => threw.mock.calls.length === 1, 'the owner was told')
    const before = checks.mock.calls.length
    await until(() => checks.mock.calls.length > before + 1, 'the other goes on')
  })

  test("the sessions' clock still calls the timers that follow", async () => {
    const error = vi.fn()
    const clock = new TickClock({ ...noLogger, error })
    const after = vi.fn()
    clock.setTimeout(boom, 20)
    clock.setTimeout(after, 20)
    await until(() => after.mock.calls.length === 1, 'the second was called')
    expect(error).toHaveBeenCalledOnce()
  })

  test('a file watcher still reports the next change', async () => {
    const changed = vi.fn().mockImplementationOnce(boom)
    const error = vi.fn()
    const file = join(tmpdir(), `sallyport-owners-${process.pid}`)
    await writeFile(file, 'one')
    open.push(() => rm(file))
    const watch = watchFiles([file], { ...noLogger, error }, changed)
    open.push(() => watch.close())
    await until(() => error.mock.calls.length === 1, 'the log was told')
    await writeFile(file, 'two, and longer')
    await until(() => changed.mock.calls.length > 1, 'it was told again')
  })
})
