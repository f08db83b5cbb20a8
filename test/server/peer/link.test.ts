// @module-tag slow
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { connect as connectTls, TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { createAuthority, createReplicaCertificate } from '../../../certs/index.ts'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { HostPort } from '../../../protocol/base/host-port.ts'
import { type Logger, noLogger } from '../../../protocol/base/log.ts'
import { PendingConnections } from '../../../protocol/http/pending-connections.ts'
import { preambleText } from '../../../protocol/wire/preamble.ts'
import { STREAM_KIND } from '../../../protocol/wire/stream-kinds.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { PeerLink } from '../../../server/peer/link.ts'
import { PeerListener } from '../../../server/peer/listener.ts'
import type { SplicedSession } from '../../../server/peer/splice.ts'
import { PEER_NAME, type PeerTls, peerTlsOptions } from '../../../server/peer/tls.ts'
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
  warnings.splice(0)
})

/** The warnings of all links of a test, and what was in them. */
const warnings: [message: string, fields: object][] = []
const logger: Logger = { ...noLogger, warn: (fields, message) => void warnings.push([message, fields]) }

function linkAt(place: HostPort, tls: () => PeerTls, firstId?: number, onUp = () => {}): PeerLink {
  const link = new PeerLink('far', place, {
    replica: 'near',
    address: () => '127.0.0.1:1',
    tls,
    session: firstId === undefined ? {} : { firstId },
    logger,
    now: () => performance.now(),
    onStanding() {},
    onSpans() {},
    onUp,
    onChange() {},
  })
  closing.push(() => link.close())
  return link
}

async function makeTls() {
  const { authority } = await makeWorld()
  const { certificate, key } = await createReplicaCertificate(authority)
  return { cert: certificate, key, ca: authority.certificate }
}

/** A link to a replica that echoes. Its connections have ids for so many streams each. */
async function begin({
  name = (): string => 'far',
  key = (good: string) => good,
  firstId = LAST_ID - 2 * (STREAMS - 1),
} = {}): Promise<{ link: PeerLink; listener: PeerListener; port: number; tls: PeerTls; ups: () => number }> {
  const tls = await makeTls()
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
    stateOf: () => undefined,
    onReplica() {},
  })
  const place = await listener.listen({ host: '127.0.0.1', port: 0 })
  let ups = 0
  const link = linkAt(
    place,
    () => ({ ...tls, key: key(tls.key) }),
    firstId,
    () => void ups++,
  )
  closing.push(() => listener.close())
  await until(() => link.usable)
  return { link, listener, port: place.port, tls, ups: () => ups }
}

function ask(link: PeerLink): StreamRecorder {
  const recorder = new StreamRecorder(link.open())
  recorder.stream.write(PREAMBLE)
  return recorder
}

