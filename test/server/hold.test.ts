/** Requests that wait for a session of their runtime, over real sockets. */

import { connect } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { discarding } from '../../protocol/base/guard.ts'
import type { ExchangeRecord, ResponseSink } from '../../protocol/exchange.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import { Hold, type Ticket } from '../../server/edge/hold.ts'
import { DEFAULT_HOLD } from '../../server/limits.ts'
import type { Server } from '../../server/server.ts'
import { until } from '../support/until.ts'
import {
  type Answer,
  always,
  answer,
  call,
  DOMAIN,
  dial,
  HOST,
  hanging,
  leave,
  reading,
  startServer,
} from './fixture.ts'

/** Long enough that nothing expires by itself within a test. */
const LONG_MS = 60_000
const HOLD = { holdMs: LONG_MS }

let server: Server
const startHolding = async (options: Parameters<typeof startServer>[0] = {}) => {
  server = await startServer({ hold: HOLD, ...options })
  return server
}
afterEach(() => server.close({ graceMs: 0 }))

/** Resolves once this many wait; there is no event for it, just as there is none for a caller. */
async function held(count: number): Promise<void> {
  await until(() => server.stats().held === count)
}

describe('a request waits', () => {
  test("for a runtime's first session, during the time after the start", async () => {
    await startHolding()
    const calling = call(server, HOST, '/', { method: 'POST', body: 'payload' })
    await held(1)
    await dial(server)
    expect(await calling).toMatchObject({ status: 200, text: 'POST / payload' })
    expect(server.stats()).toMatchObject({ held: 0, heldBytes: 0, heldOutcomes: { resumed: 1 } })
  })

  test('beside one whose handler aborts it while both are woken: neither affects the new session', async () => {
    await startHolding()
    let second: { abort(reason: Error): void } | undefined
    const statuses: number[] = []
    const reason = Promise.withResolvers<Error>()
    const request = { origin: `https://${HOST}`, path: '/', method: 'GET' } as const
    const dispatcher = server.dispatcher('demo')
    dispatcher.dispatch(request, {
      onResponseStart: (_controller, status) => {
        statuses.push(status)
        second?.abort(new Error('enough'))
      },
      onResponseError() {},
    })
    dispatcher.dispatch(request, {
      onRequestStart: controller => {
        second = controller
      },
      onResponseError: (_controller, error) => reason.resolve(error),
    })
    await held(2)
    // Nobody may call: the first one is answered in the turn in which it is woken.
    await dial(server, { hello: { allowCallers: [] } })
    expect((await reason.promise).message).toBe('enough')
    expect(statuses).toEqual([403])
    expect(server.stats()).toMatchObject({ held: 0, sessions: 1, sessionsEnded: 0 })
  })

  test('again, unless the caller of one that has to make room for it aborts it: then it never runs', async () => {
    await startHolding({ hold: { ...HOLD, bytesPerRuntime: 1000 } })
    const first = await dial(server, { handler: () => 'draining' })
    let second: { abort(reason: Error): void } | undefined
    const aborted = Promise.withResolvers<Error>()
    const request = { origin: `https://${HOST}`, path: '/', method: 'POST' } as const
    server.dispatcher('demo', { caller: '192.0.2.1' }).dispatch(
      { ...request, body: Buffer.alloc(900) },
      {
        onResponseStart: () => second?.abort(new Error('enough')),
        onResponseError() {},
      },
    )
    await held(1)
    server.dispatcher('demo', { caller: '192.0.2.2' }).dispatch(
      { ...request, body: Buffer.alloc(300) },
      {
        onRequestStart: controller => {
          second = controller
        },
        onResponseError: (_controller, error) => aborted.resolve(error),
      },
    )
    expect((await aborted.promise).message).toBe('enough')
    expect(server.stats()).toMatchObject({ held: 0, heldBytes: 0, exchanges: 0 })
    first.ws.terminate()
    await dial(server)
    expect((await call(server, HOST)).status).toBe(200)
    expect(server.stats()).toMatchObject({ heldOutcomes: { resumed: 0, left: 1, refused: 1 }, exchanges: 0 })
  })

  test('for a runtime to return that had a session a while ago', async () => {
    await startHolding({ hold: { ...HOLD, startupMs: 0 } })
    await leave(server, await dial(server))
    const calling = call(server, HOST)
    await held(1)
    await dial(server)
    expect((await calling).status).toBe(200)
  })

  test('for a session that has said hello but is not ready yet', async () => {
    await startHolding({ hold: { ...HOLD, startupMs: 0, forgetMs: 0 } })
    const client = await dial(server, { notReady: true })
    const calling = call(server, HOST)
    await held(1)
    client.session.control({ type: 'ready' })
    expect((await calling).status).toBe(200)
  })

  test('for room in full sessions, in order of arrival', async () => {
    await startHolding({ limits: { streams: 2 } })
    const answers: ResponseSink[] = []
    const arrived: string[] = []
    const handler: ExchangeHandler = (_preamble, request, response) => {
      answers.push(response)
      arrived.push(request.path)
      return discarding(response)
    }
    const hello = { limits: { streams: 1000 } }
    await dial(server, { handler, hello })
    await dial(server, { handler, hello: { ...hello, connection: 1 } })
    const paths = Array.from({ length: 12 }, (_, i) => `/${i}`)
    const calling = paths.map(async (path, i) => {
      await until(() => arrived.length + server.stats().held >= i)
      return call(server, HOST, path)
    })
    await held(8)
    // One after the other, since those of two sessions may overtake each other.
    for (let answered = 0; answered < 12; answered++) {
      answer(answers[answered]!, 200, 'done')
      await until(() => arrived.length === Math.min(12, answered + 5))
    }
    expect((await Promise.all(calling)).map(({ status }) => status)).toEqual(paths.map(() => 200))
    expect(arrived).toEqual(paths)
    expect(server.stats()).toMatchObject({ held: 0, heldOutcomes: { resumed: 8 } })
  })

  test('for room in a full session, behind one that only another instance may get', async () => {
    await startHolding({ limits: { streams: 1 } })
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler, hello: { instance: 'one' } })
    const post = call(server, HOST, '/', { method: 'POST', body: 'once' })
    await victim.begun
    first.ws.terminate()
    await held(1)
    const other = hanging()
    await dial(server, { handler: other.handler, hello: { instance: 'two' } })
    const served = call(server, HOST)
    const response = await other.begun
    const behind = call(server, HOST)
    await held(2)
    answer(response, 200, 'done')
    expect((await served).status).toBe(200)
    await until(() => other.count() === 2)
    expect(server.stats().held).toBe(1)
    const cut = Promise.allSettled([post, behind])
    await server.close({ graceMs: 0 })
    await cut
  })

  test('for sessions that refuse whatever comes: they are tried again a few times a second, not as fast as they refuse', async () => {
    await startHolding({ hold: { ...HOLD, holdMs: 3000 } })
    const sessions = 4
    let refusals = 0
    const handler: ExchangeHandler = () => {
      refusals++
      return 'not-here'
    }
    for (let connection = 0; connection < sessions; connection++) {
      await dial(server, { handler, hello: { connection, limits: { streams: 1 } } })
    }
    const calling = Array.from({ length: 40 }, () => call(server, HOST))
    expect(new Set((await Promise.all(calling)).map(({ status }) => status))).toEqual(new Set([503]))
    // Four attempts for each at first, and for each session in each second.
    expect(refusals).toBeLessThan(4 * (40 + 4 * sessions))
  })

  test('not forever: if sessions stay full, it ends as overloaded', async () => {
    await startHolding({ hold: { ...HOLD, holdMs: 1 }, limits: { streams: 1 } })
    const { handler, begun } = hanging()
    await dial(server, { handler })
    void call(server, HOST).catch(() => {})
    await begun
    expect(await call(server, HOST)).toMatchObject({ status: 503, text: expect.stringContaining('overloaded') })
  })

  test('even after its session died, if it may be retried', async () => {
    await startHolding({ hold: { ...HOLD, startupMs: 0 } })
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler })
    const calling = call(server, HOST)
    await victim.begun
    first.ws.terminate()
    await held(1)
    await dial(server, { hello: { instance: 'another' } })
    expect((await calling).status).toBe(200)
  })

  test('a POST that may have begun waits for its own instance and no other', async () => {
    await startHolding()
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler, hello: { instance: 'one' } })
    const calling = call(server, HOST, '/', { method: 'POST', body: 'once' })
    await victim.begun
    first.ws.terminate()
    await held(1)
    const other = hanging()
    const second = await dial(server, { handler: other.handler, hello: { instance: 'two' } })
    expect([server.stats().held, other.count()]).toEqual([1, 0])
    // While the other one is active, its own gets no streams.
    second.ws.terminate()
    await dial(server, { handler: () => 'already-begun', hello: { instance: 'one' } })
    expect((await calling).headers['sallyport-error']).toBe('session-lost')
    expect(other.count()).toBe(0)
  })

  test('an upgrade waits, too', async () => {
    await startHolding()
    const { host, port } = server.publicAddress!
    const ws = new WebSocket(`ws://${host}:${port}/`, { headers: { host: HOST } })
    const answered = new Promise<number>(resolve => {
      ws.once('unexpected-response', (_request, response) => resolve(response.statusCode!))
      ws.once('open', () => resolve(101))
    })
    ws.on('error', () => {})
    await held(1)
    await dial(server, { handler: always('no', 418) })
    expect(await answered).toBe(418)
  })

  test("an embedder's request waits, too", async () => {
    await startHolding()
    const calling = server.fetch('demo', 'http://demo/x')
    await held(1)
    await dial(server)
    expect(await (await calling).text()).toBe('GET /x ')
  })

  test('in order of arrival, including a body too large to be retried', async () => {
    await startHolding({ limits: { replayBytes: 1000 } })
    const body = 'x'.repeat(200_000)
    const seen: string[] = []
    const calls = [call(server, HOST, '/0', { method: 'POST', body })]
    await held(1)
    for (const path of ['/1', '/2', '/3']) {
      calls.push(call(server, HOST, path))
      await held(calls.length)
    }
    await dial(server, {
      handler: (_preamble, request, response) => {
        seen.push(request.path)
        return reading(response, ({ length }) => answer(response, 200, String(length)))
      },
    })
    const answers = await Promise.all(calls)
    expect(seen).toEqual(['/0', '/1', '/2', '/3'])
    expect(answers[0]!.text).toBe('200000')
    expect(server.stats()).toMatchObject({ replayBytes: 0, heldBytes: 0, exchanges: 0 })
  })
})

