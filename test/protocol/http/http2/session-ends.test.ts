import { once } from 'node:events'
import { type ClientHttp2Session, connect, constants } from 'node:http2'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { connect as connectTls, createServer as createTlsServer, type TlsOptions } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { collectGarbage } from '../../../../load-tests/lib/garbage.ts'
import { LOOK_MS } from '../../../../protocol/base/deadline-watch.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { discarding } from '../../../../protocol/base/guard.ts'
import type { Handler, ResponseSink } from '../../../../protocol/exchange.ts'
import { ConnectionSet } from '../../../../protocol/http/connection-set.ts'
import { queuedInHandle } from '../../../../protocol/http/http1/write-progress.ts'
import { serveHttp2 } from '../../../../protocol/http/http2/server-session.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { type Listener, listen } from '../../../../protocol/http/listener.ts'
import {
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  head,
  PREFACE,
  setting,
  TYPE,
  uint32,
  WEBSOCKET_HEAD,
} from '../../../support/http2-frames.ts'
import { makeSecrets, type Secrets } from '../../../support/secrets.ts'
import { until } from '../../../support/until.ts'
import { call, ok, RawPeer, recorder } from '../http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

async function serve(handler: Handler, limits?: Partial<HttpLimits>): Promise<Listener> {
  const listener = await listen({ port: 0, handler, limits })
  open.push(() => listener.close({ graceMs: 0 }))
  return listener
}

/** What an exchange counts for besides heads, trailers and bodies. */
const EXCHANGE_BYTES = 4 * 1024

/** The first frames of a caller: this window for each stream, and room for any answer in that of the connection. */
function greeting(streamWindow: number): Buffer {
  const settings = frame(TYPE.settings, 0, 0, setting('initialWindowSize', streamWindow))
  return Buffer.concat([PREFACE, settings, frame(TYPE.window, 0, 0, uint32(2 ** 30))])
}

const get = (id: number, ...more: [string, string][]) =>
  frame(TYPE.headers, END_HEADERS | END_STREAM, id, head('GET', ...more))

/** A caller that has sent one request, and whose windows have room for any answer. */
async function request(listener: Listener): Promise<RawPeer> {
  const peer = await call(listener.address.port, { allowHalfOpen: true })
  open.push(() => peer.socket.destroy())
  peer.send(greeting(2 ** 30))
  peer.send(get(1))
  return peer
}

