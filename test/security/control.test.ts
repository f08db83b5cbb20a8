/** security.md, "Control endpoint": W1 to W9. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { CompactSign, importJWK, SignJWT } from 'jose'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { WebSocket } from 'ws'
import { noLogger } from '../../protocol/base/log.ts'
import { CONNECT_PATH, SUBPROTOCOL } from '../../protocol/wire/control.ts'
import { ControlEndpoint } from '../../server/control/endpoint.ts'
import type { Server } from '../../server/server.ts'
import {
  always,
  CONTROL_NAME,
  call,
  DOMAIN,
  dial,
  event,
  hanging,
  makeWorld,
  openWebSocket,
  startServer,
  type TestClient,
  token,
} from '../server/fixture.ts'
import { unhurried } from '../support/busy.ts'
import { clientHello } from '../support/client-hello.ts'
import { long } from '../support/needs.ts'
import { eventually } from '../support/until.ts'

let server: Server
const startControl = async (options: Parameters<typeof startServer>[0] = {}) => {
  server = await startServer(options)
}
afterEach(async () => {
  vi.useRealTimers()
  vi.restoreAllMocks()
  await server.close({ graceMs: 0 })
})

/** A TLS connection to the control endpoint, for hand-written bytes. */
async function rawTls(): Promise<Socket> {
  const { authority } = await makeWorld()
  const { host, port } = server.controlAddress!
  const socket = connectTls({ host, port, ca: authority.certificate, servername: CONTROL_NAME })
  await new Promise<void>((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
  return socket
}

function closed(socket: Socket): Promise<void> {
  socket.on('error', () => {})
  socket.resume()
  return new Promise(resolve => socket.once('close', () => resolve()))
}

async function refusal(options: Parameters<typeof openWebSocket>[1]) {
  const told = event(server, 'refused')
  const answer = await openWebSocket(server, options).then(
    () => undefined,
    error => error as { status: number; body: string; headers: Record<string, string> },
  )
  return { answer, refused: await told }
}

describe('W1 tokens at the handshake', () => {
  test.each([
    ['no token', { headers: { authorization: '' } }, 401],
    ['another scheme', { headers: { authorization: 'Basic YTpi' } }, 401],
    ['a bad token', { token: 'x.y.z' }, 401],
    ['two tokens in one header', { headers: { authorization: 'Bearer a, Bearer b' } }, 401],
    ['a token in the URL', { path: `${CONNECT_PATH}?token=abc` }, 401],
    ['another path', { path: '/tunnel/v2/connect' }, 404],
  ])('%s is refused before the upgrade', async (_name, options, status) => {
    await startControl()
    const { answer } = await refusal(options)
    expect(answer?.status).toBe(status)
    expect(server.stats().sessionsOpened).toBe(0)
  })

  test('an expired token is refused', async () => {
    await startControl({ auth: { jwks: (await makeWorld()).keys.jwks, clockToleranceS: 0 } })
    const { answer, refused } = await refusal({ token: await token('demo', { ttl: 1000, now: Date.now() - 5000 }) })
    expect(answer?.status).toBe(401)
    expect(refused.detail).toContain('expired')
  })

  test('two Authorization headers are refused, though Node would accept the first', async () => {
    await startControl()
    const bearer = await token('demo')
    const socket = await rawTls()
    const answered = new Promise<string>(resolve => socket.once('data', data => resolve(data.toString())))
    socket.write(
      `GET ${CONNECT_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${bearer}\r\nauthorization: Bearer x\r\n` +
        `connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n` +
        `sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: ${SUBPROTOCOL}\r\n\r\n`,
    )
    expect(await answered).toMatch(/^HTTP\/1\.1 401 /)
    socket.destroy()
  })

  test('another subprotocol gets 400', async () => {
    await startControl()
    const { answer } = await refusal({ protocols: ['sallyport.v9'] })
    expect(answer?.status).toBe(400)
  })

  test.each([
    ['version 8', 'HTTP/1.1', 'sec-websocket-version: 8\r\n'],
    ['version 013', 'HTTP/1.1', 'sec-websocket-version: 013\r\n'],
    ['version 13.0', 'HTTP/1.1', 'sec-websocket-version: 13.0\r\n'],
    ['two versions', 'HTTP/1.1', 'sec-websocket-version: 13\r\nsec-websocket-version: 8\r\n'],
    ['no version', 'HTTP/1.1', ''],
    ['HTTP/1.0', 'HTTP/1.0', 'sec-websocket-version: 13\r\n'],
  ])('an upgrade with %s gets a 426 that names version 13', async (_name, http, version) => {
    await startControl()
    const told = event(server, 'refused')
    const socket = await rawTls()
    const answered = new Promise<string>(resolve => socket.once('data', data => resolve(data.toString())))
    socket.write(
      `GET ${CONNECT_PATH} ${http}\r\nhost: x\r\nauthorization: Bearer ${await token('demo')}\r\n` +
        `connection: upgrade\r\nupgrade: websocket\r\n${version}` +
        `sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: ${SUBPROTOCOL}\r\n\r\n`,
    )
    expect((await answered).split('\r\n')).toEqual(
      expect.arrayContaining(['HTTP/1.1 426 Upgrade Required', 'sec-websocket-version: 13']),
    )
    expect((await told).reason).toBe('not-upgrade')
    expect(server.stats().sessionsOpened).toBe(0)
    socket.destroy()
  })

  test.each([
    ['of known length', 'content-length: 5\r\n', 'hello'],
    ['in chunks', 'transfer-encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n'],
    ['whose length nobody can take', 'content-length: 99999999999999999\r\n', ''],
  ])('an upgrade with a body %s gets 400', async (_name, framing, body) => {
    await startControl()
    const told = event(server, 'refused')
    const socket = await rawTls()
    const answered = new Promise<string>(resolve => socket.once('data', data => resolve(data.toString())))
    const bearer = await token('demo')
    const upgrade = (field: string) =>
      `GET ${CONNECT_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${bearer}\r\n${field}` +
      `connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n` +
      `sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: ${SUBPROTOCOL}\r\n\r\n`
    socket.write(upgrade(framing) + body)
    expect(await answered).toMatch(/^HTTP\/1\.1 400 /)
    expect((await told).reason).toBe('body')
    const other = await rawTls()
    other.write(upgrade('content-length: 0\r\n'))
    expect(String((await once(other, 'data'))[0])).toMatch(/^HTTP\/1\.1 101 /)
    socket.destroy()
    other.destroy()
  })

  test('a request without an upgrade gets 426', async () => {
    await startControl()
    const { authority } = await makeWorld()
    const { host, port } = server.controlAddress!
    const socket = connectTls({ host, port, ca: authority.certificate, servername: CONTROL_NAME })
    const answered = new Promise<string>(resolve => socket.once('data', data => resolve(data.toString())))
    socket.write(`GET ${CONNECT_PATH} HTTP/1.1\r\nhost: x\r\n\r\n`)
    expect(await answered).toMatch(/^HTTP\/1\.1 426 /)
    socket.destroy()
  })

  test('TLS 1.2 is refused unless explicitly allowed', async () => {
    await startControl()
    await expect(openWebSocket(server, { maxVersion: 'TLSv1.2' })).rejects.toThrow(/alert|version/i)
    const made = await makeWorld()
    await server.close({ graceMs: 0 })
    await startControl({
      control: { port: 0, tls: { cert: made.server.certificate, key: made.server.key }, tlsMin: 'TLSv1.2' },
    })
    const ws = await openWebSocket(server, { maxVersion: 'TLSv1.2' })
    ws.terminate()
  })
})

describe('W2 the handshake is bounded', () => {
  test('a silent client is cut at the deadline, before TLS and after it', async () => {
    await startControl({ limits: { handshakeMs: unhurried(1000) } })
    const { host, port } = server.controlAddress!
    await closed(connectTcp({ host, port }))
    await closed(await rawTls())
  })

  test('a client that never sends hello is cut at the deadline', async () => {
    await startControl({ limits: { handshakeMs: unhurried(1000) } })
    const client = await dial(server, { silent: true })
    await client.closed
    await eventually(() => expect(server.stats()).toMatchObject({ sessionsOpened: 1, sessionsEnded: 1 }))
  })

  test.each([
    [true, 101],
    [false, 401],
  ])(
    'while its token is checked, nothing that a client sends waits in pieces, and none is lost (valid: %s)',
    async (valid, status) => {
      const upgrade = vi.spyOn(ControlEndpoint.prototype, 'upgrade')
      const checked = Promise.withResolvers<boolean>()
      await startControl({ auth: { jwks: (await makeWorld()).keys.jwks, isRevoked: () => checked.promise } })
      const socket = (await rawTls()) as TLSSocket
      socket.setNoDelay()
      let heard = ''
      socket.on('data', chunk => (heard += chunk.toString('latin1')))
      const fields = ['Host: a', 'Connection: upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13']
      fields.push(`Sec-WebSocket-Protocol: ${SUBPROTOCOL}`, 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==')
      fields.push(`Authorization: Bearer ${await token('demo')}`)
      socket.write(`GET ${CONNECT_PATH} HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n`)
      await eventually(() => expect(upgrade).toHaveBeenCalled())
      const taken = upgrade.mock.calls[0]![1] as TLSSocket
      // It does not wait for the answer, and sends one byte in each TLS record.
      const hello = { type: 'hello', minor: 0, software: 'test/1', instance: 'instance-1', startedMs: 1, lastEpoch: 0 }
      const frames = [{ ...hello, connection: 0 }, ...Array.from({ length: 300 }, () => ({ type: 'unknown' }))].map(
        one => {
          const payload = Buffer.from(JSON.stringify(one))
          return Buffer.concat([Buffer.from([0x81, 0x80 + payload.length, 0, 0, 0, 0]), payload])
        },
      )
      const sent = Buffer.concat(frames)
      for (let at = 0; at < sent.length; at++) {
        socket.write(sent.subarray(at, at + 1))
        await new Promise(setImmediate)
      }
      const { buffer } = (taken as unknown as { _readableState: { buffer: unknown[] } })._readableState
      expect(buffer.length).toBeLessThanOrEqual(1)
      checked.resolve(!valid)
      await eventually(() => expect(heard).toMatch(new RegExp(`^HTTP/1.1 ${status} `)))
      if (valid) await eventually(() => expect(heard).toContain('"welcome"'))
      const gone = once(taken, 'close')
      socket.end()
      await gone
    },
  )

  test('silent connections wait, and are refused over the bound', async () => {
    await startControl({ limits: { handshakesWaiting: 20, handshakesWaitingPerAddress: 10, handshakeMs: 60_000 } })
    const { host, port } = server.controlAddress!
    const refused: Socket[] = []
    const sockets = Array.from({ length: 14 }, () => connectTcp({ host, port }))
    const four = new Promise<void>(resolve => {
      for (const socket of sockets) {
        socket.on('error', () => {})
        socket.resume().once('close', () => refused.push(socket) === 4 && resolve())
      }
    })
    await four
    expect(server.stats().handshakesWaiting).toBe(10)
    expect(server.stats().handshakesRefused['queue-full']).toBe(4)
    for (const socket of sockets) socket.destroy()
    // Their places are free again.
    await dial(server)
  })

  test.each([
    ['', 'host: x\r\n'],
    [', with an unknown expectation', 'host: x\r\nexpect: x\r\n'],
    [', without a host', ''],
  ])('of a pipeline, only the first request is read, since the others have no budget%s', async (_, fields) => {
    await startControl()
    const socket = await rawTls()
    let begun = 0
    const count = () => begun++
    subscribe('http.server.request.start', count)
    socket.write(`GET / HTTP/1.1\r\n${fields}\r\n`.repeat(100))
    await closed(socket)
    unsubscribe('http.server.request.start', count)
    expect(begun).toBe(1)
  })

  test('silent connections delay nobody who speaks', async () => {
    await startControl({ limits: { handshakeMs: 60_000 } })
    const { host, port } = server.controlAddress!
    const silent = Array.from({ length: 200 }, () => connectTcp({ host, port }))
    await eventually(() => expect(server.stats().handshakesWaiting).toBe(200))
    const client = await dial(server)
    expect(server.stats().handshakesWaiting).toBe(200)
    client.ws.terminate()
    for (const socket of silent) socket.destroy()
  })

  test('half a ClientHello waits like silence and starts no TLS', async () => {
    await startControl({ limits: { handshakeMs: 60_000 } })
    const { host, port } = server.controlAddress!
    const hello = await clientHello(CONTROL_NAME)
    const raw = connectTcp({ host, port })
    raw.write(hello.subarray(0, hello.length - 1))
    const client = await dial(server)
    expect(server.stats().handshakesWaiting).toBe(1)
    raw.write(hello.subarray(hello.length - 1))
    // The answer: ServerHello.
    expect((await once(raw, 'data'))[0][0]).toBe(22)
    expect(server.stats().handshakesWaiting).toBe(0)
    client.ws.terminate()
    raw.destroy()
  })

  test('when one more handshake begins, the oldest of those under way ends', async () => {
    await startControl({ limits: { handshakesUnderWay: 8, handshakeMs: 60_000 } })
    const { host, port } = server.controlAddress!
    const hello = await clientHello(CONTROL_NAME)
    const stalled: Socket[] = []
    const ended: Socket[] = []
    for (let i = 0; i < 8; i++) {
      const raw = connectTcp({ host, port })
      raw.on('error', () => {}).once('close', () => ended.push(raw))
      raw.write(hello)
      await once(raw, 'data')
      raw.resume()
      stalled.push(raw)
    }
    const client = await dial(server)
    await eventually(() => expect(ended).toEqual([stalled[0]]))
    expect(server.stats().handshakesRefused['queue-full']).toBe(1)
    client.ws.terminate()
    for (const raw of stalled) raw.destroy()
  })

  test('the address comes from PROXY protocol v2, and only from trusted proxies', async () => {
    const made = await makeWorld()
    const tls = { cert: made.server.certificate, key: made.server.key }
    await startControl({ control: { port: 0, tls, proxyProtocol: ['127.0.0.1'] } })
    const { host, port } = server.controlAddress!
    const header = Buffer.from('0d0a0d0a000d0a515549540a2111000c', 'hex')
    const addresses = Buffer.from([203, 0, 113, 9, 10, 0, 0, 1, 0x10, 0x00, 0x01, 0xbb])
    const raw = connectTcp({ host, port })
    raw.write(Buffer.concat([header, addresses]))
    const socket = connectTls({ socket: raw, ca: made.authority.certificate, servername: CONTROL_NAME })
    const ws = new WebSocket(`ws://${CONTROL_NAME}${CONNECT_PATH}`, [SUBPROTOCOL], {
      createConnection: () => socket,
      headers: { authorization: `Bearer nonsense` },
    })
    ws.on('error', () => {})
    expect((await event(server, 'refused')).address).toBe('203.0.113.9')
    // Without the header, a trusted proxy is not served.
    const bare = connectTcp({ host, port })
    bare.write('GET / HTTP/1.1\r\n\r\n')
    await closed(bare)
  })

  test('the total number of connections is bounded, and each one that ends, in whatever way, makes room', async () => {
    await startControl({
      limits: { sessions: 2, handshakesWaiting: 2, handshakesWaitingPerAddress: 2, handshakeMs: 5000 },
    })
    const { host, port } = server.controlAddress!
    const { authority } = await makeWorld()
    for (let i = 0; i < 5; i++) {
      const ended = event(server, 'sessionEnded')
      const client = await dial(server)
      if (i % 2 === 0) client.ws.terminate()
      else client.session.close('done')
      await ended
      await openWebSocket(server, { token: 'nonsense' }).catch(() => {})
      const plain = connectTcp({ host, port }).end('not TLS')
      await closed(plain)
      const old = connectTls({ host, port, ca: authority.certificate, maxVersion: 'TLSv1.2' })
      await closed(old)
    }
    const held = Array.from({ length: 4 }, () => connectTcp({ host, port }))
    await Promise.all(held.slice(0, 2).map(closed))
    expect(server.stats().handshakesWaiting).toBe(2)
    for (const socket of held) socket.destroy()
    await eventually(async () => (await dial(server)).ws.terminate())
  })

  test('a head over 16 KiB is refused', async () => {
    await startControl()
    const socket = await rawTls()
    const ended = closed(socket)
    const answered = new Promise<string>(resolve => socket.once('data', data => resolve(data.toString())))
    socket.write(`GET ${CONNECT_PATH} HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`)
    expect(await answered).toMatch(/^HTTP\/1\.1 431 /)
    await ended
  })
})

test('W3 no compression is negotiated', async () => {
  await startControl()
  const made = await makeWorld()
  const { host, port } = server.controlAddress!
  const ws = new WebSocket(`wss://${host}:${port}${CONNECT_PATH}`, [SUBPROTOCOL], {
    ca: made.authority.certificate,
    headers: { authorization: `Bearer ${await token('demo')}` },
    perMessageDeflate: true,
  })
  await new Promise(resolve => ws.once('open', resolve))
  expect(ws.extensions).toBe('')
  ws.terminate()
})

describe('W4 what breaks the WebSocket ends only that session', () => {
  const attacks: [string, (socket: Socket) => void][] = [
    ['an unmasked frame', socket => socket.write(Buffer.from([0x82, 0x01, 0x00]))],
    ['a length of 2^60', socket => socket.write(Buffer.from([0x82, 0xff, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]))],
    ['a message over 128 KiB', socket => socket.write(Buffer.from([0x82, 0xff, 0, 0, 0, 0, 0, 2, 0, 1, 1, 2, 3, 4]))],
    [
      'more than 16 fragments',
      socket => {
        for (let i = 0; i < 20; i++) socket.write(Buffer.from([i === 0 ? 0x02 : 0x00, 0x81, 1, 2, 3, 4, 0]))
      },
    ],
    ['reserved bits', socket => socket.write(Buffer.from([0xc2, 0x81, 1, 2, 3, 4, 0]))],
    ['text that is no UTF-8', socket => socket.write(Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0xff]))],
    ['a control message that is no JSON', socket => socket.write(Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x7b]))],
    [
      'yamux before hello',
      socket => socket.write(Buffer.from([0x82, 0x8c, 0, 0, 0, 0, ...new Uint8Array(12).fill(9)])),
    ],
  ]

  test.each(attacks)('%s', async (_name, attack) => {
    await startControl()
    await dial(server, { handler: always('unhurt') })
    const client = await dial(server, { silent: true, token: await token('other') })
    attack((client.ws as unknown as { _socket: Socket })._socket)
    await client.closed
    expect((await call(server, `demo.${DOMAIN}`)).text).toBe('unhurt')
    expect(server.sessions()).toHaveLength(1)
  })
})

