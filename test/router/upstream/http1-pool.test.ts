/** Targets that end connections which they have left to be used again, or that serve only some of those that are open. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { Upstreams } from '../../../router/upstream/upstreams.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import { makeSecrets, type Secrets } from '../../support/secrets.ts'
import { eventually } from '../../support/until.ts'

/** A target answers one request on each connection until it is `patient`. Then it answers all. */
let patient: boolean
/** On how many connections it answers at a time. The others wait for one of them to end. */
let processes: number
let protocol: string
let secrets: Secrets
let connections: Socket[]
let waiting: Socket[]
let served: Set<Socket>
let upstreams: Upstreams
const target = createServer({ pauseOnConnect: true }, socket => {
  connections.push(socket)
  waiting.push(socket)
  serveNext()
})
beforeAll(async () => {
  secrets = await makeSecrets()
})
beforeEach(async () => {
  patient = false
  processes = Number.POSITIVE_INFINITY
  protocol = 'http'
  connections = []
  waiting = []
  served = new Set()
  await once(target.listen(0, '127.0.0.1'), 'listening')
})
afterEach(() => {
  upstreams.close()
  for (const socket of connections) socket.destroy()
  target.close()
})

function serveNext(): void {
  if (served.size < processes && waiting.length > 0) serve(waiting.shift()!, served)
}

function serve(socket: Socket, among: Set<Socket>): void {
  among.add(socket)
  socket.on('close', () => {
    among.delete(socket)
    serveNext()
  })
  const wire = protocol === 'https' ? new TLSSocket(socket, { isServer: true, ...secrets.server }) : socket
  let mayAnswer = true
  wire.on('error', () => {})
  wire.on('data', () => {
    if (mayAnswer || patient) wire.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
    mayAnswer = false
    if (!patient) setTimeout(() => socket.destroy(), 20)
  })
  wire.resume()
}

async function post(caller = UPSTREAM_REQUEST.caller): Promise<string> {
  const { port } = target.address() as AddressInfo
  const tls = { key: '', ca: secrets.ca, serverName: undefined, insecure: false, http2: false }
  const to = fillTarget(parseTarget(`${protocol}://127.0.0.1:${port}`), {}, new Map(), tls)!
  const options = { connectMs: 60_000, headMs: 60_000, attempts: 0 }
  return await new Promise(resolve => {
    const responseEnd = () => resolve('answered')
    const responseAbort = (error: Error) => resolve(error.message)
    upstreams.forward(to, { ...UPSTREAM_REQUEST, method: 'POST', caller }, options, {
      ...DEAF,
      responseEnd,
      responseAbort,
    })
  })
}

/** The target ends a connection that nobody uses. */
async function learn(): Promise<void> {
  expect(await post()).toBe('answered')
  await eventually(() => expect(upstreams.stats().connections).toBe(0))
}

it('a target that ends each connection behind its answer gets no request on one that it is about to end', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  await learn()
  for (let i = 0; i < 5; i++) expect(await post()).toBe('answered')
  expect(connections.length).toBe(6)
})

it('connections that it has left open for a while are used', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  await learn()
  patient = true
  await eventually(async () => {
    const before = connections.length
    expect(await post()).toBe('answered')
    expect(connections.length).toBe(before)
  })
})

it('if no other may be opened, any connection is used', async () => {
  upstreams = new Upstreams({ idleMs: 60_000, maxConnectionsPerTarget: 1 })
  await learn()
  patient = true
  for (let i = 0; i < 5; i++) expect(await post()).toBe('answered')
  expect(connections.length).toBe(2)
})

it('a target that restarts gets no more connections than before', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  patient = true
  for (let i = 0; i < 2; i++) expect(await post()).toBe('answered')
  connections[0]!.destroy()
  await eventually(() => expect(upstreams.stats().connections).toBe(0))
  for (let i = 0; i < 5; i++) expect(await post()).toBe('answered')
  expect(connections.length).toBe(2)
})

it('a connection is used for ten minutes at most, since its name may lead elsewhere by then', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  patient = true
  const now = performance.now.bind(performance)
  let passedMs = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now() + passedMs)
  onTestFinished(() => void vi.restoreAllMocks())
  // Each request comes before the connection has been idle for too long.
  for (; passedMs <= 650_000; passedMs += 50_000) expect(await post()).toBe('answered')
  expect(connections.length).toBe(1 + 1)
})