/** A server without a listener of ours. Returns its port. */
async function accept(onSocket: (socket: Socket) => void, tls?: TlsOptions): Promise<number> {
  const server = (tls ? createTlsServer(tls, onSocket) : createServer(onSocket)).listen(0, '127.0.0.1')
  open.push(() => server.close())
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

/** A caller that reads nothing, of a session with these options, and how much waits in its socket. */
async function unreading(options: Parameters<typeof serveHttp2>[1], tls?: Secrets) {
  const sockets: Socket[] = []
  const port = await accept(socket => {
    sockets.push(socket)
    serveHttp2(socket, options)
  }, tls?.server)
  const peer = tls === undefined ? await call(port) : new RawPeer(connectTls({ port, ca: tls.ca }))
  open.push(() => peer.socket.destroy())
  peer.socket.pause()
  const queued = () => (sockets[0] === undefined ? 0 : queuedInHandle(sockets[0]))
  return { peer, queued }
}

/** Answers with `bytes` as fast as they leave. `given`: how many answers have been given completely. */
function giver(bytes: number): { handler: Handler; given: number } {
  const all = { handler: give, given: 0 }
  return all
  function give(...[, response]: Parameters<Handler>): ReturnType<Handler> {
    let left = bytes
    let credit = 64 * 1024
    const go = () => {
      while (left > 0 && credit > 0) {
        const chunk = Buffer.alloc(Math.min(left, 16 * 1024), 'z')
        left -= chunk.length
        credit -= chunk.length
        response.responseData(chunk)
      }
      if (left > 0) return
      left = Number.POSITIVE_INFINITY
      all.given++
      response.responseEnd([])
    }
    response.responseHead({ status: 200, headers: [], bodyBytes: bytes })
    setImmediate(go)
    return {
      requestData() {},
      requestEnd() {},
      requestAbort() {},
      responseConsumed(bytes) {
        credit += bytes
        if (left !== Number.POSITIVE_INFINITY) go()
      },
    }
  }
}

const LEAVE = frame(TYPE.goaway, 0, 0, Buffer.alloc(8))
/** More than the kernel takes for a caller that reads nothing. */
const HUGE_BYTES = 64 * 1024 * 1024

describe('a listener that closes', () => {
  test('lets requests in progress end while the connection of another caller is already over', async () => {
    const { handler, seen } = recorder(({ request, response }) => request.path === '/attack' && ok(response))
    const listener = await serve(handler)
    const over = await request(listener)
    await until(() => seen.length === 1)
    over.send(LEAVE)
    await over.end()
    const caller = await call(listener.address.port)
    caller.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    await until(() => seen.length === 2)
    const closed = listener.close({ graceMs: 1000 })
    ok(seen[1]!.response)
    await caller.saying('ok')
    await closed
    expect(listener.connections).toBe(0)
  })

  test.each(['keeps its half open', 'reads nothing'])('cuts a caller that %s when the grace is over', async what => {
    const answers = giver(what === 'reads nothing' ? HUGE_BYTES : 2)
    const listener = await serve(answers.handler, { drainMs: 0 })
    const peer = await request(listener)
    if (what === 'reads nothing') peer.socket.pause()
    else await until(() => answers.given === 1)
    await listener.close({ graceMs: 50 })
    expect(listener.connections).toBe(0)
  })
})

describe('a caller that reads slowly', () => {
  const BYTES = 1024 * 1024

  test.each(['is idle', 'ends with its listener'])('gets all of its answer after its connection %s', async how => {
    const answers = giver(BYTES)
    const listener = await serve(answers.handler, { drainMs: 20, keepAliveMs: how === 'is idle' ? 1500 : 60_000 })
    const peer = await request(listener)
    peer.socket.pause()
    await until(() => answers.given === 1)
    if (how !== 'is idle') void listener.close({ graceMs: 60_000 })
    await until(() => listener.connections === 0)
    peer.socket.resume()
    const text = await peer.end()
    expect(peer.error).toBeUndefined()
    expect(text.split('z').length - 1).toBe(BYTES)
  })

  test('gets all of its answer while it tells its progress, however long that takes', { tags: ['slow'] }, async () => {
    const answers = giver(BYTES)
    const listener = await serve(answers.handler, { drainMs: 700, keepAliveMs: 1500 })
    const peer = await request(listener)
    peer.socket.pause()
    await until(() => answers.given === 1)
    while (!peer.ended && !peer.closed) {
      // That much arrives at a time.
      peer.socket.once('data', () => peer.socket.pause()).resume()
      peer.send(frame(TYPE.window, 0, 0, uint32(1)))
      await new Promise(resolve => setTimeout(resolve, 300))
    }
    expect(peer.error).toBeUndefined()
    expect(peer.text.split('z').length - 1).toBe(BYTES)
  })

  /** Connections from these addresses that take no answers, of which 256 KiB may be held. */
  async function takingNothing(addresses: string[], answer = ok, boundsBodies?: boolean) {
    const { handler, seen } = recorder(({ response }) => void setImmediate(() => answer(response)))
    const connections = new ConnectionSet(10, 256 * 1024)
    const left = [...addresses]
    const serve = (socket: Socket) =>
      serveHttp2(socket, { handler, connections, boundsBodies, peerAddress: left.shift() })
    const url = `http://127.0.0.1:${await accept(serve)}`
    const closed: number[] = []
    /** How many answers of each were cut. */
    const cut = addresses.map(() => 0)
    const sessions: ClientHttp2Session[] = []
    for (const i of addresses.keys()) {
      const session = connect(url, { settings: { initialWindowSize: 0 } })
      sessions.push(session)
      session.on('error', () => {}).on('close', () => closed.push(i))
      open.push(() => session.destroy())
      await once(session, 'remoteSettings')
    }
    const ask = async (i: number, count: number, head: number) => {
      let answers = 0
      for (let k = 0; k < count; k++) {
        const stream = sessions[i]!.request({ ':authority': 'a', 'x-large': '~'.repeat(head) })
        stream.on('error', () => {}).on('response', () => answers++)
        stream.resume().on('close', () => {
          if (stream.rstCode === constants.NGHTTP2_INTERNAL_ERROR) cut[i]!++
        })
      }
      await until(() => answers === count)
    }
    return { connections, sessions, closed, cut, ask, seen }
  }

  test('loses answers if of all connections it holds the most for its caller', async () => {
    const { connections, sessions, closed, cut, ask } = await takingNothing(['192.0.2.1', '192.0.2.1'])
    await ask(0, 12, 15_000)
    expect(cut).toEqual([0, 0])
    await ask(1, 11, 1000)
    // More if the other requests arrive together.
    await until(() => cut[0]! >= 2)
    expect([cut[1], closed]).toEqual([0, []])
    expect(cut[0]).toBeLessThanOrEqual(3)
    expect(connections.unread.usedBytes).toBeLessThan(256 * 1024)
    for (const session of sessions) session.destroy()
    await until(() => connections.size === 0)
    expect(connections.unread.usedBytes).toBe(0)
  })

  test('keeps its connection however many of its answers are shed', async () => {
    const { sessions, cut, ask } = await takingNothing(['192.0.2.1'])
    let left = false
    sessions[0]!.on('goaway', () => (left = true))
    for (let asked = 0; asked < 300; asked += 20) await ask(0, 20, 1000)
    expect(cut[0]).toBeGreaterThan(200)
    await ask(0, 1, 1)
    expect(left).toBe(false)
  })

  test('holds nothing but its head and body for a WebSocket until both halves have ended', async () => {
    const { sessions, connections } = await takingNothing(['192.0.2.1'], response => {
      response.responseHead({ status: 101, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.alloc(10_000))
      response.responseEnd([])
    })
    const pseudo = {
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      ':path': '/',
      ':scheme': 'http',
      ':authority': 'a',
    }
    const socket = sessions[0]!
      .request({ ...pseudo, 'sec-websocket-version': '13' }, { endStream: false })
      .on('error', () => {})
    await once(socket, 'response')
    expect(connections.unread.usedBytes).toBe(EXCHANGE_BYTES + '/'.length + 20_000)
    socket.end()
    await until(() => connections.unread.usedBytes > 16_000)
    socket.close(constants.NGHTTP2_CANCEL)
    await until(() => connections.unread.usedBytes === 0)
  })

  test('keeps its download while other answers on its connection are shed', async () => {
    const connections = new ConnectionSet(10, 256 * 1024)
    let given = 0
    let why: string | undefined
    const handler: Handler = ({ headers }, response) => {
      const endless = headers.includes('x-endless')
      const answer = (bytes: number) => response.responseData(Buffer.alloc(bytes))
      setImmediate(() => {
        response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
        answer(endless ? 16 * 1024 * 1024 : 20_000)
        if (endless) return
        response.responseEnd([])
        given++
      })
      const requestAbort = (error: SallyportError) => {
        if (endless) why = error.reason
      }
      const responseConsumed = (bytes: number) => {
        if (endless) setTimeout(answer, 200, bytes)
      }
      return { ...discarding(response), requestAbort, responseConsumed }
    }
    const { peer, queued } = await unreading({ handler, connections, boundsBodies: true })
    peer.send(Buffer.concat([greeting(0), get(1, ['x-endless', '']), frame(TYPE.window, 0, 1, uint32(2 ** 30))]))
    await until(() => queued() > 0)
    for (let id = 3; id <= 25; id += 2) peer.send(get(id))
    await until(() => given === 12)
    expect(connections.unread.usedBytes).toBeLessThan(256 * 1024)
    peer.socket.removeAllListeners('data')
    let taken = 0
    peer.socket.on('data', chunk => (taken += chunk.length)).resume()
    // Long enough for two looks.
    await new Promise(resolve => setTimeout(resolve, 2.5 * LOOK_MS))
    const before = taken
    await until(() => taken > before)
    expect([connections.size, why]).toEqual([1, undefined])
  })

  const LARGE_HEAD = ['x-large', '~'.repeat(15_000)]

  /** More than one socket is given at a time. */
  const UNSENT_BYTES = 192 * 1024

  /** A caller that reads nothing, and cancels `count` requests whose heads wait behind a body. */
  async function cancelling(count: number) {
    const connections = new ConnectionSet(10, 2 ** 30)
    const { handler, seen } = recorder(({ response }) => {
      setImmediate(() => {
        response.responseHead({ status: 200, headers: LARGE_HEAD, bodyBytes: -1 })
        response.responseData(Buffer.alloc(seen.length === 1 ? HUGE_BYTES : 10_000))
      })
    })
    const { peer, queued } = await unreading({ handler, connections })
    peer.send(Buffer.concat([greeting(2 ** 30), get(1)]))
    await until(() => queued() > 0)
    for (let id = 3; id < 3 + 2 * count; id += 2) peer.send(get(id))
    await until(() => seen.length === 1 + count && connections.unread.usedBytes > 2 * count * 10_000)
    for (let id = 1; id < 3 + 2 * count; id += 2) peer.send(frame(TYPE.reset, 0, id, uint32(8)))
    return { connections, peer, seen }
  }

  test('holds of cancelled answers only what its socket has', async () => {
    const { connections, peer, seen } = await cancelling(30)
    await until(() => seen.every(({ aborted }) => aborted === 'cancelled'))
    // Twice, since so much waits at the upstream's end.
    expect(connections.unread.usedBytes).toBeGreaterThan(0)
    expect(connections.unread.usedBytes).toBeLessThan(2 * UNSENT_BYTES)
    peer.socket.resume()
    await until(() => connections.unread.usedBytes === 0)
    expect(connections.size).toBe(1)
  })

  test('holds it, too, once it has closed its half', async () => {
    const { connections, peer } = await cancelling(30)
    peer.socket.end()
    // Long enough for a look.
    await new Promise(resolve => setTimeout(resolve, 1.25 * LOOK_MS))
    expect(connections.size).toBe(1)
    expect(connections.unread.usedBytes).toBeGreaterThan(0)
    peer.socket.resume()
    await until(() => connections.size === 0)
    expect(connections.unread.usedBytes).toBe(0)
  })

  test('holds what an answer that is cut had in its socket', async () => {
    const { handler, seen } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.alloc(HUGE_BYTES))
    })
    const connections = new ConnectionSet(10, 2 ** 30)
    const { peer, queued } = await unreading({ handler, connections, boundsBodies: true })
    peer.send(Buffer.concat([greeting(2 ** 30), get(1)]))
    await until(() => queued() > 0)
    expect(connections.unread.usedBytes).toBeLessThan(16 * 1024)
    seen[0]!.response.responseAbort(new SallyportError('upstream-broken'))
    await until(() => connections.unread.usedBytes > 64 * 1024)
    peer.socket.resume()
    await until(() => connections.unread.usedBytes === 0)
  })

  test('holds nothing of requests whose answers wait in its socket', async () => {
    const requests: WeakRef<object>[] = []
    const handler: Handler = (request, response) => {
      requests.push(new WeakRef(request))
      const large = request.headers.length === 0
      setImmediate(ok, response, large ? 'x'.repeat(60_000) : 'x')
      return discarding(response)
    }
    const connections = new ConnectionSet(10, 2 ** 30)
    const { peer, queued } = await unreading({ handler, connections })
    peer.send(greeting(2 ** 30))
    let id = 1
    const ask = async (...fields: [string, string][]) => {
      peer.send(get(id, ...fields))
      id += 2
      await until(() => requests.length === (id - 1) / 2)
    }
    do await ask()
    while (queued() === 0)
    const before = requests.length
    for (let i = 0; i < 20; i++) await ask(['x-small', ''])
    await until(async () => {
      await collectGarbage()
      return requests.slice(before).every(request => request.deref() === undefined)
    })
    expect(queued()).toBeGreaterThan(0)
    expect(connections.unread.usedBytes).toBeGreaterThan(0)
  })

  test.each(['plain', 'TLS'])('holds nothing beyond what is counted (%s)', async how => {
    const secrets = how === 'TLS' ? await makeSecrets() : undefined
    const COUNT = 400
    const BODY_BYTES = 16_383
    const connections = new ConnectionSet(10, 2 ** 30)
    let consumed = 0
    const bodies: WeakRef<Uint8Array>[] = []
    const handler: Handler = (_request, response) => {
      setImmediate(() => {
        const body = Buffer.alloc(BODY_BYTES)
        bodies.push(new WeakRef(body))
        response.responseHead({ status: 200, headers: [], bodyBytes: BODY_BYTES })
        response.responseData(body)
        response.responseEnd([])
      })
      const responseConsumed = (bytes: number) => {
        consumed += bytes
      }
      return { ...discarding(response), responseConsumed }
    }
    const { peer, queued } = await unreading(
      { handler, connections, boundsBodies: true, limits: { http2Streams: COUNT } },
      secrets,
    )
    peer.send(greeting(2 ** 30))
    for (let i = 0; i < COUNT; i++) peer.send(get(1 + 2 * i))
    await until(() => bodies.length === COUNT && queued() > 0)
    // What the handler has been told is gone, or in the socket. TLS has an encrypted copy of the rest.
    await until(async () => {
      await collectGarbage()
      const held = bodies.filter(body => body.deref() !== undefined).length * BODY_BYTES
      return held <= COUNT * BODY_BYTES - consumed + 128 * 1024
    })
    expect(consumed).toBeLessThan(0.9 * COUNT * BODY_BYTES)
    expect(connections.unread.usedBytes).toBeGreaterThan(secrets === undefined ? 0 : queued())
    peer.socket.resume()
    await until(() => connections.unread.usedBytes === 0)
    expect([connections.size, consumed]).toEqual([1, COUNT * BODY_BYTES])
  })

  test('ends if its socket holds the most for it (TLS)', async () => {
    const secrets = await makeSecrets()
    const connections = new ConnectionSet(10, UNSENT_BYTES / 4)
    const { handler, seen } = recorder(({ response }) => {
      setImmediate(() => {
        response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
        response.responseData(Buffer.alloc(HUGE_BYTES))
      })
    })
    const port = await accept(
      socket => void serveHttp2(socket, { handler, connections, boundsBodies: true }),
      secrets.server,
    )
    const peer = new RawPeer(connectTls({ port, ca: secrets.ca }))
    open.push(() => peer.socket.destroy())
    peer.socket.pause()
    peer.send(Buffer.concat([greeting(2 ** 30), get(1)]))
    await until(() => seen[0]?.aborted !== undefined)
    await until(() => connections.size === 0)
    expect([seen[0]!.aborted, connections.unread.usedBytes]).toEqual(['overloaded', 0])
  })

  test('loses answers without a look at one connection leading to looks at others', async () => {
    const connections = new ConnectionSet(10, 256 * 1024)
    const { handler, seen } = recorder(() => {})
    const sockets: Socket[] = []
    const port = await accept(socket => {
      sockets.push(socket)
      serveHttp2(socket, { handler, connections, boundsBodies: true })
    })
    const network = connections.unreadOf('127.0.0.1')
    const enforce = network.enforce.bind(network)
    let [depth, deepest] = [0, 0]
    network.enforce = () => {
      deepest = Math.max(deepest, ++depth)
      enforce()
      depth--
    }
    const body = Buffer.alloc(HUGE_BYTES)
    const peers: RawPeer[] = []
    for (let i = 0; i < 4; i++) {
      const peer = await call(port)
      peers.push(peer)
      open.push(() => peer.socket.destroy())
      peer.socket.pause()
      peer.send(Buffer.concat([greeting(2 ** 30), get(1)]))
      await until(() => seen.length === i + 1)
      seen[i]!.response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      seen[i]!.response.responseData(body)
      await until(() => queuedInHandle(sockets[i]!) > 0)
    }
    for (const peer of peers) for (const id of [3, 5, 7, 9]) peer.send(get(id))
    await until(() => seen.length === 20)
    for (const { response } of seen.slice(4)) {
      response.responseHead({ status: 204, headers: ['x-large', '~'.repeat(12_000)], bodyBytes: 0 })
      response.responseEnd([])
    }
    expect(connections.unread.usedBytes).toBeLessThan(256 * 1024)
    expect(deepest).toBe(1)
  })

  test.each([
    ['', false],
    [', even if its handler paid for the body', true],
  ])('holds the head, trailers and body of a complete answer%s', async (_what, boundsBodies) => {
    const answer = (response: ResponseSink) => {
      response.responseHead({ status: 200, headers: ['x-large', '~'.repeat(10_000)], bodyBytes: -1 })
      response.responseData(Buffer.alloc(50_000))
      response.responseEnd(['x-large', '~'.repeat(15_000)])
    }
    const { connections, ask } = await takingNothing(['192.0.2.1'], answer, boundsBodies)
    await ask(0, 1, 1)
    expect(connections.unread.usedBytes).toBeGreaterThan(79_000)
    expect(connections.unread.usedBytes).toBeLessThan(80_000)
  })

  test('loses answers that are not complete if nobody else pays for their bodies', async () => {
    const begin = (response: ResponseSink) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.alloc(23_500))
    }
    const { connections, sessions, cut, ask, seen } = await takingNothing(['192.0.2.1'], begin)
    await ask(0, 5, 1)
    expect(connections.unread.usedBytes).toBeGreaterThanOrEqual(240_000)
    expect(cut).toEqual([0])
    await ask(0, 1, 1)
    await until(() => cut[0] === 2)
    expect(seen.flatMap(({ aborted = [] }) => aborted)).toEqual(['overloaded', 'overloaded'])
    expect(connections.unread.usedBytes).toBeGreaterThanOrEqual(200_000)
    expect(connections.unread.usedBytes).toBeLessThan(256 * 1024)
    sessions[0]!.settings({ initialWindowSize: 2 ** 20 })
    await until(() => connections.unread.usedBytes < 4 * (EXCHANGE_BYTES + 100))
    expect(cut).toEqual([2])
    const other = await takingNothing(['192.0.2.1'], begin, true)
    await other.ask(0, 6, 1)
    expect(other.connections.unread.usedBytes).toBeLessThan(6 * (EXCHANGE_BYTES + 100))
    expect(other.cut).toEqual([0])
  })

  test('loses no answers for what many connections of another network hold', async () => {
    const { cut, ask } = await takingNothing(['192.0.2.1', '192.0.2.2', '192.0.2.2', '192.0.2.2'])
    await ask(0, 5, 14_700)
    for (const i of [1, 2]) await ask(i, 4, 14_700)
    expect(cut).toEqual([0, 0, 0, 0])
    await ask(3, 1, 14_700)
    await until(() => cut[1]! + cut[2]! === 1)
    expect([cut[0], cut[3]]).toEqual([0, 0])
  })

  test('does not count as idle while part of an answer waits', async () => {
    const answers = giver(16 * 1024)
    const sockets: Socket[] = []
    const peer = await call(await accept(socket => sockets.push(socket)))
    open.push(() => peer.socket.destroy())
    await until(() => sockets.length === 1)
    const [socket] = sockets
    open.push(() => socket!.destroy())
    const connection = serveHttp2(socket!, { handler: answers.handler })
    peer.send(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.window, 0, 0, uint32(2 ** 30))]))
    peer.socket.pause()
    for (let id = 1; queuedInHandle(socket!) === 0; id += 2) {
      peer.send(get(id))
      await until(() => answers.given === (id + 1) / 2)
      await new Promise(resolve => setTimeout(resolve, 1))
    }
    expect(connection.idle).toBe(false)
    peer.socket.resume()
    await until(() => connection.idle)
  })
})

