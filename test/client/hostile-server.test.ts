/** A server that may send anything: what it costs us is bounded, and what it may not ask is not done. */
import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import { importJWK, SignJWT } from 'jose'
import { afterEach, describe, expect, it } from 'vitest'
import { createKeys } from '../../certs/index.ts'
import { sessionStatus } from '../../cli/service/server-lifecycle.ts'
import { type ClientOptions, createTunnel, type Tunnel } from '../../client/index.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { BODY_UNKNOWN, type Handler } from '../../protocol/exchange.ts'
import { newPrivateKey, publicBytes } from '../../protocol/sealing/hpke.ts'
import { keyIdOf, partAad, sealerFor } from '../../protocol/sealing/sealed-webhook.ts'
import type { ControlMessage } from '../../protocol/wire/control.ts'
import { RefusedError } from '../../protocol/wire/exchange/refusal.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { eventually } from '../support/until.ts'
import { FakeServer, type FakeSession } from './fake-server.ts'

const open: (Tunnel | FakeServer)[] = []
let pair: Pair | undefined
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await ('stats' in one ? one.close({ graceMs: 0 }) : one.close())
  await pair?.stop()
  pair = undefined
})

const jwt = (claims: object) => {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  return `${part({ alg: 'EdDSA' })}.${part({ aud: 'sallyport', exp: Date.now(), ...claims })}.c2ln`
}

const at = (condition: () => boolean, what: string) => eventually(() => expect(condition(), what).toBe(true))

async function begin(
  more: Partial<ClientOptions> = {},
): Promise<{ server: FakeServer; tunnel: Tunnel; lines: string[] }> {
  const server = await FakeServer.listen()
  const lines: string[] = []
  const line = (_fields: object, message: string) => lines.push(message)
  const tunnel = createTunnel({
    url: server.url,
    token: jwt({ sub: 'prod' }),
    target: () => new Response('served'),
    connections: 1,
    backoff: { firstMs: 1 },
    logger: { ...noLogger, info: line, warn: line, error: line },
    ...more,
  })
  open.push(server, tunnel)
  return { server, tunnel, lines }
}

const drain = { type: 'drain', reason: 'again', afterMs: 0, deadlineMs: 86_400_000 } as const
const isOpen = ({ webSocket }: FakeSession) => webSocket.readyState === webSocket.OPEN

it('a server that sends a message byte by byte is left before much of it is held', async () => {
  const { server } = await begin()
  const { webSocket } = await server.serve()
  const { _socket: socket } = webSocket as unknown as { _socket: Socket }
  const length = 128 * 1024 - 1
  let sent = 0
  socket.write(Buffer.from([0x81, 127, 0, 0, 0, 0, 0, length >> 16, (length >> 8) & 0xff, length & 0xff]))
  for (; sent < length - 1 && webSocket.readyState === webSocket.OPEN; sent++) {
    socket.write('a')
    await new Promise(setImmediate)
  }
  expect(sent).toBeLessThan(length - 1)
})

describe('callers that begin requests and cancel them', () => {
  it('B3 cost others nothing, however many there are', async () => {
    const { server, tunnel } = await begin({ target: () => new Promise(() => {}) })
    const session = await server.serve()
    const cancelled = new SallyportError('cancelled')
    for (let round = 0; round < 20; round++) {
      const exchanges = Array.from({ length: 900 }, () => session.exchange())
      await at(() => tunnel.stats().exchanges.live === 900, 'all have come')
      for (const { request } of exchanges) request.requestAbort(cancelled)
      await at(() => tunnel.stats().exchanges.live === 0, 'all are gone')
    }
    expect(isOpen(session)).toBe(true)
    expect(tunnel.ready()).toBe(true)
  })
})

