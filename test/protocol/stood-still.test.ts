/** What arrives in time counts, even if this process is then frozen until the deadline is over. */
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { SallyportError } from '../../protocol/base/errors.ts'
import { type Listener, listen } from '../../protocol/http/listener.ts'
import { serveRouter } from '../../router/index.ts'
import { fillTarget, makeTarget, parseTarget } from '../../router/target.ts'
import { dialUpstream, SecureContexts } from '../../router/upstream/dial.ts'
import { Http2Pool } from '../../router/upstream/http2-pool.ts'
import { ConnectionBudget, TargetConnections } from '../../router/upstream/places.ts'
import type { PooledUpstream } from '../../router/upstream/pool.ts'
import { Deadline } from '../../server/edge/deadline.ts'
import { DEAF, UPSTREAM_REQUEST } from '../support/ends.ts'
import {
  END_HEADERS,
  END_STREAM,
  type Frame,
  frame,
  framesOf,
  head,
  headers,
  PREFACE,
  TYPE,
  uint32,
} from '../support/http2-frames.ts'
import { Http2Upstream } from '../support/http2-upstream.ts'
import { eventually, until } from '../support/until.ts'
import { call, ok, type RawPeer, RawUpstream, recorder, type Seen } from './http/http1/raw.ts'

const { setImmediate: nextTurn, setTimeout: later } = globalThis
/** Longer than every deadline. */
const HOUR_MS = 3_600_000

const now = performance.now.bind(performance)
let stoodMs = 0

const open: (() => unknown)[] = []
beforeEach(() => {
  stoodMs = 0
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  vi.spyOn(performance, 'now').mockImplementation(() => now() + stoodMs)
})
afterEach(async () => {
  vi.restoreAllMocks()
  vi.useRealTimers()
  for (const close of open.splice(0).reverse()) await close()
})

/** The kernel has what `last` sends before the process freezes. When it goes on, timers run first. */
async function standStillBehind(last: () => void): Promise<void> {
  await new Promise<void>(resolve => {
    nextTurn(() => {
      last()
      later(() => {
        stoodMs = HOUR_MS
        vi.runOnlyPendingTimers()
        resolve()
      }, 1)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
    })
  })
}

interface Row {
  readonly first: string | Buffer
  /** When the first has been processed, and its timers are set. */
  readonly taken: (scene: Scene) => boolean
  readonly last: string | Buffer
  readonly answered: (scene: Scene) => boolean
}

interface Scene {
  readonly peer: RawPeer
  readonly seen: Seen[]
}

const HELLO = [PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]
const NO_WINDOW = [PREFACE, frame(TYPE.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0])), frame(TYPE.settings, 1, 0)]
const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'
const POST = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n'
const frames = ({ peer }: Scene): Frame[] => framesOf(Buffer.from(peer.text, 'latin1'))
const whole = ({ seen }: Scene) => seen.at(-1)?.trailers !== undefined && seen.at(-1)?.body === 'whole'

const CALLERS: Record<string, Row> = {
  'its first bytes, HTTP/1.1': {
    first: '',
    taken: () => vi.getTimerCount() > 0,
    last: `${POST}whole`,
    answered: whole,
  },
  'the rest of a head, HTTP/1.1': {
    first: GET + POST.slice(0, 20),
    taken: ({ peer }) => peer.text.endsWith('ok'),
    last: `${POST.slice(20)}whole`,
    answered: whole,
  },
  'the rest of a body, HTTP/1.1': {
    first: `${POST}wh`,
    taken: ({ seen }) => seen[0]?.body === 'wh',
    last: 'ole',
    answered: whole,
  },
  'the rest of a body, HTTP/2': {
    first: Buffer.concat([
      ...HELLO,
      frame(TYPE.headers, END_HEADERS, 1, head('POST')),
      frame(TYPE.data, 0, 1, Buffer.from('wh')),
    ]),
    taken: ({ seen }) => seen[0]?.body === 'wh',
    last: frame(TYPE.data, END_STREAM, 1, Buffer.from('ole')),
    answered: whole,
  },
  'room for the answer, HTTP/2': {
    first: Buffer.concat([...NO_WINDOW, frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head())]),
    taken: scene => frames(scene).some(({ type }) => type === TYPE.headers),
    last: frame(TYPE.window, 0, 1, uint32(100)),
    answered: scene => frames(scene).some(({ type, flags }) => type === TYPE.data && flags === END_STREAM),
  },
}

describe.each(Object.entries(CALLERS))('of a caller: %s', (_name, { first, taken, last, answered }) => {
  test('is heard', async () => {
    const { handler, seen } = recorder(({ request, response }) => request.method === 'GET' && ok(response))
    const listener: Listener = await listen({ port: 0, handler })
    open.push(() => listener.close({ graceMs: 0 }))
    const peer = await call(listener.address.port)
    open.push(() => peer.socket.destroy())
    const scene = { peer, seen }
    peer.send(first)
    await until(() => taken(scene))
    await standStillBehind(() => peer.send(last))
    await eventually(() => expect(answered(scene)).toBe(true))
    // Nor does the deadline end the connection afterwards.
    for (let i = 0; i < 5; i++) await new Promise(resolve => nextTurn(resolve))
    expect(listener.connections).toBe(1)
  })
})