describe('requests that nobody takes', () => {
  const [HEAVY, LIGHT] = ['192.0.2.1', '198.51.100.1']
  const body = (id: number) => frame(TYPE.data, 0, id, Buffer.alloc(15_000))
  const small = (id: number) => frame(TYPE.data, 0, id, Buffer.alloc(1))
  const opening = (id: number) => frame(TYPE.headers, END_HEADERS, id, head('POST'))
  const post = (id: number) => Buffer.concat([opening(id), body(id)])
  const trailers = (id: number) =>
    frame(TYPE.headers, END_HEADERS | END_STREAM, id, field('x-large', '~'.repeat(15_000)))
  const socket = (id: number) => Buffer.concat([frame(TYPE.headers, END_HEADERS, id, WEBSOCKET_HEAD), body(id)])

  test.each([
    ['their bodies', post],
    ['what follows the handshakes of WebSockets', socket],
    ['their number', (id: number) => Buffer.concat([0, 2, 4, 6, 8].map(more => get(5 * id + more)))],
    ['their heads', (id: number) => get(id, ['x-large', '~'.repeat(15_000)])],
    ['their trailers', (id: number) => Buffer.concat([opening(id), trailers(id)])],
    [
      'trailers that wait behind a body',
      (id: number) => Buffer.concat([opening(id), small(id), small(id), trailers(id)]),
    ],
  ])('are lost by the network that holds the most, for %s', async (_what, request) => {
    // Room for 18 of them: until it is settled, the last may count twice.
    const most = 18.5 * (15_000 + EXCHANGE_BYTES)
    const connections = new ConnectionSet(10, most)
    const lost: string[] = []
    const handler: Handler = ({ peerAddress }, response) => {
      const requestAbort = ({ reason }: SallyportError) => void lost.push(`${peerAddress} ${reason}`)
      return { ...discarding(response), requestData() {}, requestAbort }
    }
    const addresses = [LIGHT, HEAVY]
    // One byte that nobody consumes holds up what follows.
    const limits = { bufferBytes: 0 }
    const port = await accept(socket =>
      serveHttp2(socket, { handler, connections, limits, peerAddress: addresses.shift() }),
    )
    const peers: RawPeer[] = []
    const caller = async (count: number) => {
      const peer = await call(port)
      open.push(() => peer.socket.destroy())
      peer.send(greeting(2 ** 30))
      for (let k = 0; k < count; k++) peer.send(request(1 + 2 * k))
      peers.push(peer)
    }
    await caller(1)
    await until(() => connections.unread.usedBytes > 15_000)
    await caller(16)
    await until(() => connections.unread.usedBytes > 16.5 * (15_000 + EXCHANGE_BYTES))
    expect(lost).toEqual([])
    peers[1]!.send(Buffer.concat([request(33), request(35)]))
    await until(() => lost.length > 0)
    expect(new Set(lost)).toEqual(new Set([`${HEAVY} overloaded`]))
    expect(connections.unread.usedBytes).toBeLessThanOrEqual(most)
    for (const { socket } of peers) socket.destroy()
    await until(() => connections.size === 0)
    expect(connections.unread.usedBytes).toBe(0)
  })

  test('are lost by the network that holds the most, for heads of which only a part has arrived', async () => {
    // Room for the light one and three others.
    const connections = new ConnectionSet(10, 18 * 15_000)
    const handler: Handler = (_request, response) => discarding(response)
    const addresses = [LIGHT]
    const port = await accept(socket =>
      serveHttp2(socket, { handler, connections, peerAddress: addresses.shift() ?? HEAVY }),
    )
    const part = (type: number) => frame(type, 0, 1, Buffer.alloc(15_000))
    const caller = async (parts: number) => {
      const peer = await call(port)
      open.push(() => peer.socket.destroy())
      peer.send(Buffer.concat([greeting(2 ** 30), part(TYPE.headers)]))
      for (let k = 0; k < parts; k++) peer.send(part(TYPE.continuation))
      peer.send(part(TYPE.continuation).subarray(0, 100))
      return peer
    }
    const light = await caller(0)
    // The rest of a frame has room, too.
    await until(() => connections.unread.usedBytes >= 2 * 15_000)
    const heavy = [await caller(3), await caller(3), await caller(3)]
    await until(() => connections.unread.usedBytes > 16 * 15_000)
    expect([light, ...heavy].some(({ closed }) => closed)).toBe(false)
    heavy.push(await caller(3))
    await until(() => heavy.some(({ closed }) => closed))
    expect(light.closed).toBe(false)
    expect(connections.unread.usedBytes).toBeLessThanOrEqual(18 * 15_000)
    for (const { socket } of [light, ...heavy]) socket.destroy()
    await until(() => connections.size === 0)
    expect(connections.unread.usedBytes).toBe(0)
  })

  test.each([
    ['wait for its upstream end', 'taken', 10_000],
    ['wait for its upstream end', 'shed', 10_000],
    ['were passed on', 'taken', 64 * 1024],
    ['were passed on', 'taken twice', 64 * 1024],
    ['were passed on', 'shed', 64 * 1024],
  ])(
    'count for a WebSocket that is over for its caller if they %s, until they are %s',
    async (_what, way, bufferBytes) => {
      const connections = new ConnectionSet(10, 256 * 1024)
      let untaken = 0
      let takes = false
      let consume = (_bytes: number) => {}
      const ends: string[] = []
      const handler: Handler = (_request, response) => {
        consume = bytes => response.requestConsumed(bytes)
        response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
        response.responseEnd([])
        const requestData = ({ length }: Uint8Array) => {
          if (takes) consume(length)
          else untaken += length
        }
        const requestEnd = () => void ends.push('whole')
        const requestAbort = ({ reason }: SallyportError) => void ends.push(reason)
        return { ...discarding(response), requestData, requestEnd, requestAbort }
      }
      const limits = { bufferBytes }
      const peer = await call(await accept(peer => serveHttp2(peer, { handler, connections, limits })))
      peer.send(Buffer.concat([greeting(2 ** 30), socket(1), body(1), frame(TYPE.data, END_STREAM, 1)]))
      await until(() => connections.unread.usedBytes >= 30_000)
      peer.socket.end()
      await until(() => connections.size === 0)
      expect(connections.unread.usedBytes).toBeGreaterThan(30_000)
      expect(ends).toEqual([])
      if (way === 'shed') connections.unread.shed(1)
      else {
        takes = true
        consume(way === 'taken' ? untaken : 2 * untaken)
      }
      await until(() => ends.length > 0)
      expect(ends).toEqual([way === 'shed' ? 'overloaded' : 'whole'])
      expect(connections.unread.usedBytes).toBe(0)
    },
  )

  test('no longer count for what was taken of their bodies', async () => {
    const connections = new ConnectionSet(10, 256 * 1024)
    const { handler, seen } = recorder(() => {})
    const peer = await call(await accept(socket => serveHttp2(socket, { handler, connections })))
    open.push(() => peer.socket.destroy())
    peer.send(Buffer.concat([greeting(2 ** 30), post(1)]))
    await until(() => seen[0]?.body.length === 15_000)
    expect(connections.unread.usedBytes).toBe(EXCHANGE_BYTES + '/attack'.length)
  })
})

