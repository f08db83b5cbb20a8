/** Who waits for a session, and what becomes of them before there is one. */
import { performance } from 'node:perf_hooks'
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { SallyportError } from '../../../protocol/base/errors.ts'
import { Http2ClientSession } from '../../../protocol/http/http2/client-session.ts'
import { fillTarget, parseTarget, type UpstreamTarget } from '../../../router/target.ts'
import { SecureContexts } from '../../../router/upstream/dial.ts'
import { Http2Pool } from '../../../router/upstream/http2-pool.ts'
import { ConnectionBudget, TargetConnections } from '../../../router/upstream/places.ts'
import type { PooledUpstream } from '../../../router/upstream/pool.ts'
import { unhurried } from '../../support/busy.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import { frame, setting, TYPE, uint32 } from '../../support/http2-frames.ts'
import { Http2Upstream, type UpstreamConnection } from '../../support/http2-upstream.ts'
import { eventually, until } from '../../support/until.ts'

const PER_SESSION = 100
let upstream: Http2Upstream
let budget: ConnectionBudget
let pool: Http2Pool
let target: UpstreamTarget
beforeEach(async () => {
  upstream = await Http2Upstream.start()
  target = fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
  makePool(10)
})
afterEach(async () => {
  pool.close()
  await upstream.stop()
})

function makePool(perTarget: number, total = perTarget, idleMs = 60_000): void {
  budget = new ConnectionBudget(perTarget, total)
  pool = new Http2Pool(target, new SecureContexts(), new TargetConnections(budget), idleMs)
}

/** One more than a session accepts; `then` is called when the first of them gets it. */
function waitTogether(then: (giveUps: (() => void)[]) => void): { got: number[]; giveUps: (() => void)[] } {
  const got: number[] = []
  const giveUps: (() => void)[] = []
  const use = (i: number) => (_: unknown, connection: PooledUpstream | undefined) => {
    got.push(i)
    connection?.send(UPSTREAM_REQUEST, DEAF, 60_000)
    if (got.length === 1) then(giveUps)
  }
  for (let i = 0; i <= PER_SESSION; i++) giveUps.push(pool.open('192.0.2.1', 10_000, use(i)))
  return { got, giveUps }
}

it('may leave as the session opens that has no room for it', async () => {
  const { got } = waitTogether(giveUps => giveUps[PER_SESSION]!())
  await eventually(() => expect(got).toHaveLength(PER_SESSION))
  expect(budget.used).toBe(1)
})

it('may leave while another session is opened for it', async () => {
  const used: number[] = []
  const leave = (giveUps: (() => void)[]) => {
    used.push(budget.used)
    giveUps[PER_SESSION]!()
    used.push(budget.used)
  }
  // Once all have been outcomes.
  const { got } = waitTogether(giveUps => queueMicrotask(() => leave(giveUps)))
  await eventually(() => expect(upstream.streams).toHaveLength(PER_SESSION))
  expect(used).toEqual([2, 1])
  expect(got).toHaveLength(PER_SESSION)
})

