/** What one caller does to a session with an HTTP/2 target reaches no callers of other networks. */
import { performance } from 'node:perf_hooks'
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { RequestSink } from '../../../protocol/exchange.ts'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { SecureContexts } from '../../../router/upstream/dial.ts'
import { Http2Pool } from '../../../router/upstream/http2-pool.ts'
import { ConnectionBudget, TargetConnections } from '../../../router/upstream/places.ts'
import type { PooledUpstream } from '../../../router/upstream/pool.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import { frame, setting, TYPE, uint32 } from '../../support/http2-frames.ts'
import { Http2Upstream, type UpstreamConnection, type UpstreamStream } from '../../support/http2-upstream.ts'
import { until } from '../../support/until.ts'

const OTHERS = '198.51.100.1'
const ITS = '203.0.113.7'
const WINDOW_BYTES = 65_535
const ENHANCE_YOUR_CALM = 11

let upstream: Http2Upstream
let pool: Http2Pool
/** Why exchanges have failed. */
let failures: string[]
beforeEach(async () => {
  upstream = await Http2Upstream.start()
  failures = []
  makePool(200)
})
afterEach(async () => {
  pool.close()
  await upstream.stop()
})

function makePool(perTarget: number): void {
  const target = fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
  const connections = new TargetConnections(new ConnectionBudget(perTarget, perTarget))
  pool = new Http2Pool(target, new SecureContexts(), connections, 60_000)
}

interface Sent {
  readonly sink: RequestSink
  readonly stream: UpstreamStream
}

/** A request of `caller` that its upstream has. */
async function send(caller: string, method = 'GET'): Promise<Sent> {
  const get = () => new Promise<PooledUpstream>(done => pool.open(caller, 60_000, (_, one) => done(one!)))
  const session = pool.take(caller) ?? (await get())
  const before = upstream.streams.length
  const its = failures
  const responseAbort = ({ message }: SallyportError) => void its.push(`${caller}: ${message}`)
  const request = { ...UPSTREAM_REQUEST, caller, method, bodyBytes: method === 'GET' ? 0 : -1 }
  const sink = session.send(request, { ...DEAF, responseAbort }, 0)
  await until(() => upstream.streams.length > before)
  return { sink, stream: upstream.streams.at(-1)! }
}

async function cancel({ sink, stream }: Sent): Promise<void> {
  sink.requestAbort(new SallyportError('cancelled'))
  await until(() => stream.resetCode !== undefined)
}

describe('callers of other networks keep their requests', () => {
  it('while an upload is not used that fills the window of its connection (Go, Caddy, Tomcat, Jetty)', async () => {
    upstream.settings = setting('initialWindowSize', 2 * WINDOW_BYTES)
    const { sink, stream } = await send(OTHERS, 'POST')
    sink.requestData(Buffer.alloc(1000))
    const { sink: filling } = await send(ITS, 'POST')
    filling.requestData(Buffer.alloc(2 * WINDOW_BYTES))
    await until(() => upstream.streams[1]!.received === WINDOW_BYTES)
    sink.requestData(Buffer.alloc(1000))
    await until(() => stream.received === 2000)
  })

  it('if their upstream ends a connection because of some cancelled requests (Tomcat)', async () => {
    const counts = new Map<UpstreamConnection, number>()
    const overhead: Record<number, number> = { [TYPE.headers]: -20, [TYPE.reset]: 50 }
    upstream.onFrame = (connection, { type, stream }) => {
      const count = (counts.get(connection) ?? -100) + (overhead[type] ?? 0)
      counts.set(connection, count)
      if (count > 0) connection.goaway(ENHANCE_YOUR_CALM, stream)
    }
    await send(OTHERS)
    for (let i = 0; i < 20; i++) await cancel(await send(ITS))
    const { stream } = await send(OTHERS)
    expect([failures, stream.connection]).toEqual([[], upstream.connections[0]])
  })

  it('if their upstream ends a connection because of malformed requests, which it resets (hyper)', async () => {
    const PROTOCOL = 1
    const MOST = 1024
    const counts = new Map<UpstreamConnection, number>()
    await send(OTHERS)
    upstream.onWhole = stream => {
      const count = (counts.get(stream.connection) ?? 0) + 1
      counts.set(stream.connection, count)
      if (count > MOST) stream.connection.goaway(ENHANCE_YOUR_CALM, stream.id)
      else stream.reset(PROTOCOL)
    }
    for (let i = 1; i <= MOST + 10; i++) {
      await send(ITS)
      await until(() => failures.length === i)
    }
    expect(failures.filter(one => !one.startsWith(`${ITS}: the upstream reset`))).toEqual([])
  })
})

