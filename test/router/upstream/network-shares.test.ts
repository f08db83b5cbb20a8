/** Connections to many targets, which the networks of callers share. */
import { once } from 'node:events'
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttp2, createSecureServer } from 'node:http2'
import { createServer as createHttps } from 'node:https'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { SocketReader } from '../../../protocol/http/http1/socket-reader.ts'
import { webSocketAccept } from '../../../protocol/http/http1/websocket.ts'
import { fillTarget, parseTarget, type UpstreamTarget } from '../../../router/target.ts'
import { SecureContexts } from '../../../router/upstream/dial.ts'
import { UpstreamExchange } from '../../../router/upstream/exchange.ts'
import { KeptPorts } from '../../../router/upstream/kept-ports.ts'
import type { NetworkShares } from '../../../router/upstream/network-shares.ts'
import { ConnectionBudget, TargetConnections } from '../../../router/upstream/places.ts'
import type { Pool } from '../../../router/upstream/pool.ts'
import { makePool } from '../../../router/upstream/upstreams.ts'
import { Random } from '../../fuzz/random.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import { Http2Upstream } from '../../support/http2-upstream.ts'
import { makeSecrets, type Secrets } from '../../support/secrets.ts'
import { firstSeed } from '../../support/seed.ts'
import { eventually } from '../../support/until.ts'

const A = '203.0.113.1'
const B = '198.51.100.1'
const CALLERS = [A, B, '2001:db8::1', '']
const METHODS = ['GET', 'HEAD', 'POST']
/** When nothing is fresh any more. */
const LATE = 1e12

let secrets: Secrets
let sockets: Set<Socket>
let servers: Server[]
/** Requests for `/wait` that have not been answered. */
let waiting: ServerResponse[]
let budget: ConnectionBudget
let pools: Map<string, readonly [pool: Pool, connections: TargetConnections]>
beforeAll(async () => {
  secrets = await makeSecrets()
})
beforeEach(() => {
  sockets = new Set()
  servers = []
  waiting = []
  pools = new Map()
})
afterEach(() => {
  for (const [pool] of pools.values()) pool.close()
  for (const socket of sockets) socket.destroy()
  for (const server of servers) server.close()
})

function answer(request: { url?: string | undefined }, response: unknown): void {
  if (request.url === '/wait') waiting.push(response as ServerResponse)
  else (response as ServerResponse).end('done')
}

function upgrade(request: IncomingMessage, socket: NodeJS.WritableStream & { on: Socket['on'] }): void {
  const accept = webSocketAccept(request.headers['sec-websocket-key']!)
  const fields = ['connection: upgrade', 'upgrade: websocket', `sec-websocket-accept: ${accept}`]
  socket.write(`HTTP/1.1 101 x\r\n${fields.join('\r\n')}\r\n\r\n`)
  socket.on('error', () => {})
  socket.on('end', () => socket.end())
}