describe('a new session', () => {
  /** SETTINGS_MAX_CONCURRENT_STREAMS. */
  const taking = (streams: number) => Buffer.from([0, 3, 0, 0, 0, streams])

  /** The outcome for each of `count` that wait together: that it was sent, or why not. */
  function sendTogether(count: number, connectMs = 60_000): string[] {
    const outcomes: string[] = []
    const done = (error: SallyportError | undefined, connection: PooledUpstream | undefined) => {
      connection?.send({ ...UPSTREAM_REQUEST, method: 'POST' }, DEAF, 60_000)
      outcomes.push(error?.reason ?? 'sent')
    }
    for (let i = 0; i < count; i++) pool.open('192.0.2.1', connectMs, done)
    return outcomes
  }

  function sayNothing(): void {
    upstream.settings = undefined
    upstream.onConnection = connection => {
      connection.silent = true
    }
  }

  it('gets no more exchanges at once than its upstream accepts: the others get their own sessions', async () => {
    upstream.settings = taking(2)
    const outcomes = sendTogether(5)
    await until(() => upstream.streams.length === 5)
    expect(outcomes).toEqual(Array(5).fill('sent'))
    expect(upstream.connections.map(({ streams }) => streams.size)).toEqual([2, 2, 1])
    expect(budget.used).toBe(3)
  })

  it('beyond the most connections of a target is refused as overloaded', async () => {
    upstream.settings = taking(2)
    pool.close()
    makePool(2, 10)
    const outcomes = sendTogether(5)
    await eventually(() => expect(outcomes).toEqual(['sent', 'sent', 'sent', 'sent', 'overloaded']))
  })

  it('does not make each of those that it has no room for look at all others', async () => {
    upstream.settings = taking(1)
    makePool(200)
    const looks = vi.spyOn(Http2ClientSession.prototype, 'available', 'get')
    onTestFinished(() => void vi.restoreAllMocks())
    sendTogether(150)
    await until(() => upstream.streams.length === 150)
    // Each new session once for itself, and all that there are for two exchanges.
    expect(looks.mock.calls.length).toBeLessThan(2 * 150 ** 2)
  })

  it('carries those that wait for it even if connections are not used again', async () => {
    makePool(10, 10, 0)
    expect(sendTogether(3)).toEqual([])
    await until(() => upstream.streams.length === 3)
    expect(upstream.connections).toHaveLength(1)
  })

  const takeNothing = () => {
    upstream.settings = taking(0)
  }
  const close = () => {
    sayNothing()
    upstream.onConnection = ({ socket }) => void socket.end()
  }
  const speakHttp1 = () => {
    sayNothing()
    upstream.onConnection = ({ socket }) => void socket.write('HTTP/1.1 400 Bad Request\r\n\r\n')
  }
  it.each([
    ['says nothing', 'upstream-timeout', sayNothing],
    ['takes no streams', 'upstream-broken', takeNothing],
    ['closes it first', 'upstream-broken', close],
    ['speaks HTTP/1.1', 'upstream-broken', speakHttp1],
  ])('whose upstream %s: all who wait hear of it', async (_, reason, prepare) => {
    prepare()
    const outcomes = sendTogether(3, reason === 'upstream-timeout' ? 200 : 60_000)
    await until(() => outcomes.length === 3)
    expect(outcomes).toEqual(Array(3).fill(reason))
    expect([pool.size, upstream.connections.length]).toEqual([0, 1])
    await until(() => upstream.connections[0]!.socket.destroyed)
    await eventually(() => expect(budget.used).toBe(0))
  })

  it('is awaited by each exchange no longer than its own deadline, whoever began it, and however many come one after another', async () => {
    sayNothing()
    const outcomes: string[] = []
    const note = (name: string) => (error: SallyportError | undefined, connection: PooledUpstream | undefined) => {
      connection?.send(UPSTREAM_REQUEST, DEAF, 60_000)
      outcomes.push(`${name} ${error?.reason ?? 'sent'}`)
    }
    const giveUp = pool.open('192.0.2.1', 60_000, note('patient'))
    pool.open('192.0.2.1', 50, note('hasty'))
    await until(() => outcomes.length === 1)
    expect(outcomes.splice(0)).toEqual(['hasty upstream-timeout'])
    giveUp()
    // The first session has room for one, and takes a while to say so; the second says nothing.
    const first = upstream.connections.length
    upstream.onConnection = connection => {
      connection.silent = true
      if (upstream.connections.length > first + 1) return
      setTimeout(() => connection.send(frame(TYPE.settings, 0, 0, taking(1))), 200)
    }
    const ms = unhurried(2000)
    for (let i = 0; i < 3; i++) pool.open('192.0.2.1', ms, note('one'))
    setTimeout(() => outcomes.push('late'), ms + 100)
    await until(() => outcomes.includes('late'))
    expect(outcomes).toEqual(['one sent', 'one upstream-timeout', 'one upstream-timeout', 'late'])
    expect([budget.used, pool.size, upstream.connections.length]).toEqual([1, 1, first + 2])
  })

  it('that opens for a WebSocket, which its upstream does not offer, ends with its pool', async () => {
    upstream.settings = Buffer.alloc(0)
    const { promise: refused, resolve: responseAbort } = Promise.withResolvers<SallyportError>()
    pool.open('192.0.2.1', 10_000, (_, session) => {
      session!.send({ ...UPSTREAM_REQUEST, upgrade: true }, { ...DEAF, responseAbort }, 60_000)
    })
    pool.close()
    await refused
    await eventually(() => expect(budget.used).toBe(0))
  })

  it('whose upstream has said nothing yet is abandoned with the last one that waits', async () => {
    sayNothing()
    const giveUp = pool.open('192.0.2.1', 60_000, () => {})
    await until(() => upstream.connections.length === 1)
    // Its end has seen that it is connected, too.
    await new Promise(setImmediate)
    giveUp()
    await until(() => upstream.connections[0]!.socket.destroyed)
    expect([budget.used, pool.size]).toEqual([0, 0])
  })
})