test.each([
  ['a part of a head', false],
  ['answers that have ended, and wait for the socket', true],
])('what a connection holds no longer counts once it is cut: %s', async (_what, isAnswers) => {
  const connections = new ConnectionSet(10)
  const answers = giver(16 * 1024)
  const sockets: Socket[] = []
  const peer = await call(await accept(socket => sockets.push(socket)))
  open.push(() => peer.socket.destroy())
  await until(() => sockets.length === 1)
  const connection = serveHttp2(sockets[0]!, { handler: answers.handler, connections })
  peer.send(greeting(2 ** 30))
  peer.socket.pause()
  if (!isAnswers) peer.send(frame(TYPE.headers, 0, 1, Buffer.alloc(15_000)))
  for (let id = 1; isAnswers && queuedInHandle(sockets[0]!) === 0; id += 2) {
    peer.send(get(id))
    await until(() => answers.given === (id + 1) / 2)
    await new Promise(resolve => setTimeout(resolve, 1))
  }
  await until(() => connections.unread.usedBytes >= 15_000)
  connection.destroy('overloaded')
  expect(connections.unread.usedBytes).toBe(0)
})

test('large heads within the limit are no flood', async () => {
  // Answers from within the handler count as cheap, and few of them may wait at a time.
  const { handler, seen } = recorder(({ response }) => void setImmediate(() => ok(response)))
  const listener = await serve(handler, { headBytes: 40 * 1024, http2ControlBytes: 1024 })
  const session = connect(`http://127.0.0.1:${listener.address.port}`)
  open.push(() => session.destroy())
  let goaway: number | undefined
  session.on('goaway', code => {
    goaway = code
  })
  session.on('error', () => {})
  const many = { ':path': '/', ':authority': 'a', 'x-large': '~'.repeat(39 * 1024) }
  for (let i = 0; i < 20; i++)
    session
      .request(many)
      .on('error', () => {})
      .resume()
  await until(() => seen.length === 20)
  const quiet = session.request({ ':path': '/', ':authority': 'a' })
  await once(quiet.resume(), 'close')
  // Long enough for a check of the session's control bytes.
  await new Promise(resolve => setTimeout(resolve, 2500))
  expect(goaway).toBeUndefined()
})