describe('the first session of a network, for the next request', () => {
  const finish = async ({ stream }: Sent) => {
    const left = pool.idle
    stream.head(204, {}, true)
    await until(() => pool.idle > left || pool.size === 0)
  }
  const starve = async () => {
    const upload = await send(OTHERS, 'POST')
    upload.sink.requestData(Buffer.alloc(2 * WINDOW_BYTES))
    await until(() => upload.stream.received === WINDOW_BYTES)
    return upload
  }
  const wear = async (reset: (sent: Sent) => Promise<void>) => {
    const held = await send(OTHERS)
    for (let i = 0; i < 3; i++) await reset(await send(OTHERS))
    return held
  }
  const resetByUpstream = (code: number) => async (sent: Sent) => {
    const before = failures.length
    sent.stream.reset(code)
    await until(() => failures.length > before)
  }
  const REFUSED = 7
  const states: Record<string, () => Promise<Sent>> = {
    good: () => send(OTHERS),
    starved: starve,
    'worn by resets': () => wear(cancel),
    'worn by resets of its upstream': () => wear(resetByUpstream(1)),
    'with requests refused': () => wear(resetByUpstream(REFUSED)),
  }
  type Row = [now: 'in use' | 'idle', state: keyof typeof states, caller: 'same' | 'other', room: boolean, got: string]
  const rows: Row[] = [
    ['in use', 'good', 'same', true, 'shared'],
    ['in use', 'good', 'same', false, 'shared'],
    ['in use', 'good', 'other', true, 'another'],
    ['in use', 'good', 'other', false, 'shared'],
    ['in use', 'starved', 'same', true, 'another'],
    ['in use', 'starved', 'same', false, 'shared'],
    ['in use', 'starved', 'other', true, 'another'],
    ['in use', 'starved', 'other', false, 'shared'],
    ['in use', 'worn by resets', 'same', true, 'another'],
    ['in use', 'worn by resets', 'same', false, 'shared'],
    ['in use', 'worn by resets', 'other', true, 'another'],
    ['in use', 'worn by resets', 'other', false, 'shared'],
    ['in use', 'worn by resets of its upstream', 'same', true, 'another'],
    ['in use', 'worn by resets of its upstream', 'same', false, 'shared'],
    ['in use', 'with requests refused', 'same', true, 'shared'],
    ['idle', 'good', 'same', true, 'shared'],
    ['idle', 'good', 'same', false, 'shared'],
    ['idle', 'good', 'other', true, 'shared'],
    ['idle', 'good', 'other', false, 'shared'],
    ['idle', 'starved', 'same', true, 'another'],
    ['idle', 'starved', 'same', false, 'shared'],
    ['idle', 'starved', 'other', true, 'another'],
    ['idle', 'starved', 'other', false, 'shared'],
    ['idle', 'worn by resets', 'same', true, 'another'],
    ['idle', 'worn by resets', 'same', false, 'another'],
    ['idle', 'worn by resets', 'other', true, 'another'],
    ['idle', 'worn by resets', 'other', false, 'another'],
    ['idle', 'worn by resets of its upstream', 'other', true, 'another'],
    ['idle', 'with requests refused', 'other', true, 'shared'],
  ]
  it.each(rows)('%s, %s, of the %s network, room for more: %s: %s', async (now, state, caller, room, got) => {
    makePool(room ? 10 : 1)
    upstream.settings = setting('initialWindowSize', 2 * WINDOW_BYTES)
    const sent = await states[state]!()
    if (now === 'idle' && state === 'starved') await cancel(sent)
    else if (now === 'idle') await finish(sent)
    const { stream } = await send(caller === 'same' ? OTHERS : ITS)
    expect(stream.connection === upstream.connections[0] ? 'shared' : 'another').toBe(got)
    expect(upstream.connections).toHaveLength(got === 'shared' ? 1 : 2)
  })

  it('is used if complete requests have paid for its resets', async () => {
    const held = await send(OTHERS)
    for (let i = 0; i < 10; i++) {
      for (let paid = 0; paid < 2; paid++) await finishOne(await send(OTHERS))
      await cancel(await send(OTHERS))
    }
    const { stream } = await send(OTHERS)
    expect(stream.connection).toBe(held.stream.connection)
  })

  it('is not used after 200 resets, whoever has paid for them', async () => {
    const held = await send(OTHERS)
    for (let i = 0; i <= 200; i++) {
      for (let paid = 0; paid < 2; paid++) await finishOne(await send(OTHERS))
      await cancel(await send(OTHERS))
    }
    const { stream } = await send(OTHERS)
    expect(stream.connection).not.toBe(held.stream.connection)
  })

  it('is not used after ten minutes, and ends once it is idle', async () => {
    const now = performance.now.bind(performance)
    let passedMs = 0
    vi.spyOn(performance, 'now').mockImplementation(() => now() + passedMs)
    onTestFinished(() => void vi.restoreAllMocks())
    const held = await send(OTHERS)
    passedMs = 600_000
    const { stream } = await send(OTHERS)
    expect(stream.connection).not.toBe(held.stream.connection)
    held.stream.head(204, {}, true)
    await until(() => held.stream.connection.socket.destroyed)
    expect(failures).toEqual([])
  })
})