describe('after a session that its upstream has ended', () => {
  const PROTOCOL = 1
  const ends: Record<string, [end: (connection: UpstreamConnection) => void, perSession: number[]]> = {
    'because of one of its exchanges, the others share no session': [each => each.goaway(PROTOCOL, 1), [1, 1, 1]],
    'by breaking a rule of the connection, the others share no session': [
      each => each.send(frame(TYPE.data, 0, 0, Buffer.alloc(0))),
      [1, 1, 1],
    ],
    'without an error, the others share one': [each => each.goaway(0, 1), [3]],
    'with its connection, the others share one': [({ socket }) => void socket.end(), [3]],
  }
  let networks = 0
  const get = (caller = `198.51.100.${++networks}`) => {
    return pool.take(caller) ?? new Promise<PooledUpstream>(done => pool.open(caller, 60_000, (_, one) => done(one!)))
  }
  const send = async (response = DEAF, caller?: string) => {
    const session = await get(caller)
    session.send({ ...UPSTREAM_REQUEST, caller: caller ?? '' }, response, 60_000)
  }
  /** A first exchange, until `end` has ended its session. */
  const endFirst = async (end: (connection: UpstreamConnection) => void) => {
    let over = false
    const note = () => {
      over = true
    }
    await send({ ...DEAF, responseAbort: note, responseEnd: note })
    await until(() => upstream.streams.length === 1)
    end(upstream.connections[0]!)
    upstream.streams[0]!.head(200, {}, true)
    await until(() => over)
  }

  it.each(Object.entries(ends))('%s', async (_, [end, perSession]) => {
    await endFirst(end)
    // In one turn, and in several.
    const sendAgain = () => send(DEAF, '192.0.2.1')
    await Promise.all([sendAgain(), sendAgain()])
    await sendAgain()
    await until(() => upstream.streams.length === 4)
    expect(upstream.connections.slice(1).map(({ streams }) => streams.size)).toEqual(perSession)
  })

  it('because of one of its exchanges, the others share evenly if no more are allowed', async () => {
    await endFirst(connection => connection.goaway(PROTOCOL, 1))
    for (let i = 0; i < 12; i++) await send()
    await until(() => upstream.streams.length === 13)
    expect(upstream.connections.slice(1).map(({ streams }) => streams.size)).toEqual([2, 2, ...Array(8).fill(1)])
  })

  it('because of one of its exchanges, those that come together share if no more are allowed', async () => {
    await endFirst(connection => connection.goaway(PROTOCOL, 1))
    await Promise.all(Array.from({ length: 12 }, () => send()))
    await until(() => upstream.streams.length === 13)
    expect(budget.used).toBeLessThanOrEqual(10)
    expect(Math.max(...upstream.connections.slice(1).map(({ streams }) => streams.size))).toBe(2)
  })

  describe('because of one of its exchanges, of many others', () => {
    const WINDOW_BYTES = 65_535
    const upload = async () => {
      const request = { ...UPSTREAM_REQUEST, method: 'POST', bodyBytes: 2 * WINDOW_BYTES }
      ;(await get()).send(request, DEAF, 60_000).requestData(Buffer.alloc(2 * WINDOW_BYTES))
    }
    const begun = () => upstream.connections.slice(1).map(({ streams }) => streams.size)

    it('some share 100 connections evenly', async () => {
      makePool(500)
      await endFirst(connection => connection.goaway(PROTOCOL, 1))
      await Promise.all(Array.from({ length: 150 }, () => send()))
      for (let i = 0; i < 50; i++) await send()
      await until(() => upstream.streams.length === 201)
      expect(budget.used).toBeLessThanOrEqual(101)
      expect(Math.max(...begun())).toBe(2)
    })

    it('none shares a connection whose window an upload has filled that is not used', async () => {
      makePool(500)
      await endFirst(connection => connection.goaway(PROTOCOL, 1))
      upstream.settings = setting('initialWindowSize', 2 * WINDOW_BYTES)
      for (let i = 0; i < 120; i++) {
        await upload()
        await until(() => upstream.streams[i + 1]?.received === WINDOW_BYTES)
      }
      expect(begun()).toEqual(Array(120).fill(1))
    })
  })

  it('because of one of its exchanges, the others share one if their target takes no more', async () => {
    await endFirst(connection => connection.goaway(PROTOCOL, 1))
    await send()
    upstream.settings = undefined
    upstream.onConnection = ({ socket }) => void socket.destroy()
    for (let i = 0; i < 3; i++) await send()
    await until(() => upstream.streams.length === 5)
    // Only one was tried in vain.
    expect(upstream.connections.slice(1).map(({ streams }) => streams.size)).toEqual([4, 0])
  })
})

