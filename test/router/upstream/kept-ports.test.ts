/** Local ports that callers make a router keep for a minute: how many for one network, and after which ends. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { SocketReader } from '../../../protocol/http/http1/socket-reader.ts'
import { webSocketAccept } from '../../../protocol/http/http1/websocket.ts'
import { makeTarget } from '../../../router/target.ts'
import { SecureContexts } from '../../../router/upstream/dial.ts'
import { Http1Pool } from '../../../router/upstream/http1-pool.ts'
import { Http2Pool } from '../../../router/upstream/http2-pool.ts'
import { KeptPorts } from '../../../router/upstream/kept-ports.ts'
import { ConnectionBudget, TargetConnections } from '../../../router/upstream/places.ts'
import type { PooledUpstream } from '../../../router/upstream/pool.ts'
import type { UpstreamRequest } from '../../../router/upstream/types.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import { TYPE } from '../../support/http2-frames.ts'
import { Http2Upstream } from '../../support/http2-upstream.ts'
import { until } from '../../support/until.ts'

const MINUTE = 60_000
const PORTS = 2_800
const TARGET = '203.0.113.1 80'
/** Of callers with different networks. */
const [A, B, C, D] = ['192.0.2.1', '192.0.2.2', '192.0.2.3', '192.0.2.4'] as const

/** Ends `perSecond` connections of each caller, unless they are refused. Returns how many of them were. */
function play(ports: KeptPorts, perSecond: Readonly<Record<string, number>>, from: number, to: number) {
  const refused: Record<string, number> = {}
  for (let at = from; at < to; at += 1000) {
    for (const [caller, count] of Object.entries(perSecond)) {
      for (let i = 0; i < count; i++) {
        if (ports.refuses(caller, TARGET, 0, at)) refused[caller] = (refused[caller] ?? 0) + 1
        else ports.add(TARGET, caller, at)
      }
    }
  }
  return refused
}

describe('a network', () => {
  it.each<[string, Record<string, number>]>([
    ['that keeps 34 a second, alone', { [A]: 34 }],
    ['that keeps 15 a second beside another', { [A]: 15, [B]: 15 }],
    ['that keeps 6 a second beside a greedy one', { [A]: 6, [B]: 100 }],
    ['that keeps 2 a second beside two greedy ones', { [A]: 2, [B]: 100, [C]: 100 }],
  ])('%s is never refused', (_, perSecond) => {
    expect(play(new KeptPorts([PORTS, 0]), perSecond, 0, 5 * MINUTE)[A]).toBeUndefined()
  })

  it.each([1, 2, 3])('that comes after %i greedy ones finds ports', count => {
    const ports = new KeptPorts([PORTS, 0])
    const greedy = [A, B, C].slice(0, count)
    const kept = greedy.map((caller, i) => {
      const wanted = 100 * 60
      return wanted - play(ports, { [caller]: 100 }, i, i + MINUTE)[caller]!
    })
    expect(kept[0]).toBe((PORTS * 3) / 4)
    expect(PORTS - kept.reduce((sum, each) => sum + each)).toBeGreaterThan(40)
    expect(ports.refuses(D, TARGET, 0, MINUTE - 1)).toBe(false)
  })

  it('is all addresses of a /64, and is refused for no other target', () => {
    const ports = new KeptPorts([4, 0])
    for (let i = 0; i < 3; i++) ports.add(TARGET, '2001:db8::1', 0)
    const refuses = (caller: string, address = TARGET) => ports.refuses(caller, address, 0, 0)
    expect([refuses('2001:db8::2'), refuses('2001:db8:0:1::1'), refuses('2001:db8::1', '203.0.113.1 81')]).toEqual([
      true,
      false,
      false,
    ])
  })

  it('may keep less of what open connections leave', () => {
    const ports = new KeptPorts([8, 0])
    for (let i = 0; i < 3; i++) ports.add(TARGET, A, 0)
    expect([3, 4].map(open => ports.refuses(A, TARGET, open, 0))).toEqual([false, true])
  })

  it('is remembered for a minute, with as many ports as fit', () => {
    const ports = new KeptPorts([4, 0])
    for (let i = 0; i < 3; i++) ports.add(TARGET, A, i)
    expect([MINUTE - 1, MINUTE].map(now => ports.refuses(A, TARGET, 0, now))).toEqual([true, false])
    for (let i = 0; i < 65_536; i++) ports.add('another', A, MINUTE)
    for (let i = 0; i < 2; i++) ports.add(TARGET, A, MINUTE)
    expect(ports.refuses(A, 'another', 70_000, MINUTE)).toBe(true)
    for (let i = 0; i < 65_534; i++) ports.add(TARGET, B, MINUTE)
    expect(ports.refuses(A, 'another', 70_000, MINUTE)).toBe(false)
  })
})