describe('B1 sealed webhooks of a server that lies count as held', () => {
  const PART = 256 * 1024
  const key = newPrivateKey()

  /** A webhook with one part of a body, as it is sent. */
  function sealedWebhook(id: string) {
    const identity = { runtime: 'prod', id, lane: 'l', received: 1_800_000_000_000 }
    const head = {
      ...{ method: 'POST', authority: 'prod.tunnels.test', path: '/', headers: [], trailers: [] },
      caller: { address: '192.0.2.1', scheme: 'https', host: 'prod.tunnels.test' },
      ...{ requestId: id, parts: 2, bodyBytes: 2 * PART },
    }
    const { enc, seal } = sealerFor(publicBytes(key))
    const body = [Buffer.from(JSON.stringify(head)), Buffer.alloc(PART)].flatMap((text, n) => {
      const sealed = seal(n, partAad(identity, n), text)
      const length = Buffer.alloc(4)
      length.writeUInt32BE(sealed.length)
      return [length, sealed]
    })
    const headers = [
      ...['sallyport-inbox-id', id, 'sallyport-inbox-received', new Date(identity.received).toISOString()],
      ...['sallyport-inbox-key', keyIdOf(publicBytes(key)), 'sallyport-inbox-enc', enc, 'sallyport-inbox-lane', 'l'],
      ...['traceparent', `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`],
    ]
    return { headers, body: Buffer.concat(body) }
  }

  it.each([
    ['a part that is not complete', 1, false],
    ['a part that is not complete, of a request whose trace is recorded', 1, true],
    ['a part that its target does not read', 0, false],
  ])('%s', async (_what, missing, traced) => {
    const { server, tunnel } = await begin({
      target: () => new Promise(() => {}),
      inboxKeys: [key.export({ type: 'pkcs8', format: 'pem' }).toString()],
      tracing: 'server',
      limits: { sessionBufferBytes: 8 * PART },
    })
    const session = await server.serve(1, 'fake', ['spans'])
    const begun = 16
    for (let i = 0; i < begun; i++) {
      const { headers, body } = sealedWebhook(`w${i}`)
      const exchange = session.exchange({ method: 'POST', bodyBytes: BODY_UNKNOWN, headers }, { traced })
      exchange.request.requestData(body.subarray(0, body.length - missing))
      await at(() => tunnel.stats().exchanges.total === i + 1, 'it has begun')
      await at(() => exchange.consumedRequestBytes > PART, 'it has arrived')
    }
    await at(() => tunnel.stats().exchanges.live <= 8, 'those beyond the limit have ended')
    expect(tunnel.stats().sessions[0]!.bufferedBytes).toBeGreaterThan(4 * PART)
  })

  it.each([Number.NaN, -1000])('and end with it, if the target consumes %d bytes', async bytes => {
    const handler: Handler = (_, response) => {
      const requestData = () => response.requestConsumed(bytes)
      return { requestData, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    }
    const inboxKeys = [key.export({ type: 'pkcs8', format: 'pem' }).toString()]
    const { server, tunnel } = await begin({ target: { handler }, inboxKeys })
    const { headers, body } = sealedWebhook('w')
    const exchange = (await server.serve()).exchange({ method: 'POST', bodyBytes: BODY_UNKNOWN, headers })
    exchange.request.requestData(body)
    await at(() => exchange.consumedRequestBytes > PART, 'it has arrived')
    await at(() => tunnel.stats().sessions[0]!.bufferedBytes === 0, 'nothing is left of it')
  })
})

describe('a server that asks us to leave each session at once', () => {
  it('is dialled ever less often', async () => {
    const { server } = await begin({ backoff: { firstMs: 200 }, random: () => 1 })
    const arrivals: number[] = []
    for (let i = 0; i < 5; i++) {
      const session = await server.serve()
      arrivals.push(performance.now())
      session.send(drain)
    }
    const waits = arrivals.slice(1).map((time, i) => time - arrivals[i]!)
    for (const [i, leastMs] of [200, 400, 800, 1600].entries()) expect(waits[i]).toBeGreaterThan(leastMs * 0.9)
  })

  it('holds no more than a few sessions, including those that serve', async () => {
    const { server, tunnel } = await begin({
      random: () => 0,
      target: request => (request.url.endsWith('/slow') ? new Promise<Response>(() => {}) : new Response('served')),
    })
    const busy = await server.serve()
    busy.exchange({ path: '/slow' })
    await at(() => tunnel.stats().exchanges.live === 1, 'the exchange has begun')
    busy.send(drain)
    for (let i = 0; i < 40; i++) (await server.serve()).send(drain)
    const last = await server.serve()
    await at(() => server.sessions.filter(isOpen).length <= 9, 'the others have ended')
    expect([isOpen(busy), isOpen(last)]).toEqual([true, true])
    expect((await last.exchange().answer()).text).toBe('served')
  })

  it('even before they are in service', async () => {
    const { server } = await begin({ random: () => 0 })
    for (let i = 0; i < 40; i++) {
      const session = await server.next()
      await session.welcome()
      session.send(drain)
    }
    await at(() => server.sessions.filter(isOpen).length <= 9, 'the others have ended')
  })

  it("even by yamux's go-away", async () => {
    const { server } = await begin({ random: () => 0 })
    for (let i = 0; i < 40; i++) (await server.serve()).yamux.goAway()
    await at(() => server.sessions.filter(isOpen).length <= 9, 'the others have ended')
  })
})

describe('a server that fills each session and then asks us to leave it', () => {
  const target = ({ url }: Request) =>
    url.endsWith('/served') ? new Response('served') : new Promise<Response>(() => {})

  it('makes a connection hold no more bytes than two sessions may', async () => {
    const sessionBufferBytes = 128 * 1024
    const { server, tunnel } = await begin({ target, random: () => 0, limits: { sessionBufferBytes } })
    const held = () => tunnel.stats().sessions.reduce((sum, { bufferedBytes }) => sum + bufferedBytes, 0)
    for (let i = 0; i < 6; i++) {
      const session = await server.serve()
      const exchange = session.exchange({ method: 'POST', bodyBytes: 100_000 })
      exchange.request.requestData(Buffer.alloc(64 * 1024))
      await at(() => tunnel.stats().exchanges.total === i + 1 && held() > 0, 'the request has come')
      session.send(drain)
    }
    await server.serve()
    await at(() => tunnel.stats().exchanges.live < 6, 'the oldest or largest was given up')
    expect(held()).toBeLessThanOrEqual(2 * sessionBufferBytes)
  })

  it('and an honest one that asks once loses nothing: the session that is left and the new one may both be full', async () => {
    const limits = { maxStreams: 4, sessionBufferBytes: 256 * 1024 }
    const { server, tunnel } = await begin({ target, random: () => 0, limits })
    const held = () => tunnel.stats().sessions.map(({ bufferedBytes }) => bufferedBytes)
    const bytes = 4 * 60_000
    for (let i = 0; i < 2; i++) {
      const session = await server.serve()
      for (let n = 0; n < 4; n++) {
        const exchange = session.exchange({ method: 'POST', bodyBytes: 100_000 })
        exchange.request.requestData(Buffer.alloc(60_000))
      }
      await at(() => held()[i]! >= bytes, 'the requests have come')
      if (i === 0) session.send(drain)
    }
    // Their heads count, too.
    expect(held().map(each => Math.floor(each / 1_000))).toEqual([bytes / 1_000, bytes / 1_000])
    expect(tunnel.stats().exchanges).toEqual({ live: 8, total: 8 })
  })

  it('B3 takes nothing from sessions with other servers', async () => {
    const honest = await FakeServer.listen()
    const liar = await FakeServer.listen()
    const limits = { maxStreams: 4, sessionBufferBytes: 128 * 1024 }
    const { tunnel } = await begin({
      ...{ url: [honest.url, liar.url], connections: 2, target, random: () => 0, limits },
    })
    open.push(honest, liar)
    const served = await honest.serve(1, 'honest')
    const waiting = served.exchange({ method: 'POST', bodyBytes: 100_000 })
    waiting.request.requestData(Buffer.alloc(60 * 1024))
    for (let i = 0; i < 5; i++) {
      const session = await liar.serve(1, `liar-${i}`)
      for (let n = 0; n < 4; n++) {
        const exchange = session.exchange({ method: 'POST', bodyBytes: 100_000 })
        exchange.request.requestData(Buffer.alloc(50 * 1024))
      }
      await at(() => tunnel.stats().sessions.some(({ bytesIn }) => bytesIn > 4 * 50 * 1024), 'the requests have come')
      session.send(drain)
      ;(await honest.next()).webSocket.terminate()
    }
    expect((await served.exchange({ path: '/served' }).answer()).text).toBe('served')
    const held = tunnel.stats().sessions.find(({ session }) => session === served.id)?.bufferedBytes
    expect(held).toBeGreaterThanOrEqual(60 * 1024)
  })

  it('makes a connection begin no more exchanges than twice as many as its session may have', async () => {
    const { server, tunnel } = await begin({ target, random: () => 0, limits: { maxStreams: 4 } })
    for (let i = 0; i < 2; i++) {
      const session = await server.serve()
      for (let n = 0; n < 4; n++) session.exchange()
      await at(() => tunnel.stats().exchanges.live === 4 * (i + 1), 'the requests have come')
      session.send(drain)
    }
    const refused = (await server.serve()).exchange({ path: '/served' }).head$.promise
    await expect(refused).rejects.toMatchObject({ refusal: 'overloaded', unprocessed: true })
    expect(tunnel.stats().exchanges).toEqual({ live: 8, total: 8 })
  })
})

describe('a server that mistakes us for another runtime', () => {
  it('is left, reported, and tried again later', async () => {
    const { server, tunnel, lines } = await begin()
    const session = await server.next()
    await session.welcome('fake', 'other')
    await session.closed
    await at(() => lines.some(line => line.includes('took us for the runtime "other"')), 'it is logged')
    expect(tunnel.stats()).toMatchObject({ ready: false, runtime: '' })
    await server.serve()
    await at(() => tunnel.ready(), 'the client is back')
  })

  it('is believed if another claim than sub may name it and we cannot read the token', async () => {
    for (const token of [jwt({ sub: 'me', runtime: 'prod' }), 'opaque']) {
      const { server, tunnel } = await begin({ token })
      await server.serve()
      await at(() => tunnel.ready(), 'the client is in service')
    }
  })
})

describe('an exchange', () => {
  it.each(['GET', 'POST'])('%s on an older epoch than that of its session is refused', async method => {
    const { server, tunnel } = await begin()
    const session = await server.serve(5)
    session.send({ type: 'ready', epoch: 4, active: true })
    const refused = await session.exchange({ method }, { epoch: 4 }).head$.promise.catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(RefusedError)
    expect((refused as RefusedError).refusal).toBe('not-here')
    expect(tunnel.stats().exchanges.total).toBe(0)
    expect((await session.exchange({ method }).answer()).status).toBe(200)
  })
})

const MESSAGES: [string, (turn: number) => ControlMessage][] = [
  ['notice', turn => ({ type: 'notice', message: `line ${turn}`, code: 'x' })],
  ['ready', turn => ({ type: 'ready', epoch: turn + 1, active: turn % 2 === 0 })],
  ['reauth-refused', () => ({ type: 'reauth-refused', requestId: 'x' })],
  ['reauth-ok', () => ({ type: 'reauth-ok', expiresMs: 0 })],
  ['drained', () => ({ type: 'drained', lastStream: 0 })],
  ['drain', () => ({ ...drain, afterMs: 86_400_000 })],
  ['unknown', () => ({ type: 'unknown' }) as never],
]

it.each(MESSAGES)('10,000 messages "%s" end the session, and write a few lines', async (_type, message) => {
  const { server, lines } = await begin()
  for (let session = 0; session < 3; session++) {
    const fake = await server.serve()
    for (let turn = 0; turn < 10_000 && isOpen(fake); turn++) fake.send(message(turn))
    await fake.closed
  }
  await at(() => lines.some(line => line.includes('too many control messages')), 'the reason is logged')
  expect(lines.length).toBeLessThan(100)
})

describe('a token that expires far in the future', () => {
  it.each([253_402_300_800, 8_640_000_000_001, Number.MAX_SAFE_INTEGER, 1e300])('exp %d', async exp => {
    const keys = await createKeys()
    const claims = { aud: 'sallyport', sub: 'demo', iat: Math.floor(Date.now() / 1000), exp }
    const { alg, kid } = keys.privateJwk
    const key = await importJWK(keys.privateJwk)
    const token = () =>
      new SignJWT({ ...claims, jti: randomUUID() }).setProtectedHeader({ alg: alg!, kid: kid! }).sign(key)
    const lines: string[] = []
    pair = await startPair({
      target: () => new Response('served'),
      server: { auth: { jwks: keys.jwks } },
      client: { token: await token(), logger: { ...noLogger, info: (_fields, message) => lines.push(message) } },
    })
    pair.tunnel.setToken(await token())
    await at(() => lines.filter(line => line === 'the session has a fresh token').length >= 2, 'both are renewed')
    expect(pair.server.stats().sessionsEnded).toBe(0)
    expect(pair.server.sessions().map(session => sessionStatus(session).tokenEnds)).toHaveLength(2)
    expect(new Date(pair.tunnel.stats().tokenExpiresMs ?? Number.NaN).getTime()).toBeGreaterThan(Date.now())
  })
})
