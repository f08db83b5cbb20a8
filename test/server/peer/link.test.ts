// @module-tag slow
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { createReplicaCertificate } from '../../../certs/index.ts'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { preambleText } from '../../../protocol/wire/preamble.ts'
import { STREAM_KIND } from '../../../protocol/wire/stream-kinds.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { PeerLink } from '../../../server/peer/link.ts'
import { PeerListener } from '../../../server/peer/listener.ts'
import type { SplicedSession } from '../../../server/peer/splice.ts'
import { type PeerTls, peerTlsOptions } from '../../../server/peer/tls.ts'
import { PeerTransport } from '../../../server/peer/transport.ts'
import { StreamRecorder, sessionPair } from '../../protocol/wire/yamux/support.ts'
import { freePort } from '../../support/proxy-program.ts'
import { eventually, until } from '../../support/until.ts'
import { makeWorld } from '../fixture.ts'

const LAST_ID = 0x7fff_ffff
const STREAMS = 20

const PREAMBLE = preambleText({
  kind: STREAM_KIND.exchange,
  exchangeId: 'x'.repeat(16),
  attempt: 0,
  runtime: 'demo',
  epoch: 1,
  timeLeftMs: 0,
  callerAddress: '192.0.2.1',
  callerScheme: 'http',
  hops: 1,
  bodyBytes: 0,
})

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

/** A link whose connections have ids for this many streams each, to a replica that echoes. */
async function begin({
  name = (): string => 'far',
  key = (good: string) => good,
} = {}): Promise<{ link: PeerLink; ups: () => number }> {
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  const tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
  const { server } = sessionPair({ maxStreams: 10_000, backlog: 10_000 })
  const client: SplicedSession = {
    callers: undefined,
    exchanges: 0,
    open: () => server.open(),
    gaveFor() {},
    released() {},
  }
  const listener = new PeerListener({
    get replica() {
      return name()
    },
    tls,
    session: {},
    logger: noLogger,
    pick: () => client,
    states: () => [],
    onReplica() {},
  })
  const place = await listener.listen({ host: '127.0.0.1', port: 0 })
  let ups = 0
  const link = new PeerLink('far', place, {
    replica: 'near',
    address: () => '127.0.0.1:1',
    tls: () => ({ ...tls, key: key(made.key) }),
    session: { firstId: LAST_ID - 2 * (STREAMS - 1) },
    logger: noLogger,
    now: () => performance.now(),
    onStanding() {},
    onSpans() {},
    onUp: () => void ups++,
    onChange() {},
  })
  closing.push(() => {
    link.close()
    return listener.close()
  })
  await until(() => link.usable)
  return { link, ups: () => ups }
}

function ask(link: PeerLink): StreamRecorder {
  const recorder = new StreamRecorder(link.open())
  recorder.stream.write(PREAMBLE)
  return recorder
}

/** A link that dials `place`, and its certificate. */
async function linkTo(port: number): Promise<{ link: PeerLink; tls: PeerTls }> {
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  const tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
  const link = new PeerLink(
    'far',
    { host: '127.0.0.1', port },
    {
      replica: 'near',
      address: () => '127.0.0.1:1',
      tls: () => tls,
      session: {},
      logger: noLogger,
      now: () => performance.now(),
      onStanding() {},
      onSpans() {},
      onUp() {},
      onChange() {},
    },
  )
  closing.push(() => link.close())
  return { link, tls }
}