test.each<[string, number[], string]>([
  ['pongs', [0x8a, 0x80, 1, 2, 3, 4], 'too many frames without payload'],
  ['messages without a byte', [0x82, 0x80, 1, 2, 3, 4], 'too many frames without payload'],
  [
    'answers to no ping',
    [0x82, 0x8c, 0, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7],
    'yamux: too many answers to pings that were never sent',
  ],
])('W4 a flood of %s ends only its session; a few hundred do no harm', async (_name, frame, reason) => {
  await startControl()
  await dial(server, { handler: always('unhurt') })
  const flooder = await dial(server, { token: await token('other') })
  const { _socket: socket } = flooder.ws as unknown as { _socket: Socket }
  const flood = (count: number) => socket.write(Buffer.concat(Array(count).fill(Buffer.from(frame))))
  flood(900)
  expect((await call(server, `other.${DOMAIN}`)).status).toBe(200)
  const ended = event(server, 'sessionEnded')
  flood(6000)
  expect(await ended).toMatchObject({ runtime: 'other', reason })
  expect((await call(server, `demo.${DOMAIN}`)).text).toBe('unhurt')
})

test('W4 a client that opens streams at the server ends only its session, and causes no more refusals than control messages', async () => {
  await startControl()
  await dial(server, { handler: always('unhurt') })
  const flooder = await dial(server, { token: await token('other') })
  const { _socket: socket } = flooder.ws as unknown as { _socket: Socket }
  let id = 1
  const open = (count: number) => {
    const frames = Array.from({ length: count }, () => {
      const frame = Buffer.from([0x82, 0x8c, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
      id += 2
      frame.writeUInt32BE(id, 10)
      return frame
    })
    socket.write(Buffer.concat(frames))
  }
  open(300)
  expect((await call(server, `other.${DOMAIN}`)).status).toBe(200)
  const ended = event(server, 'sessionEnded')
  open(300)
  expect(await ended).toMatchObject({ runtime: 'other', reason: 'yamux: too many streams opened and reset' })
  expect((await call(server, `demo.${DOMAIN}`)).text).toBe('unhurt')
})

test("W5 a browser's Origin is refused", async () => {
  await startControl()
  const { answer, refused } = await refusal({ headers: { origin: 'https://evil.example' } })
  expect([answer?.status, refused.reason]).toEqual([403, 'origin'])
})

describe('W6 a session ends with its token', () => {
  const soon = async () => ({
    auth: { jwks: (await makeWorld()).keys.jwks, clockToleranceS: 1 },
  })

  test('after exp and the skew it is told to leave, and gets no new streams', async () => {
    await startControl(await soon())
    const client = await dial(server, { token: await token('demo', { ttl: 1000 }) })
    const drain = await client.message('drain')
    expect(drain.afterMs).toBe(0)
    expect(drain.deadlineMs).toBeLessThanOrEqual(60_000)
    expect((await call(server, `demo.${DOMAIN}`)).status).toBe(503)
    await client.closed
  })

  test('it is cut within 60 s, even during an exchange', async () => {
    let now = Date.now()
    await startControl({ ...(await soon()), clock: () => now })
    const { handler, begun } = hanging()
    const client = await dial(server, { token: await token('demo', { ttl: '1h', now }), handler })
    const calling = call(server, `demo.${DOMAIN}`)
    await begun
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    client.session.control({ type: 'reauth', token: await token('demo', { ttl: 1000, now }) })
    await client.message('reauth-ok')
    now += 2100
    vi.advanceTimersByTime(2100)
    await client.message('drain')
    expect(server.sessions()[0]).toMatchObject({ state: 'draining', exchanges: 1 })
    now += 57_900
    vi.advanceTimersByTime(57_900)
    await client.closed
    expect((await calling).headers['sallyport-error']).toBe('session-lost')
  })

  const DAY = 86_400_000
  const drainIn = (client: TestClient, deadlineMs: number) =>
    client.session.control({ type: 'drain', reason: 'I stay', afterMs: 0, deadlineMs })

  test.each<[string, boolean, (client: TestClient) => void, (client: TestClient) => void]>([
    ['behind the end of its token', true, () => {}, client => drainIn(client, DAY)],
    ['before the end of its token', true, client => drainIn(client, DAY), () => {}],
    ['before and behind it', true, client => drainIn(client, DAY), client => drainIn(client, DAY)],
    ["behind the server's drain", false, () => {}, client => drainIn(client, DAY)],
    ["before the server's drain", false, client => drainIn(client, DAY), () => {}],
  ])('its client cannot extend it with a drain %s', async (_name, expires, before, behind) => {
    let now = Date.now()
    await startControl({ ...(await soon()), clock: () => now })
    const { handler, begun } = hanging()
    const client = await dial(server, { token: await token('demo', { ttl: '1h', now }), handler })
    const calling = call(server, `demo.${DOMAIN}`)
    await begun
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    if (expires) {
      client.session.control({ type: 'reauth', token: await token('demo', { ttl: 1000, now }) })
      await client.message('reauth-ok')
    }
    before(client)
    // An answer to a later message: the earlier ones were processed.
    const heard = async () => {
      client.session.control({ type: 'reauth', token: 'nonsense' })
      await client.message('reauth-refused')
    }
    await heard()
    now += 2100
    if (expires) vi.advanceTimersByTime(2100)
    else server.drainSession(server.sessions()[0]!.id, { afterMs: 0, graceMs: 50_000 })
    await client.message('drain')
    for (let i = 0; i < 3; i++) {
      behind(client)
      await heard()
      now += 10_000
      vi.advanceTimersByTime(10_000)
    }
    expect(client.session.closed).toBe(false)
    now += 20_000
    vi.advanceTimersByTime(20_000)
    await client.closed
    expect((await calling).headers['sallyport-error']).toBe('session-lost')
  })

  test('a fresh token extends it, and a refused one leaves the old one in force', async () => {
    await startControl(await soon())
    const client = await dial(server, { token: await token('demo', { ttl: 1500 }) })
    client.session.control({ type: 'reauth', token: await token('other') })
    await client.message('reauth-refused')
    client.session.control({ type: 'reauth', token: 'nonsense' })
    await client.message('reauth-refused')
    client.session.control({ type: 'reauth', token: await token('demo', { ttl: '1h' }) })
    const ok = await client.message('reauth-ok')
    expect(ok.expiresMs).toBeGreaterThan(Date.now() + 3_500_000)
    expect(server.sessions()[0]).toMatchObject({ state: 'open', tokenEndsAt: ok.expiresMs })
    expect((await call(server, `demo.${DOMAIN}`)).status).toBe(200)
  })

  test('a revoked token ends its session at once and lets nobody in', async () => {
    await startControl()
    const bearer = await token('demo', { id: 'stolen' })
    const client = await dial(server, { token: bearer })
    const other = await dial(server, { token: await token('other') })
    expect(await server.revoke({ tokenId: 'stolen' })).toEqual({ ended: 1, kept: false })
    expect((await client.closed).code).toBe(4401)
    expect((await refusal({ token: bearer })).refused.detail).toContain('revoked')
    expect(other.session.closed).toBe(false)
  })

  test('a hook that revokes ends live sessions within 10 s', async () => {
    let revoked = false
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    await startControl({ auth: { jwks: (await makeWorld()).keys.jwks, isRevoked: async () => revoked } })
    const client = await dial(server)
    revoked = true
    await vi.advanceTimersByTimeAsync(10_000)
    expect((await client.closed).code).toBe(4401)
  })

  test.each(['a rule', 'a hook'])('a fresh token that %s has revoked does not renew its session', async by => {
    const said: object[] = []
    const jwks = (await makeWorld()).keys.jwks
    const isRevoked = async ({ tokenId }: { tokenId?: string | undefined }) => by === 'a hook' && tokenId === 'stolen'
    await startControl({ auth: { jwks, isRevoked }, logger: { ...noLogger, warn: fields => void said.push(fields) } })
    const client = await dial(server, { token: await token('demo', { id: 'own', ttl: '1h' }) })
    const [before] = server.sessions()
    if (by === 'a rule') await server.revoke({ tokenId: 'stolen' })
    client.session.control({ type: 'reauth', token: await token('demo', { id: 'stolen', ttl: '2h' }) })
    await client.message('reauth-refused')
    expect(said).toMatchObject([{ check: 'revoked: the token is revoked' }])
    expect(server.sessions()).toMatchObject([{ state: 'open', tokenEndsAt: before!.tokenEndsAt }])
  })

  test('a hook that hangs for one session delays no other session, and that one not forever', async () => {
    const asked = new Map<string | undefined, number>()
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    // It answers once at the handshake, then hangs, then says revoked.
    const isRevoked = async ({ tokenId }: { tokenId?: string | undefined }) => {
      const times = (asked.get(tokenId) ?? 0) + 1
      asked.set(tokenId, times)
      if (tokenId === 'slow' && times === 2) return new Promise<boolean>(() => {})
      return times > 2
    }
    await startControl({ auth: { jwks: (await makeWorld()).keys.jwks, isRevoked } })
    const clients = [
      await dial(server, { token: await token('demo', { id: 'slow' }) }),
      await dial(server, { token: await token('other', { id: 'quick' }) }),
    ]
    const allEnded = async () => {
      await vi.advanceTimersByTimeAsync(5000)
      expect(clients.map(({ session }) => session.closed)).toEqual([true, true])
    }
    await eventually(allEnded, 500)
    for (const { closed } of clients) expect((await closed).code).toBe(4401)
  })

  test('a rule that arrives while the hook is being asked takes effect', async () => {
    const asked = Promise.withResolvers<void>()
    const answer = Promise.withResolvers<boolean>()
    const isRevoked = () => {
      asked.resolve()
      return answer.promise
    }
    await startControl({ auth: { jwks: (await makeWorld()).keys.jwks, isRevoked } })
    const refused = refusal({ token: await token('demo', { id: 'stolen' }) })
    await asked.promise
    await server.revoke({ tokenId: 'stolen' })
    answer.resolve(false)
    expect((await refused).refused.detail).toContain('revoked')
  })

  test('a hook that fails refuses new clients and cuts no live one', async () => {
    let broken = false
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const isRevoked = async () => {
      if (broken) throw new Error('database away')
      return false
    }
    await startControl({ auth: { jwks: (await makeWorld()).keys.jwks, isRevoked } })
    const client = await dial(server)
    broken = true
    await vi.advanceTimersByTimeAsync(10_000)
    expect((await refusal({})).answer?.status).toBe(500)
    expect(client.session.closed).toBe(false)
  })
})

test('W7 each stream is authorised: after the token has ended there are no more, drained or not', async () => {
  let now = Date.now()
  await startControl({ clock: () => now })
  await dial(server, { token: await token('demo', { ttl: '1h', now }) })
  expect((await call(server, `demo.${DOMAIN}`)).status).toBe(200)
  now += 3_600_000 + 31_000
  expect((await call(server, `demo.${DOMAIN}`)).status).toBe(503)
})

describe('W8 a client acts only for its own runtime', () => {
  const sign = async (claims: Record<string, unknown>, rawPayload?: string) => {
    const { keys } = await makeWorld()
    const key = await importJWK(keys.privateJwk, keys.privateJwk.alg)
    if (rawPayload === undefined) {
      return new SignJWT({ aud: 'sallyport', exp: Math.floor(Date.now() / 1000) + 60, ...claims })
        .setProtectedHeader({ alg: 'EdDSA' })
        .sign(key)
    }
    return new CompactSign(Buffer.from(rawPayload)).setProtectedHeader({ alg: 'EdDSA' }).sign(key)
  }

  test("W8 another runtime's host cannot be taken by any claim, nor can one of ours", async () => {
    server = await startServer({ ownHosts: true, hold: { holdMs: 0, startupMs: 0 } })
    const hosts = ['hooks.customer.example']
    const bearer = await sign({ sub: 'victim', sallyport_hosts: hosts })
    await dial(server, { token: bearer, handler: always('victim') })
    for (const sallyport_hosts of [hosts, [...hosts, ...hosts], ['x.customer.example', ...hosts]]) {
      const client = await dial(server, {
        token: await sign({ sub: 'rival', sallyport_hosts }),
        handler: always('rival'),
      })
      expect(await client.message('notice')).toMatchObject({ code: 'host-taken' })
    }
    expect((await call(server, 'hooks.customer.example')).text).toBe('victim')
    for (const host of [
      'victim.tunnels.example.com',
      'tunnels.example.com',
      'Hooks.customer.example',
      '*.example',
      1,
    ]) {
      const token = await sign({ sub: 'rival', sallyport_hosts: [host] })
      await expect(dial(server, { token })).rejects.toMatchObject({ status: 401 })
    }
  })

  test.each([
    'Demo',
    'DEMO',
    'demo.x',
    'demo ',
    ' demo',
    'd\u0435mo',
    'demo\u0000',
    '',
    '-demo',
    'demo-',
    'x'.repeat(64),
  ])('the name %j is refused', async sub => {
    await startControl()
    expect((await refusal({ token: await sign({ sub }) })).refused.detail).toContain('runtime')
  })

  test.each([[['demo']], [42], [null], [{ toString: 'demo' }]])(
    'a claim of the wrong type (%j) is refused',
    async sub => {
      await startControl()
      expect((await refusal({ token: await sign({ sub }) })).answer?.status).toBe(401)
    },
  )

  test('a claim that appears twice is refused', async () => {
    await startControl()
    const exp = Math.floor(Date.now() / 1000) + 60
    const bearer = await sign({}, `{"sub":"other","aud":"sallyport","exp":${exp},"sub":"demo"}`)
    expect((await refusal({ token: bearer })).answer?.status).toBe(401)
  })

  test('nothing that the client says makes it another runtime', async () => {
    await startControl()
    await dial(server, { handler: always('demo') })
    const hello = { runtime: 'demo', instance: 'instance-1', lastEpoch: 1000 } as object
    await dial(server, { token: await token('demo2'), handler: always('thief'), hello })
    for (let i = 0; i < 10; i++) expect((await call(server, `demo.${DOMAIN}`)).text).toBe('demo')
    expect(
      server
        .sessions()
        .map(session => session.runtime)
        .sort(),
    ).toEqual(['demo', 'demo2'])
  })
})

const RUNTIMES = long ? 250 : 50

// All of them come from one address here, where a thousand would exceed its share of the queue.
test(`W9 ${RUNTIMES * 4} clients at once all get in, paced`, async () => {
  await startControl({ limits: { handshakesWaitingPerAddress: 1000 } })
  const bearer = await Promise.all(Array.from({ length: RUNTIMES }, (_, i) => token(`r${i}`)))
  const clients = await Promise.all(
    bearer.flatMap(one => Array.from({ length: 4 }, (_, i) => dial(server, { token: one, hello: { connection: i } }))),
  )
  expect(clients).toHaveLength(RUNTIMES * 4)
  expect(server.stats()).toMatchObject({ sessions: RUNTIMES * 4, runtimes: RUNTIMES, handshakesWaiting: 0 })
  for (const client of clients) client.ws.terminate()
})