it.each([
  [0, '127.0.0.1', true],
  [0, '203.0.113.1', true],
  [1, '127.0.0.1', false],
  [1, '203.0.113.1', false],
  [2, '127.0.0.1', false],
  [2, '::1', false],
  [2, '203.0.113.1', true],
])('with tcp_tw_reuse=%i, ports of %s are counted: %s', (reuse, remoteAddress, isCounted) => {
  const address = new KeptPorts([4, reuse]).addressOf({ remoteAddress, remotePort: 80 })
  expect(address).toBe(isCounted ? `${remoteAddress} 80` : undefined)
})

const KEEP = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
const CLOSE = KEEP.replace('OK', 'OK\r\nconnection: close')

/** How an exchange ends: what its program sends, and who acts then. */
interface Way {
  readonly request: Partial<UpstreamRequest>
  readonly answer?: string
  readonly caller?: 'leaves' | 'ends'
  readonly program?: 'ends' | 'resets after us'
}

/** Accepts WebSockets if there is no `answer`. Ends connections that we have ended. */
async function startProgram({ request, answer, program }: Way): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, socket => {
    let text = ''
    socket.on('error', () => {})
    socket.on('data', chunk => {
      text += chunk
      if (!text.endsWith(request.bodyBytes === 2 ? '\r\n\r\nhi' : '\r\n\r\n')) return
      socket.write(answer ?? accept(/sec-websocket-key: (.*)/i.exec(text)![1]!))
      if (program === 'ends') socket.end()
    })
    socket.on('end', () => (program === 'resets after us' ? socket.resetAndDestroy() : socket.end()))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return server
}

function accept(key: string): string {
  const hash = webSocketAccept(key)
  return `HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${hash}\r\n\r\n`
}

const POST = { method: 'POST', bodyBytes: 2 }
const UPGRADE = { upgrade: true }

it.each<[keeps: boolean, name: string, way: Way]>([
  [true, 'a WebSocket whose caller ends first', { request: UPGRADE, caller: 'ends' }],
  [true, 'a WebSocket whose caller is lost', { request: UPGRADE, caller: 'leaves' }],
  [false, 'a WebSocket whose program ends first', { request: UPGRADE, caller: 'ends', program: 'ends' }],
  [false, 'a WebSocket that its program resets', { request: UPGRADE, caller: 'ends', program: 'resets after us' }],
  [false, 'a body for a program that says that it ends, and does', { request: POST, answer: CLOSE, program: 'ends' }],
  [true, 'a body for a program that says that it ends, and does not', { request: POST, answer: CLOSE }],
  [true, 'a body on a connection that is not used again', { request: POST, answer: KEEP }],
  [false, 'a body whose caller leaves', { request: POST, answer: '', caller: 'leaves' }],
  [false, 'a request without a body', { request: {}, answer: KEEP }],
  [false, 'a request without a body for a program that says that it ends', { request: {}, answer: CLOSE }],
  [false, 'a request whose caller leaves', { request: {}, answer: '', caller: 'leaves' }],
])('that a port is kept is %s behind %s', async (keeps, _, way) => {
  const server = await startProgram(way)
  const target = makeTarget('http', '127.0.0.1', (server.address() as AddressInfo).port, new Map(), undefined)
  const connections = new TargetConnections(new ConnectionBudget(10, 10, new KeptPorts([3, 0])))
  const pool = new Http1Pool(target, new SecureContexts(), connections, 60_000, new SocketReader())
  onTestFinished(() => pool.close())
  const open = (caller: string) => {
    const { promise, resolve } = Promise.withResolvers<PooledUpstream | SallyportError | undefined>()
    pool.open(caller, 10_000, (error, connection) => resolve(error ?? connection))
    return promise
  }
  const told: string[] = []
  const tell = (what: string) => () => void told.push(what)
  const response = { ...DEAF, responseHead: tell('head'), responseEnd: tell('end') }
  const asked = once(server, 'connection')
  const connection = (await open(A)) as PooledUpstream
  const sink = connection.send({ ...UPSTREAM_REQUEST, caller: A, ...way.request }, response, 60_000)
  if (way.request.bodyBytes !== undefined) sink.requestData(Buffer.from('hi'))
  if (!way.request.upgrade) sink.requestEnd([])
  const [socket] = (await asked) as [Socket]
  if (way.answer === '') await once(socket, 'data')
  else await until(() => told.includes(way.request.upgrade && way.program !== 'ends' ? 'head' : 'end'))
  if (way.caller === 'leaves') sink.requestAbort(new SallyportError('internal'))
  if (way.caller === 'ends') sink.requestEnd([])
  await until(() => pool.sweep(Number.POSITIVE_INFINITY) && socket.destroyed)

  expect(await open(B)).not.toHaveProperty('reason')
  const refused = once(server, 'connection')
  const again = await open(A)
  expect((again as Partial<SallyportError>).reason).toBe(keeps ? 'overloaded' : undefined)
  if (!keeps) return
  const [ended] = (await refused) as [Socket]
  await until(() => ended.destroyed)
  expect(pool.size).toBe(1)
})