describe('a link that is not up', () => {
  test('accepts no exchange', async () => {
    const { link } = await linkTo(1)
    expect(() => link.open()).toThrow(new SallyportError('overloaded', 'the replica is not connected'))
  })

  test.each<[what: string, take: (socket: Socket, tls: PeerTls) => void]>([
    ['closes the connection', socket => socket.destroy()],
    ['resets it', socket => socket.resetAndDestroy()],
    ['speaks no TLS', socket => socket.end('HTTP/1.1 400 x\r\n\r\n')],
    [
      'answers, but never says who it is',
      (socket, tls) => {
        const secured = new TLSSocket(socket, { ...peerTlsOptions(tls), isServer: true, requestCert: true })
        secured.once('secure', () => createSession(new PeerTransport(secured), { role: 'server' }))
      },
    ],
    // Its certificate is valid, but it speaks another protocol.
    ['is no replica', (socket, tls) => new TLSSocket(socket, { ...tls, isServer: true }).on('error', () => {})],
  ])('is tried again if the listener %s', async (_what, take) => {
    let tls: PeerTls | undefined
    let calls = 0
    const server = createServer(socket => {
      calls++
      socket.on('error', () => {})
      take(socket, tls!)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    closing.push(() => server.close())
    const made = await linkTo((server.address() as AddressInfo).port)
    tls = made.tls
    await until(() => calls > 1)
    expect([made.link.up, made.link.refused]).toEqual([false, false])
  })

  test('is tried again if nobody listens, and knows it', async () => {
    const port = await freePort()
    const { link } = await linkTo(port)
    await until(() => link.refused)
    const server = createServer().listen(port, '127.0.0.1')
    closing.push(() => server.close())
    const [socket] = await once(server, 'connection')
    socket.destroy()
  })
})

describe('a link that runs out of stream ids', () => {
  test('goes on over another connection, and open streams on the previous one are not cut', async () => {
    const { link, ups } = await begin()
    const long = ask(link)
    await until(() => ups() === 2)
    long.stream.write('more')
    long.stream.end()
    await until(() => long.stream.closed)
    expect([long.text, long.ended]).toEqual([`${PREAMBLE}more`, true])
    for (let i = 0; i < 5 * STREAMS; i++) {
      await until(() => link.usable)
      const short = ask(link)
      short.stream.end()
      await until(() => short.stream.closed)
      expect([short.text, short.ended]).toEqual([PREAMBLE, true])
    }
    expect(link.streams).toBe(0)
  })

  test('stays in use while somebody else answers at the address', async () => {
    let name = 'far'
    let said = 0
    const { link, ups } = await begin({
      name: () => {
        said++
        return name
      },
    })
    name = 'somebody else'
    const long = ask(link)
    // At its second call, it has heard the name that was announced the time before.
    await until(() => said === 3)
    expect([link.departed, link.usable, ups()]).toEqual([false, true, 1])
    name = 'far'
    await until(() => ups() === 2)
    long.stream.end()
    await until(() => long.stream.closed)
    expect(long.ended).toBe(true)
  })
})

/** Without it they stay until their handshakes time out, which is later than that. */
const HANDSHAKE_MS = 5000

test('a silent connection in its handshake is gone with the listener', async () => {
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  const tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
  await eventually(() => leavesStrangers(tls))
})

async function leavesStrangers(tls: PeerTls): Promise<void> {
  const listener = new PeerListener({
    replica: 'far',
    tls,
    session: {},
    logger: noLogger,
    pick: () => undefined,
    states: () => [],
    onReplica() {},
  })
  const { port } = await listener.listen({ host: '127.0.0.1', port: 0 })
  const startedMs = performance.now()
  const strangers = Array.from({ length: 40 }, () => connect(port, '127.0.0.1'))
  const errors: unknown[] = []
  for (const stranger of strangers) stranger.on('error', error => errors.push(error)).resume()
  await Promise.all(strangers.map(stranger => once(stranger, 'connect')))
  const gone = Promise.all(strangers.map(stranger => once(stranger, 'end')))
  await listener.close()
  await gone
  expect(errors).toEqual([])
  expect(performance.now() - startedMs).toBeLessThan(HANDSHAKE_MS)
}

test('a link whose certificate cannot be used is tried again', async () => {
  let asked = 0
  const { link } = await begin({ key: good => (++asked <= 2 ? 'no key' : good) })
  expect([asked, link.up]).toEqual([3, true])
})