async function up(scheme: string, server: Server): Promise<UpstreamTarget> {
  servers.push(server)
  server.on('connection', socket => {
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => sockets.delete(socket))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const tls = { key: '', ca: secrets.ca, serverName: 'localhost', insecure: false, http2: true }
  return fillTarget(parseTarget(`${scheme}://127.0.0.1:${port}`), {}, new Map(), tls)!
}

const plain = () => up('http', createHttp(answer).on('upgrade', upgrade))

function poolFor(target: UpstreamTarget, upgrade: boolean): Pool {
  const pool = pools.get(target.key)?.[0] ?? addPool(target)
  return (upgrade && pool.forUpgrades) || pool
}

function addPool(target: UpstreamTarget): Pool {
  const connections = new TargetConnections(budget)
  const pool = makePool(target, new SecureContexts(), connections, 60_000, new SocketReader())
  pools.set(target.key, [pool, connections])
  return pool
}

interface Going {
  readonly exchange: UpstreamExchange
  /** The status of its response, or why there is none. */
  readonly outcome: Promise<string>
  over: boolean
}

function start(target: UpstreamTarget, caller: string, path = '/', isWebSocket = false, method = 'GET'): Going {
  const { promise, resolve } = Promise.withResolvers<string>()
  const end = (what: string): void => {
    going.over = true
    resolve(what)
  }
  const request = { ...UPSTREAM_REQUEST, method, caller, path, upgrade: isWebSocket }
  const options = { connectMs: 60_000, headMs: 60_000, attempts: 0 }
  const exchange = new UpstreamExchange({ replayBudget: new ReplayBudget(0, 0), poolFor }, target, request, options, {
    ...DEAF,
    responseHead: ({ status }) => (status === 101 ? resolve('101') : undefined),
    // A WebSocket goes on until its caller ends it, too.
    responseEnd: () => isWebSocket || end('200'),
    responseAbort: ({ reason }) => end(reason),
  })
  const going: Going = { exchange, outcome: promise, over: false }
  exchange.start()
  if (!isWebSocket) exchange.requestEnd([])
  return going
}

const ask = (...[target, caller, path]: [UpstreamTarget, string, string?]) => start(target, caller, path).outcome
const used = (shares: NetworkShares) => [shares.used, ...CALLERS.map(caller => shares.usedBy(caller))]
const open = () => [...pools.values()].map(([, connections]) => connections.open)

describe('over all targets', () => {
  let targets: UpstreamTarget[]
  beforeEach(async () => {
    budget = new ConnectionBudget(100, 8, new KeptPorts([1, 1]))
    targets = await Promise.all(Array.from({ length: 8 }, plain))
  })

  it.each([
    ['slow answers', false],
    ['WebSockets', true],
  ])('a network with %s uses three quarters, and others go on', async (_, isWebSocket) => {
    const going = targets.map(target => start(target, A, '/wait', isWebSocket))
    for (const target of targets) expect(await ask(target, B)).toBe('200')
    for (const refused of going.slice(6)) expect(await refused.outcome).toBe('overloaded')
    if (isWebSocket) for (const held of going.slice(0, 6)) expect(await held.outcome).toBe('101')
    expect(await ask(targets[7]!, A)).toBe('overloaded')
    for (const { exchange } of going) exchange.requestAbort(new SallyportError('internal'))
    expect(await ask(targets[7]!, A)).toBe('200')
  })

  it('the one that has been idle for the longest ends for another', async () => {
    for (const target of targets) expect(await ask(target, A)).toBe('200')
    expect(await ask(targets[0]!, A)).toBe('200')
    expect(open()).toEqual(Array(8).fill(1))
    expect(await ask(await plain(), B)).toBe('200')
    expect(open()).toEqual([1, 0, 1, 1, 1, 1, 1, 1, 1])
    expect(budget.used).toBe(8)
    // Nothing suggests that this target ends its connections early.
    for (let i = 0; i < 2; i++) expect(await ask(targets[1]!, A)).toBe('200')
    expect(pools.get(targets[1]!.key)![0].sweep(0)).toBe(false)
    expect(open().slice(1, 3)).toEqual([1, 0])
  })

  it('an HTTP/2 session counts for the network that uses it', async () => {
    const server = () => up('h2c', createHttp2(answer) as unknown as Server)
    const others = await Promise.all(Array.from({ length: 8 }, server))
    const going = others.map(target => start(target, A, '/wait'))
    for (const refused of going.slice(6)) expect(await refused.outcome).toBe('overloaded')
    expect(await ask(others[7]!, B)).toBe('200')
    expect(await ask(others[7]!, A)).toBe('overloaded')
    expect(await ask(others[0]!, A)).toBe('200')
    for (const target of targets) expect(await ask(target, B)).toBe('200')
    expect(budget.used).toBe(8)
  })

  it('an HTTP/2 session that ends for another is gone, whatever its target does', async () => {
    const deaf = await Promise.all(Array.from({ length: 9 }, () => Http2Upstream.start()))
    const others = deaf.map(upstream => {
      upstream.onEnd = () => {}
      upstream.onWhole = stream => stream.head(200, {}, true)
      return fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
    })
    for (const target of others) expect(await ask(target, A)).toBe('200')
    for (let turns = 0; turns < 20; turns++) await new Promise(resolve => setImmediate(resolve))
    expect(pools.get(others[0]!.key)![0].size).toBe(0)
    expect(budget.used).toBe(8)
    for (const upstream of deaf) await upstream.stop()
  })

  it('a lost connection does not count when its request is sent again', async () => {
    budget = new ConnectionBudget(1, 1, new KeptPorts([1, 1]))
    expect(await ask(targets[0]!, A)).toBe('200')
    const repeated = ask(targets[0]!, A, '/wait')
    await eventually(() => expect(waiting).toHaveLength(1))
    for (const socket of sockets) socket.destroy()
    await eventually(() => expect(waiting).toHaveLength(2))
    waiting[1]!.end()
    expect(await repeated).toBe('200')
  })
})

it('whatever becomes of connections, all are free in the end', async () => {
  const random = new Random(String(firstSeed()))
  const pick = <T>(list: readonly T[]): T | undefined => (list.length === 0 ? undefined : random.pick(list))
  budget = new ConnectionBudget(5, 9, new KeptPorts([1, 1]))
  const h2 = { ...secrets.server, allowHTTP1: true, settings: { maxConcurrentStreams: 2 } }
  const targets = [
    await plain(),
    await plain(),
    await up('https', createHttps(secrets.server, answer).on('upgrade', upgrade)),
    await up('https', createSecureServer(h2, answer)),
    await up('h2c', createHttp2({ settings: h2.settings }, answer) as unknown as Server),
    // The handshake fails, or does not end.
    await up(
      'https',
      createServer(socket => socket.once('data', () => socket.end('no'))),
    ),
    await up('https', createServer()),
  ]
  let going: Going[] = []
  const outcomes = new Set<string>()
  for (let i = 0; i < 1_500; i++) {
    const turn = random.int(20)
    if (turn < 10) {
      const isWebSocket = random.oneIn(5)
      const target = random.pick(targets)
      const [caller, path, method] = [random.pick(CALLERS), random.pick(['/', '/wait']), random.pick(METHODS)]
      const started = start(target, caller, path, isWebSocket, method)
      void started.outcome.then(outcome => outcomes.add(outcome))
      going.push(started)
    } else if (turn < 13) pick(going)?.exchange.requestAbort(new SallyportError('internal'))
    else if (turn < 15) pick(going)?.exchange.requestEnd([])
    else if (turn < 17) waiting.splice(random.int(waiting.length + 1), 1)[0]?.end()
    else if (turn < 19) pick([...sockets])?.[random.pick(['destroy', 'resetAndDestroy'] as const)]()
    else for (const [pool] of pools.values()) pool.sweep(random.pick([0, LATE]))
    if (random.oneIn(3)) await new Promise(setImmediate)
    going = going.filter(({ over }) => !over)
    expect(budget.used).toBeLessThanOrEqual(9)
    expect(open().reduce((sum, each) => sum + each, 0)).toBe(budget.used)
  }
  for (const outcome of ['200', '101', 'overloaded', 'upstream-broken']) expect(outcomes).toContain(outcome)
  for (const { exchange } of going) exchange.requestAbort(new SallyportError('internal'))
  for (const response of waiting) response.end()
  await eventually(() => {
    for (const [pool] of pools.values()) pool.sweep(LATE)
    for (const [, { open, shares }] of pools.values()) expect([open, ...used(shares)]).toEqual(Array(6).fill(0))
    expect([budget.used, ...used(budget.shares)]).toEqual(Array(6).fill(0))
  })
})