describe('over HTTP/2', () => {
  /** `ports`: of which the network of A keeps one, if the way keeps any. */
  async function start(ports: number, most: number) {
    const upstream = await Http2Upstream.start()
    onTestFinished(() => upstream.stop())
    const target = makeTarget('h2c', '127.0.0.1', upstream.port, new Map(), undefined)
    const connections = new TargetConnections(new ConnectionBudget(most, most, new KeptPorts([ports, 0])))
    const pool = new Http2Pool(target, new SecureContexts(), connections, 60_000)
    onTestFinished(() => pool.close())
    const open = (caller: string) => {
      const { promise, resolve } = Promise.withResolvers<PooledUpstream | SallyportError | undefined>()
      pool.open(caller, 10_000, (error, session) => resolve(error ?? session))
      return promise
    }
    const begin = async () => {
      const session = (await open(B)) as PooledUpstream
      const sink = session.send({ ...UPSTREAM_REQUEST, caller: A }, DEAF, 60_000)
      await until(() => upstream.streams.length === 1)
      return { sink, stream: upstream.streams[0]! }
    }
    return { upstream, connections, pool, open, begin }
  }
  type Started = Awaited<ReturnType<typeof start>>
  type Begun = Awaited<ReturnType<Started['begin']>>

  const sweep = async ({ pool }: Started) => {
    await until(() => pool.idle === 1)
    pool.sweep(Number.POSITIVE_INFINITY)
  }
  const answered = async (started: Started, { stream }: Begun) => {
    stream.head(200, {}, true)
    await sweep(started)
  }
  const cancelled = async (started: Started, { sink }: Begun) => {
    sink.requestAbort(new SallyportError('internal'))
    await sweep(started)
  }
  const lost = async (_: Started, { stream }: Begun) => stream.connection.goaway(1, 1)
  const silent = async (started: Started, begun: Begun) => {
    begun.stream.connection.silent = true
    await answered(started, begun)
  }
  const evicted = async (started: Started, begun: Begun) => {
    begun.stream.head(200, {}, true)
    await until(() => started.pool.idle === 1)
    started.connections.budget.makeRoom()
  }
  /** As Envoy, Apache httpd and lighttpd, and as a program that answers our end quicker than a reset can follow it. */
  const deafBehindGoaway = async (started: Started, begun: Begun) => {
    let ended = false
    started.upstream.onFrame = (connection, { type }) => {
      if (type === TYPE.goaway) connection.silent = true
    }
    started.upstream.onEnd = () => {
      ended = true
    }
    await answered(started, begun)
    await until(() => begun.stream.connection.socket.destroyed)
    expect(ended).toBe(false)
  }
  const endedThere = async (started: Started, begun: Begun) => {
    started.upstream.onFrame = ({ socket }, { type }) => void (type === TYPE.goaway && socket.end())
    await silent(started, begun)
  }
  it.each<[keeps: boolean, name: string, end: (started: Started, begun: Begun) => Promise<void>]>([
    [false, 'an answered request', answered],
    [false, 'a request whose caller leaves', cancelled],
    [true, 'a program that does not say that it has read all', silent],
    [false, 'a program that answers no ping when we leave', deafBehindGoaway],
    [false, 'a program that ends the connection when we leave', endedThere],
    [true, 'an error of its program', lost],
    [true, 'a session that ends for another', evicted],
  ])('that a port is kept is %s behind %s', async (keeps, _, end) => {
    const started = await start(3, 10)
    const { upstream, pool, open } = started
    await end(started, await started.begin())
    await until(() => pool.size === 0 && upstream.connections[0]!.socket.destroyed)

    const other = (await open(B)) as PooledUpstream
    other.send({ ...UPSTREAM_REQUEST, caller: B }, DEAF, 60_000)
    const again = await open(A)
    expect((again as Partial<SallyportError>).reason).toBe(keeps ? 'overloaded' : undefined)
    if (!keeps) return
    await until(() => upstream.connections.length === 3 && upstream.connections[2]!.socket.destroyed)
    expect(pool.size).toBe(1)
  })

  it('callers of another network that wait for a connection that is refused open their own', async () => {
    const started = await start(2, 1)
    await lost(started, await started.begin())
    await until(() => started.pool.size === 0)
    const [its, others] = await Promise.all([started.open(A), started.open(C)])
    expect((its as Partial<SallyportError>).reason).toBe('overloaded')
    expect(others).not.toHaveProperty('reason')
    expect(started.upstream.connections).toHaveLength(3)
  })
})