test('uploads that are cancelled at once are no flood', async () => {
  const { handler, seen } = recorder(() => {})
  const listener = await serve(handler)
  const peer = await request(listener)
  await until(() => seen.length === 1)
  const upload = (id: number) => [
    frame(TYPE.headers, END_HEADERS, id, head('POST')),
    ...Array.from({ length: 4 }, () => frame(TYPE.data, 0, id, Buffer.alloc(15_000))),
    frame(TYPE.reset, 0, id, uint32(8)),
  ]
  for (let id = 3; id < 40; id += 2) peer.send(Buffer.concat(upload(id)))
  // Long enough for a check of the session's control bytes.
  await new Promise(resolve => setTimeout(resolve, 2500))
  expect([peer.ended, peer.closed, seen[0]!.aborted]).toEqual([false, false, undefined])
})

describe('an upstream that breaks off behind its answer', () => {
  test.each([
    ['the head of HEAD', 'HEAD', 200, '', 0],
    ['a 204', 'POST', 204, '', 0],
    ['a 304', 'GET', 304, '', 0],
    ['a body of known length', 'GET', 200, 'ok', 2],
  ])('%s is whole', async (_what, method, status, body, bodyBytes) => {
    expect(await answered(method, status, body, bodyBytes)).toEqual([status, body, 0])
  })

  test.each([
    ['a body that is not whole', 'o', 2, []],
    ['a body of unknown length', 'ok', -1, []],
    ['a body whose trailers are announced', 'ok', 2, ['trailer', 'grpc-status']],
  ])('%s is a reset', async (_what, body, bodyBytes, headers) => {
    expect(await answered('GET', 200, body, bodyBytes, headers)).toEqual([200, body, 2])
  })

  async function answered(method: string, status: number, body: string, bodyBytes: number, headers: string[] = []) {
    const { handler, seen } = recorder(() => {})
    const listener = await serve(handler)
    const session = connect(`http://127.0.0.1:${listener.address.port}`)
    open.push(() => session.destroy())
    const whole = { endStream: method !== 'POST' }
    const stream = session.request({ ':path': '/', ':authority': 'a', ':method': method }, whole)
    let text = ''
    stream.on('data', chunk => {
      text += chunk
    })
    stream.on('error', () => {})
    await until(() => seen.length === 1)
    const { response } = seen[0]!
    response.responseHead({ status, headers, bodyBytes })
    if (body !== '') response.responseData(Buffer.from(body))
    const closed = new Promise(resolve => stream.once('close', resolve))
    const [head] = await once(stream, 'response')
    await until(() => text === body)
    response.responseAbort(new SallyportError('upstream-broken'))
    await closed
    return [head[':status'], text, stream.rstCode]
  }
})