describe('while an upload is not used that fills the window of its connection', () => {
  const WINDOW_BYTES = 65_535
  const start = async () => {
    upstream.settings = setting('initialWindowSize', 2 * WINDOW_BYTES)
    pool.open('192.0.2.1', 60_000, (_, connection) => {
      const upload = connection!.send({ ...UPSTREAM_REQUEST, method: 'POST', bodyBytes: -1 }, DEAF, 60_000)
      upload.requestData(Buffer.alloc(2 * WINDOW_BYTES))
    })
    await until(() => upstream.streams[0]?.received === WINDOW_BYTES)
  }

  it('others get another session, until it is used', async () => {
    await start()
    expect(pool.take('192.0.2.1')).toBeUndefined()
    upstream.connections[0]!.send(frame(TYPE.window, 0, 0, uint32(2 * WINDOW_BYTES)))
    await until(() => pool.take('192.0.2.1') !== undefined)
    expect(budget.used).toBe(1)
  })

  it('others use one that has room, if no more connections are allowed', async () => {
    makePool(2)
    await start()
    const second = await new Promise(done => pool.open('192.0.2.1', 60_000, (_, one) => done(one)))
    expect(pool.take('192.0.2.1')).toBe(second)
  })

  it('others share it if their target takes no more connections', async () => {
    await start()
    upstream.settings = undefined
    upstream.onConnection = ({ socket }) => void socket.destroy()
    const shared = await new Promise(done => pool.open('192.0.2.1', 60_000, (_, one) => done(one)))
    expect(shared).toBeDefined()
    expect(pool.take('192.0.2.1')).toBe(shared)
  })

  it('others share the last connection that is allowed', async () => {
    makePool(1)
    await start()
    expect(pool.take('192.0.2.1')).toBeDefined()
  })
})

const STEP_MS = 10_000
const MINUTE_MS = 60_000

// While gRPC's servers send nothing, they count each ping that comes sooner after the one before, and the third ends the session.
it('pings the upstream of a quiet stream no more often than every 5 minutes', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const now = performance.now.bind(performance)
  let passedMs = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now() + passedMs)
  onTestFinished(() => {
    vi.restoreAllMocks()
    vi.useRealTimers()
  })
  const failures: string[] = []
  const response = { ...DEAF, responseAbort: (error: SallyportError) => failures.push(error.message) }
  pool.open('192.0.2.1', 10_000, (_, connection) => connection?.send(UPSTREAM_REQUEST, response, 0))
  await until(() => upstream.streams.length === 1)
  const [stream] = upstream.streams
  const { connection } = stream!
  stream!.head(200)
  const pingedAtMs: number[] = []
  while (passedMs < 30 * MINUTE_MS) {
    passedMs += STEP_MS
    vi.advanceTimersByTime(STEP_MS)
    await new Promise(setImmediate)
    const before = connection.pings
    // The answer to a ping comes after everything that was sent before.
    const answered = new Promise<void>(resolve => {
      connection.onPong = resolve
    })
    connection.send(frame(TYPE.ping, 0, 0, Buffer.alloc(8)))
    await answered
    if (connection.pings > before + 1) pingedAtMs.push(passedMs)
  }
  const pauses = pingedAtMs.map((ms, i) => ms - (pingedAtMs[i - 1] ?? 0))
  expect(Math.min(...pauses)).toBeGreaterThan(5 * MINUTE_MS)
  expect(pingedAtMs.length).toBeGreaterThan(3)
  expect(failures).toEqual([])
})