async function askRouter(target: string): Promise<RawPeer> {
  const router = await serveRouter({
    host: '127.0.0.1',
    port: 0,
    routes: { routes: [{ name: 'a', match: {}, target }] },
  })
  open.push(() => router.close({ graceMs: 0 }))
  const peer = await call(router.address.port)
  open.push(() => peer.socket.destroy())
  peer.send(GET)
  return peer
}

describe('of an upstream', () => {
  test('an answer over HTTP/1.1 is heard', async () => {
    const upstream = await RawUpstream.start()
    open.push(() => upstream.close())
    const peer = await askRouter(`http://127.0.0.1:${upstream.port}`)
    await until(() => upstream.text.endsWith('\r\n\r\n'))
    await standStillBehind(() => upstream.peers[0]!.send('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'))
    expect(await peer.saying('\r\n\r\n')).toMatch(/^HTTP\/1.1 200 /)
  })

  test('an answer over HTTP/2 is heard', async () => {
    const upstream = await Http2Upstream.start()
    open.push(() => upstream.stop())
    const peer = await askRouter(`h2c://127.0.0.1:${upstream.port}`)
    await until(() => upstream.streams[0]?.ended === true)
    await standStillBehind(() => upstream.streams[0]!.head(200, {}, true))
    expect(await peer.saying('\r\n\r\n')).toMatch(/^HTTP\/1.1 200 /)
  })

  test('the settings of a connection over HTTP/2 are heard', async () => {
    const upstream = await RawUpstream.start()
    open.push(() => upstream.close())
    const peer = await askRouter(`h2c://127.0.0.1:${upstream.port}`)
    await until(() => upstream.text.length > PREFACE.length)
    await standStillBehind(() => upstream.peers[0]!.send(frame(TYPE.settings, 0, 0)))
    const asked = () => framesOf(Buffer.from(upstream.text.slice(PREFACE.length), 'latin1')).map(({ type }) => type)
    await until(() => asked().includes(TYPE.headers) || peer.text !== '')
    expect(asked()).toContain(TYPE.headers)
    // And the connection stays.
    upstream.peers[0]!.send(headers(1, [[':status', '200']]))
    expect(await peer.saying('\r\n\r\n')).toMatch(/^HTTP\/1.1 200 /)
  })

  test('the settings of a second connection are heard by one for whom the first had no room', async () => {
    const upstream = await RawUpstream.start()
    open.push(() => upstream.close())
    const target = fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
    const pool = new Http2Pool(
      target,
      new SecureContexts(),
      new TargetConnections(new ConnectionBudget(10, 10)),
      60_000,
    )
    open.push(() => pool.close())
    const outcomes: string[] = []
    const done = (error: SallyportError | undefined, connection: PooledUpstream | undefined) => {
      connection?.send(UPSTREAM_REQUEST, DEAF, 60_000)
      outcomes.push(error?.reason ?? 'sent')
    }
    for (let i = 0; i < 2; i++) pool.open('192.0.2.1', 1000, done)
    const one = frame(TYPE.settings, 0, 0, Buffer.from([0, 3, 0, 0, 0, 1]))
    const greeted = (i: number) => until(() => (upstream.peers[i]?.text.length ?? 0) > PREFACE.length)
    await greeted(0)
    stoodMs = 500
    upstream.peers[0]!.send(one)
    await greeted(1)
    await standStillBehind(() => upstream.peers[1]!.send(one))
    await until(() => outcomes.length === 2)
    expect(outcomes).toEqual(['sent', 'sent'])
  })

  test('a connection that it has accepted is used', async () => {
    const upstream = await RawUpstream.start()
    open.push(() => upstream.close())
    const told: (SallyportError | Socket | undefined)[] = []
    const target = makeTarget('http', '127.0.0.1', upstream.port, new Map(), undefined)
    await standStillBehind(() => {
      dialUpstream(target, '192.0.2.1', 1000, new SecureContexts(), (error, socket) => told.push(error ?? socket))
    })
    await until(() => told.length > 0)
    open.push(() => (told[0] as Socket).destroy())
    expect(told).toMatchObject([{ remotePort: upstream.port }])
  })
})

test('a deadline at the edge: it is stopped by what arrived in time, although it is due first', async () => {
  const late = vi.fn()
  const deadline = new Deadline(performance.now(), 1000, { late, threw() {} })
  await standStillBehind(() => {})
  expect(vi.getTimerCount()).toBe(0)
  deadline.stop()
  await new Promise(resolve => nextTurn(resolve))
  expect(late).not.toHaveBeenCalled()
})