describe('a request does not wait', () => {
  test('for a runtime that nobody knows', async () => {
    await startHolding({ hold: { ...HOLD, startupMs: 0 } })
    const answer = await call(server, HOST)
    expect([answer.status, answer.headers['sallyport-error']]).toEqual([503, 'runtime-offline'])
    expect(server.stats().heldOutcomes).toEqual({ resumed: 0, expired: 0, refused: 0, left: 0 })
  })

  test('longer than it may: then the runtime is offline', async () => {
    await startHolding({ hold: { holdMs: 50 } })
    const answer = await call(server, HOST)
    expect([answer.status, answer.headers['sallyport-error']]).toEqual([503, 'runtime-offline'])
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
    expect(server.stats()).toMatchObject({ held: 0, heldOutcomes: { expired: 1 } })
  })

  const WITH_BODY = { headers: { 'content-length': '1' }, body: 'x', method: 'POST' }
  test.each<[limit: keyof typeof DEFAULT_HOLD, options: object]>([
    ['requests', {}],
    ['requestsPerRuntime', {}],
    ['bytes', WITH_BODY],
    ['bytesPerRuntime', WITH_BODY],
  ])('if %s is 0: then the runtime is offline', async (limit, options) => {
    await startHolding({ hold: { ...HOLD, [limit]: 0 } })
    expect((await call(server, HOST, '/', options)).headers['sallyport-error']).toBe('runtime-offline')
    expect(server.stats()).toMatchObject({ held: 0, heldOutcomes: { refused: 0 } })
  })

  test('longer than its answer may take', async () => {
    await startHolding({ limits: { responseHeadMs: 50 } })
    expect((await call(server, HOST)).headers['sallyport-error']).toBe('runtime-offline')
  })

  test('once the caller has gone', async () => {
    await startHolding()
    const { host, port } = server.publicAddress!
    const socket = connect({ host, port })
    socket.write(`GET / HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`)
    await held(1)
    socket.destroy()
    await held(0)
    expect(server.stats().heldOutcomes).toMatchObject({ left: 1, resumed: 0 })
    const late = hanging()
    await dial(server, { handler: late.handler })
    expect(late.count()).toBe(0)
  })

  test('if too many wait for its runtime, and another runtime is not affected', async () => {
    await startHolding({ hold: { ...HOLD, requestsPerRuntime: 2 } })
    const calls = [call(server, HOST), call(server, HOST)]
    await held(2)
    const third = await call(server, HOST)
    expect([third.status, third.headers['sallyport-error']]).toEqual([503, 'overloaded'])
    expect(Number(third.headers['retry-after'])).toBeGreaterThan(0)
    const other = call(server, `other.${DOMAIN}`)
    await held(3)
    await dial(server, { runtime: 'other' })
    expect((await other).status).toBe(200)
    await dial(server)
    expect((await Promise.all(calls)).map(answer => answer.status)).toEqual([200, 200])
  })

  test('if too many wait in total', async () => {
    await startHolding({ hold: { ...HOLD, requests: 1 } })
    void call(server, HOST).catch(() => {})
    await held(1)
    expect((await call(server, `other.${DOMAIN}`)).headers['sallyport-error']).toBe('overloaded')
  })

  test('if bodies grow too large: the one that grows is refused', async () => {
    await startHolding({ hold: { ...HOLD, bytesPerRuntime: 50_000 } })
    const small = call(server, HOST, '/', { method: 'POST', body: 'small' })
    await held(1)
    const large = await call(server, HOST, '/', { method: 'POST', body: 'x'.repeat(60_000) })
    expect([large.status, large.headers['sallyport-error']]).toEqual([503, 'overloaded'])
    expect(server.stats()).toMatchObject({ held: 1, heldBytes: 5, heldOutcomes: { refused: 1 } })
    await dial(server)
    expect((await small).text).toBe('POST / small')
  })

  const GREEDY = { localAddress: '127.0.0.2' }
  const BODY = { method: 'POST', body: 'x'.repeat(10_000) }
  test.each([
    ['places of its runtime', { requestsPerRuntime: 4 }, {}, HOST],
    ['places of all', { requests: 4 }, {}, `other.${DOMAIN}`],
    ['bytes of its runtime', { bytesPerRuntime: 45_000 }, BODY, HOST],
    ['bytes of all', { bytes: 45_000 }, BODY, `other.${DOMAIN}`],
  ])('B3 if another address has more: the %s are shared', async (_what, limits, sent, host) => {
    await startHolding({ hold: { ...HOLD, ...limits } })
    const greedy: Promise<Answer>[] = []
    for (let i = 1; i <= 4; i++) {
      greedy.push(call(server, HOST, '/', { ...sent, ...GREEDY }))
      await held(i)
      await until(() => server.stats().heldBytes === i * (sent === BODY ? 10_000 : 0))
    }
    // It pays for what it adds itself.
    expect((await call(server, HOST, '/', { ...sent, ...GREEDY })).headers['sallyport-error']).toBe('overloaded')
    const modest = [call(server, host, '/', sent), call(server, host, '/', sent)]
    // Its newest have made room.
    for (const last of greedy.slice(2)) expect((await last).headers['sallyport-error']).toBe('overloaded')
    // Nobody takes more from it when it has that much.
    expect((await call(server, host, '/', sent)).headers['sallyport-error']).toBe('overloaded')
    expect(server.stats()).toMatchObject({ held: 4, heldOutcomes: { refused: 4 } })
    await dial(server)
    await dial(server, { runtime: 'other' })
    for (const kept of [...greedy.slice(0, 2), ...modest]) expect((await kept).status).toBe(200)
    expect(server.stats()).toMatchObject({ held: 0, heldBytes: 0, exchanges: 0, replayBytes: 0 })
  })

  test('as a preflight that a policy answers', async () => {
    const origin = 'https://ui.example.com'
    await startHolding({ cors: { origins: [origin] } })
    const headers = { origin, 'access-control-request-method': 'POST' }
    expect((await call(server, HOST, '/', { method: 'OPTIONS', headers })).status).toBe(204)
  })
})