/** A link that dials `place`, and its certificate. */
async function linkTo(port: number): Promise<{ link: PeerLink; tls: PeerTls }> {
  const tls = await makeTls()
  return { link: linkAt({ host: '127.0.0.1', port }, () => tls), tls }
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

describe('why a link is not up is logged once', () => {
  const why = (message: string) => [
    'cannot connect to another replica',
    {
      replica: 'far',
      address: expect.stringMatching(/^127\.0\.0\.1:/),
      err: expect.objectContaining({ message: expect.stringMatching(message) }),
    },
  ]
  const UNKNOWN = why('^unable to verify the first certificate')

  test('and again only after it was up', async () => {
    const { link, listener, tls } = await begin({ firstId: 1 })
    const other = await createReplicaCertificate(await createAuthority({ name: 'Other' }))
    const dialled = vi.spyOn(PendingConnections.prototype, 'add')
    for (const expected of [[UNKNOWN], [UNKNOWN, UNKNOWN]]) {
      listener.setTls({ ...tls, cert: other.certificate, key: other.key })
      dialled.mockClear()
      link.renew()
      await until(() => dialled.mock.calls.length > 2)
      expect(warnings).toEqual(expected)
      listener.setTls(tls)
      await until(() => link.up)
    }
    dialled.mockRestore()
  })

  test.each([
    ['nobody listens', false, why('^connect ECONNREFUSED')],
    ['whoever listens closes the connection', true, why('^Client network socket disconnected before secure TLS')],
  ])('if %s', async (_, listens, expected) => {
    const port = await freePort()
    let calls = 0
    const server = createServer(socket => {
      calls++
      socket.destroy()
    })
    closing.push(() => server.close())
    if (listens) server.listen(port, '127.0.0.1')
    await linkTo(port)
    await until(() => (listens ? calls > 2 : warnings.length > 0))
    expect(warnings).toEqual([expected])
  })

  test('but not that of a replica that has said that it stops', async () => {
    const { link, listener } = await begin()
    await listener.close()
    await until(() => link.refused)
    expect(warnings.map(([message]) => message)).toEqual(['lost another replica'])
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

describe('when an authority of the replicas is dropped', () => {
  afterEach(() => {
    vi.restoreAllMocks()
  })

  /** What runs when the time of exchanges in progress is up. */
  function drains(): () => void {
    const timers = vi.spyOn(globalThis, 'setTimeout')
    return () => {
      for (const [late, ms] of timers.mock.calls) if (ms === 30_000) late()
    }
  }

  test.each<[which: string, renew: (link: PeerLink, listener: PeerListener) => void]>([
    ['accepted', (_link, listener) => listener.renew()],
    ['dialled', link => link.renew()],
  ])('the end that %s connects anew; open streams go on until their time is up', async (_which, renew) => {
    const { link, listener, ups } = await begin({ firstId: 1 })
    const [brief, long] = [ask(link), ask(link)]
    await until(() => brief.text !== '' && long.text !== '')
    const late = drains()
    renew(link, listener)
    await until(() => ups() === 2)
    const next = ask(link)
    for (const { stream } of [brief, next]) stream.end()
    await until(() => brief.stream.closed && next.stream.closed)
    expect([brief.ended, next.ended, long.stream.closed, link.streams]).toEqual([true, true, false, 1])
    late()
    await until(() => long.stream.closed)
    expect([link.usable, long.resetWith]).toEqual([true, 'session-lost'])
  })

  test.each<[which: string, renew: (link: PeerLink, listener: PeerListener) => void]>([
    ['a replica that connected', (_link, listener) => listener.renew()],
    ['a replica that was connected to', link => link.renew()],
  ])('%s with a certificate of that authority is shut out', async (_which, renew) => {
    const { link, listener, tls } = await begin({ firstId: 1 })
    const { certificate } = await createAuthority()
    listener.setTls({ ...tls, ca: certificate })
    renew(link, listener)
    await until(() => !link.usable)
    expect(() => link.open()).toThrow(SallyportError)
  })

  test('a connection that the other end keeps is closed in the end', async () => {
    const { listener, port, tls } = await begin()
    const socket = connectTls({ ...peerTlsOptions(tls), host: '127.0.0.1', port, servername: PEER_NAME })
    await once(socket, 'secureConnect')
    const { promise: closed, resolve } = Promise.withResolvers<string>()
    const named = Promise.withResolvers<string>()
    createSession(new PeerTransport(socket), {
      role: 'client',
      onControl: named.resolve,
      onClose: (_error, reason) => resolve(reason),
    })
    await named.promise
    const late = drains()
    listener.renew()
    late()
    expect(await closed).toBe("the replicas' authorities have changed")
  })

  test('a connection that is being dialled is given up', async () => {
    const server = createServer()
    await once(server.listen(0, '127.0.0.1'), 'listening')
    closing.push(() => server.close())
    const { link } = await linkTo((server.address() as AddressInfo).port)
    const [first] = await once(server, 'connection')
    closing.push(() => first.destroy())
    link.renew()
    const [second] = await once(server, 'connection')
    await once(first.resume(), 'close')
    second.destroy()
  })

  test('a handshake that began before counts no more', async () => {
    const added = vi.spyOn(PendingConnections.prototype, 'add')
    const { listener, port, tls } = await begin()
    const raw = connect(port, '127.0.0.1')
    await until(() => added.mock.calls.length === 2)
    listener.renew()
    const secured = connectTls({ ...peerTlsOptions(tls), socket: raw, servername: PEER_NAME })
    secured.on('error', () => {})
    const heard = vi.fn()
    secured.on('data', heard)
    await once(secured, 'close')
    expect(heard).not.toHaveBeenCalled()
  })
})

test('a link that answers in time is not reported to be up again', async () => {
  const { link, ups } = await begin({ firstId: 1 })
  for (let i = 0; i < 3; i++) {
    link.probe()
    // What is echoed comes after the answer.
    const asked = ask(link)
    asked.stream.end()
    await until(() => asked.stream.closed)
  }
  expect(ups()).toBe(1)
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
    stateOf: () => undefined,
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