/** Its answer arrives before what is sent next is answered. */
async function finishOne({ stream }: Sent): Promise<void> {
  stream.head(204, {}, true)
  await seen(stream.connection)
}

/** Everything that was sent has arrived. */
async function seen(connection: UpstreamConnection): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  connection.onPong = resolve
  connection.send(frame(TYPE.ping, 0, 0, Buffer.concat([uint32(0), uint32(0)])))
  await promise
}

describe('of many networks', () => {
  const SHARED_FROM = 100
  const networks = Array.from({ length: 2 * SHARED_FROM }, (_, i) => `10.0.${i}.1`)
  const begun = () => upstream.connections.map(({ streams }) => streams.size)

  it('each has a session, and from 100 sessions on they share them evenly', async () => {
    for (const network of networks) await send(network)
    expect(begun()).toEqual(Array(SHARED_FROM).fill(2))
  })

  it('those that come together do likewise', async () => {
    await Promise.all(networks.map(network => send(network)))
    expect(begun().length).toBeLessThanOrEqual(SHARED_FROM)
    expect(Math.max(...begun())).toBeLessThanOrEqual(4)
  })

  it('one takes no more than three quarters of these 100 before it shares, so that others have theirs', async () => {
    upstream.settings = Buffer.concat([
      setting('initialWindowSize', WINDOW_BYTES),
      setting('maxConcurrentStreams', 100),
    ])
    // Each session has a request, and is worn.
    await send(OTHERS)
    upstream.connections[0]!.goaway(1, 1)
    await until(() => failures.length === 1)
    for (let i = 0; i < SHARED_FROM; i++) await send(ITS)
    const taken = upstream.connections.length
    const { stream } = await send(OTHERS)
    expect([taken, stream.connection.streams.size]).toEqual([1 + 75, 1])
  })

  it('one whose sessions are all full gets another, and shares none that others use', async () => {
    await send(OTHERS)
    upstream.settings = setting('maxConcurrentStreams', 1)
    for (let i = 0; i < 80; i++) await send(ITS)
    expect(begun()).toEqual(Array(81).fill(1))
  })

  it('one that fills the windows of all its sessions shares these, and none that others use', async () => {
    upstream.settings = setting('initialWindowSize', 2 * WINDOW_BYTES)
    for (const network of networks.slice(0, 20)) await send(network, 'POST')
    for (let i = 0; i < SHARED_FROM; i++) {
      const { sink, stream } = await send(ITS, 'POST')
      sink.requestData(Buffer.alloc(2 * WINDOW_BYTES))
      const received = () => [...stream.connection.streams.values()].reduce((sum, one) => sum + one.received, 0)
      await until(() => received() === WINDOW_BYTES)
    }
    expect(begun().slice(0, 20)).toEqual(Array(20).fill(1))
    expect(upstream.connections.length).toBeLessThan(SHARED_FROM)
  })

  it.each([
    ['are full', 1],
    ['take no more', 0],
  ])('one whose sessions %s shares those of others if there is no room for more', async (state, more) => {
    makePool(4)
    upstream.settings = setting('maxConcurrentStreams', 2)
    for (const network of networks.slice(0, 4)) await send(network)
    const [own] = upstream.connections
    if (state === 'take no more') own!.goaway(0, 1)
    await seen(own!)
    for (let i = 0; i < more; i++) await send(networks[0]!)
    const { stream } = await send(networks[0]!)
    expect([stream.connection !== own, failures]).toEqual([true, []])
  })
})