describe('nobody has to leave for a request that is refused anyway', () => {
  const A = '192.0.2.1'
  const B = '192.0.2.2'
  /** In order of arrival; each reports its outcome. */
  function start(limits: Partial<typeof DEFAULT_HOLD>) {
    const hold = new Hold({ ...DEFAULT_HOLD, ...limits })
    const said: string[] = []
    const places: (Ticket | undefined)[] = []
    const enter = (name: string, runtime: string, address: string, bytes: number) => {
      const note = (what: string) => () => void said.push(`${name} ${what}`)
      const waiter = {
        sinceMs: 0,
        wake: () => true,
        expire: note('expired'),
        refuse: note('refused'),
        threw: note('threw'),
      }
      const place = hold.enter(runtime, address, waiter, bytes, LONG_MS)
      places.push(place)
      return place
    }
    const end = () => {
      for (const place of places) place?.leave('left')
      expect([hold.requests, hold.bytes]).toEqual([0, 0])
    }
    return { hold, enter, said, end }
  }

  test('as it arrives', async () => {
    const { enter, said, end } = start({ requestsPerRuntime: 2, bytes: 1000 })
    enter('A1', 'r', A, 0)
    enter('A2', 'r', A, 0)
    enter('B1', 's', B, 900)
    // There is a place in the queue, since A has two there, but B has filled the room for bodies.
    expect(enter('B2', 'r', B, 200)).toBeUndefined()
    expect(said).toEqual([])
    expect(enter('B3', 'r', B, 100)).toBeDefined()
    await turn()
    expect(said).toEqual(['A2 refused'])
    end()
  })

  test('as its body grows', () => {
    const { enter, said, end } = start({ bytesPerRuntime: 1000, bytes: 2000 })
    enter('A1', 'r', A, 700)
    enter('A2', 'r', A, 100)
    enter('B1', 's', B, 600)
    enter('B1', 't', B, 500)
    const growing = enter('B2', 'r', B, 100)!
    expect(growing.add(200)).toBe(false)
    expect(said).toEqual([])
    end()
  })

  test('and one that leaves with a request that made room for its body is not counted', async () => {
    const { hold, enter, end } = start({ bytesPerRuntime: 1000 })
    const left = Promise.withResolvers<void>()
    const refuse = () => {
      growing.leave('left')
      left.resolve()
    }
    const greedy = hold.enter('r', A, { sinceMs: 0, wake: () => true, expire() {}, refuse, threw() {} }, 900, LONG_MS)!
    const growing = enter('B1', 'r', B, 100)!
    expect(growing.add(100)).toBe(true)
    expect(greedy.add(1)).toBe(false)
    await left.promise
    end()
  })

  test('and if there is room in both, those with the most leave', async () => {
    const { enter, said, end } = start({ requestsPerRuntime: 3, requests: 4, bytes: 1000 })
    for (const name of ['A1', 'A2', 'A3']) enter(name, 'r', A, 0)
    enter('A4', 's', A, 1000)
    expect(enter('B1', 'r', B, 10)).toBeDefined()
    await turn()
    expect(said).toEqual(['A3 refused', 'A4 refused'])
    end()
  })
})