describe.each(['http', 'https'])('an %s target with one process for each connection', scheme => {
  beforeEach(() => {
    protocol = scheme
    upstreams = new Upstreams({ idleMs: 60_000 })
    patient = true
    processes = 1
  })

  it('serves those that wait while others are idle', async () => {
    expect(await Promise.all([post(), post(), post()])).toEqual(['answered', 'answered', 'answered'])
  })

  it('serves those that wait while another goes on', async () => {
    let isServed = false
    const [first, second] = [post(), post()]
    expect(await first).toBe('answered')
    const end = second.then(() => {
      isServed = true
    })
    // Never idle for long enough to be seen by a sweep.
    while (!isServed) expect(await post()).toBe('answered')
    await end
  })
})

it('a target that answers all at once, late, keeps its connections', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  patient = true
  processes = 0
  const late = [post(), post(), post()]
  await eventually(() => expect(waiting.length).toBe(3))
  // For longer than a new connection may be unanswered.
  await new Promise(resolve => setTimeout(resolve, 1_250))
  processes = Number.POSITIVE_INFINITY
  for (let i = 0; i < 3; i++) serveNext()
  expect(await Promise.all(late)).toEqual(['answered', 'answered', 'answered'])
  expect(upstreams.stats()).toMatchObject({ connections: 3, idle: 3 })
})

it('a request that takes long costs its target one connection more', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  patient = true
  processes = 1
  const [first, slow] = [post(), post()]
  expect(await first).toBe('answered')
  processes = Number.POSITIVE_INFINITY
  // The second stays as it is.
  waiting = []
  await eventually(async () => {
    expect(await post()).toBe('answered')
    expect(connections.length).toBe(3)
  })
  const more = performance.now() + 3_000
  while (performance.now() < more) expect(await post()).toBe('answered')
  expect(connections.length).toBe(3)
  upstreams.close()
  connections[1]!.resetAndDestroy()
  expect(await slow).toBe('read ECONNRESET')
})

it('a network that uses three quarters of the connections gets no more, and others do', async () => {
  upstreams = new Upstreams({ idleMs: 60_000, maxConnectionsPerTarget: 8 })
  // Time stands still: no connection ends for those that wait.
  vi.spyOn(performance, 'now').mockReturnValue(performance.now())
  patient = true
  processes = 0
  const tooMany = /^too many connections to upstreams \([67] here, 6 of them used by the network of the caller; /
  const held = Array.from({ length: 6 }, () => post('203.0.113.1'))
  expect(await post('203.0.113.1')).toMatch(tooMany)
  await eventually(() => expect(waiting.length).toBe(6))
  expect(await post('203.0.113.1')).toMatch(tooMany)
  waiting = []
  processes = 1
  expect(await post('198.51.100.1')).toBe('answered')
  // That connection is idle now.
  expect(await post('203.0.113.1')).toMatch(tooMany)
  expect(await post('198.51.100.1')).toBe('answered')
  expect(upstreams.stats()).toMatchObject({ connections: 7, idle: 1 })
  for (const socket of connections.slice(0, 6)) socket.destroy()
  expect((await Promise.all(held)).length).toBe(6)
  expect(await post('203.0.113.1')).toBe('answered')
})

it('a target with slow handshakes keeps most of its connections', async () => {
  upstreams = new Upstreams({ idleMs: 60_000 })
  patient = true
  protocol = 'https'
  const posts = () => Promise.all(Array.from({ length: 40 }, () => post()))
  // Time stands still until all are idle: these handshakes are not slow.
  const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now())
  await posts()
  clock.mockRestore()
  processes = 0
  const used = posts()
  const slow = posts()
  await used
  await eventually(() => expect(waiting.length).toBe(40))
  await eventually(() => expect(upstreams.stats().idle).toBeLessThan(40))
  expect(upstreams.stats().idle).toBeGreaterThan(0)
  upstreams.close()
  for (const socket of waiting) socket.destroy()
  await slow
})