describe('which runtimes are known', () => {
  test('all at first, then those that recently had a session', () => {
    let now = 0
    const hold = new Hold(DEFAULT_HOLD, () => now)
    expect(hold.knows('a')).toBe(true)
    now = 10_000
    expect(hold.knows('a')).toBe(false)
    hold.remember('a')
    now = 69_999
    expect([hold.knows('a'), hold.knows('b')]).toEqual([true, false])
    now = 70_000
    expect(hold.knows('a')).toBe(false)
  })
})

test('the time left travels with the exchange', async () => {
  await startHolding({ limits: { responseHeadMs: 30_000 } })
  const seen: number[] = []
  await dial(server, {
    handler: (preamble, request, response) => {
      seen.push(preamble.timeLeftMs)
      return always('ok')(preamble, request, response)
    },
  })
  await call(server, HOST)
  expect(seen[0]).toBeGreaterThan(0)
  expect(seen[0]).toBeLessThanOrEqual(30_000)
})

test('an answer that does not begin in time becomes 504, and the exchange is cancelled', async () => {
  await startHolding({ limits: { responseHeadMs: 50 } })
  const cancelled = Promise.withResolvers<string>()
  await dial(server, {
    handler: (_preamble, _request, response) => ({
      ...discarding(response),
      requestAbort: error => cancelled.resolve(error.reason),
    }),
  })
  expect((await call(server, HOST)).headers['sallyport-error']).toBe('upstream-timeout')
  expect(await cancelled.promise).toBe('request-timeout')
})

test.each<[string, number, object]>([
  ['100', 100, { method: 'POST', headers: { expect: '100-continue', 'content-length': '1' }, body: 'x' }],
  ['103', 103, {}],
])('and %s does not count as a beginning', async (_name, status, options) => {
  const records: ExchangeRecord[] = []
  const cors = { origins: ['https://ui.example.com'] }
  await startHolding({ limits: { responseHeadMs: 50 }, onExchange: record => records.push(record), cors })
  const cancelled = Promise.withResolvers<string>()
  await dial(server, {
    handler: (_preamble, _request, response) => {
      response.responseInformational(status, [])
      return { ...discarding(response), requestAbort: error => cancelled.resolve(error.reason) }
    },
  })
  const answer = await call(server, HOST, '/', options)
  expect([answer.status, answer.headers['sallyport-error']]).toEqual([504, 'upstream-timeout'])
  expect(answer.headers.vary).toBe('origin')
  expect(await cancelled.promise).toBe('request-timeout')
  expect(records).toMatchObject([{ status: 504, code: 'upstream-timeout', cut: false }])
})
