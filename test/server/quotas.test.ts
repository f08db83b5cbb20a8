/** What one runtime, or one caller's address, may use without the others noticing. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { networkOf } from '../../protocol/base/address.ts'
import type { BufferBudget } from '../../protocol/base/budget.ts'
import type { HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import { quota } from '../../server/edge/quota.ts'
import { QuotaBook, type Usage } from '../../server/edge/quotas.ts'
import { DEFAULT_SERVER_LIMITS, type ResolvedLimits } from '../../server/limits.ts'
import { RuntimeBudgets } from '../../server/runtime-budgets.ts'
import type { Server } from '../../server/server.ts'
import { StreamRecorder, sessionPair, turns } from '../protocol/wire/yamux/support.ts'
import { until } from '../support/until.ts'
import { answer, call, DOMAIN, dial, HOST, hanging, openWebSocket, reading, startServer } from './fixture.ts'

const OTHER = `other.${DOMAIN}`

function book(limits: Partial<ResolvedLimits>, now: () => number): QuotaBook {
  return new QuotaBook({ ...DEFAULT_SERVER_LIMITS, exchangesPerRuntime: 0, ...limits }, now)
}

describe('quotas', () => {
  test('count nothing if nothing is limited', () => {
    expect(book({}, () => 0).enter('a', '192.0.2.1')).toBeUndefined()
  })

  test('concurrent exchanges: a place is free when one has ended', () => {
    const quotas = book({ exchangesPerRuntime: 2 }, () => 0)
    const first = quotas.enter('a', undefined) as Usage
    expect(quotas.enter('a', undefined)).not.toBe(false)
    expect(quotas.enter('a', undefined)).toBe(false)
    expect(quotas.enter('b', undefined)).not.toBe(false)
    first.leave()
    expect(quotas.enter('a', undefined)).not.toBe(false)
  })

  test('requests per second: a burst at once, then at the rate', () => {
    let now = 0
    const quotas = book({ requestRatePerRuntime: 3 }, () => now)
    const enter = () => Array.from({ length: 5 }, () => quotas.enter('a', undefined) !== false)
    expect(enter()).toEqual([true, true, true, false, false])
    now = 1000
    expect(enter().filter(Boolean)).toHaveLength(3)
  })

  test('bytes per second: a sender of more waits, and is refused once it owes a second', () => {
    let now = 0
    const quotas = book({ byteRatePerRuntime: 1000 }, () => now)
    const usage = quotas.enter('a', undefined) as Usage
    expect(usage.paced).toBe(true)
    usage.spend(250)
    expect(usage.delayMs).toBe(0)
    usage.spend(500)
    expect(usage.delayMs).toBe(500)
    expect(quotas.enter('a', undefined)).not.toBe(false)
    usage.spend(500)
    expect(quotas.enter('a', undefined)).toBe(false)
    now = 1000
    expect(usage.delayMs).toBe(0)
    expect(quotas.enter('a', undefined)).not.toBe(false)
  })

  test('an address that is refused costs its runtime nothing, and the other way round', () => {
    const quotas = book({ exchangesPerRuntime: 1, exchangesPerAddress: 1 }, () => 0)
    const first = quotas.enter('a', '192.0.2.1') as Usage
    expect(quotas.enter('b', '192.0.2.1')).toBe(false)
    expect(quotas.enter('a', '192.0.2.2')).toBe(false)
    const second = quotas.enter('b', '192.0.2.2') as Usage
    first.leave()
    second.leave()
    expect(quotas.enter('b', '192.0.2.1')).not.toBe(false)
  })

  test('an IPv6 caller counts as its /64', () => {
    expect(networkOf('2001:db8:0:1::1')).toBe(networkOf('2001:db8:0:1:ffff::2'))
    expect(networkOf('2001:db8:0:1::1')).not.toBe(networkOf('2001:db8:0:2::1'))
    expect(networkOf('192.0.2.1')).toBe('192.0.2.1')
  })

  test('are bounded in number, and those in use are kept', () => {
    let now = 0
    const quotas = book({ exchangesPerAddress: 1 }, () => now)
    for (let i = 0; i < 70_000; i++) {
      const usage = quotas.enter('a', `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`)
      if (i >= 10) (usage as Usage).leave()
      now += 1
    }
    expect(quotas.enter('a', '10.0.0.5')).toBe(false)
    expect(quotas.enter('a', '10.0.0.11')).not.toBe(false)
  })
})

test('a flood of other names evicts no quota in use, however fast it comes', () => {
  const quotas = book({ exchangesPerRuntime: 1 }, () => 0)
  const used = Array.from({ length: 20 }, (_, i) => quotas.enter(`used-${i}`, undefined) as Usage)
  for (let i = 0; i < 150_000; i++) (quotas.enter(`other-${i}`, undefined) as Usage).leave()
  for (let i = 0; i < 20; i++) expect(quotas.enter(`used-${i}`, undefined)).toBe(false)
  expect(quotas.exchanges).toBe(20)
  for (const usage of used) usage.leave()
  expect(quotas.exchanges).toBe(0)
})

describe('paced credit', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('arrives at the rate, all of it', () => {
    const quotas = new QuotaBook({ ...DEFAULT_SERVER_LIMITS, byteRatePerRuntime: 10_000 }, () => performance.now())
    let given = 0
    const ends = {
      requestConsumed(bytes: number) {
        given += bytes
      },
      responseData() {},
      responseConsumed() {},
      requestData() {},
    } as unknown as ResponseSink & RequestSink
    const refuse = () => {
      throw new Error('refused')
    }
    const request = { runtime: 'a' } as HttpRequest
    const paced = quota(quotas, refuse)(() => ends)(request, ends) as RequestSink & ResponseSink
    // A sender that keeps 5,000 bytes in flight.
    let sent = 0
    const send = () => {
      while (sent - given < 5000) {
        sent += 1000
        paced.responseData(new Uint8Array(1000))
        paced.requestConsumed(1000)
      }
    }
    for (let i = 0; i < 100; i++) {
      send()
      vi.advanceTimersByTime(100)
    }
    expect(given).toBeGreaterThan(95_000)
    expect(given).toBeLessThan(106_000)
  })
})

test('all runtimes share a ceiling: the greediest session of the runtime that holds most pays', () => {
  const budgets = new RuntimeBudgets(1000, 600)
  const shed: string[] = []
  const member = (name: string, budget: BufferBudget) => {
    const one = {
      usedBytes: 0,
      take(bytes: number) {
        one.usedBytes += bytes
        budget.take(bytes)
        budget.enforce()
      },
      shed() {
        shed.push(name)
        const { usedBytes } = one
        budget.release(usedBytes)
        one.usedBytes = 0
        return usedBytes
      },
    }
    budget.join(one)
    return one
  }
  const a1 = member('a1', budgets.of('a').processBudget)
  const a2 = member('a2', budgets.of('a').processBudget)
  const b = member('b', budgets.of('b').processBudget)
  a1.take(300)
  b.take(400)
  a2.take(310)
  expect(shed).toEqual(['a2'])
  const c = member('c', budgets.of('c').processBudget)
  c.take(350)
  expect(shed).toEqual(['a2', 'b'])
})

test("a runtime's sessions share a ceiling: the caller that holds most pays, whatever others hold in another session", async () => {
  const budgets = new RuntimeBudgets(10_000_000, 640_000)
  const taken: StreamRecorder[] = []
  const sessions = [0, 1].map(() => sessionPair({}, { ...budgets.of('demo'), onStream: accept }))
  function accept(stream: Stream): void {
    const taker = new StreamRecorder(stream, false)
    const { data } = taker
    taker.data = chunk => {
      stream.paidBy('demo', `192.0.2.${chunk[0]}`)
      data.call(taker, chunk)
    }
    taken.push(taker)
  }
  const hold = async (session: number, caller: number, bytes: number) => {
    const sender = new StreamRecorder(sessions[session]!.server.open())
    sender.stream.write(Buffer.alloc(bytes, caller))
    await until(() => sender.stream.queuedBytes === 0)
    await turns()
    return sender
  }
  const greedy = [await hold(0, 1, 100_000), await hold(0, 1, 100_001)]
  const others: StreamRecorder[] = []
  for (let caller = 10; caller < 19; caller++) others.push(await hold(1, caller, 50_000))
  expect(greedy.map(({ resetWith }) => resetWith)).toEqual([undefined, 'limit'])
  expect(others.filter(({ resetWith }) => resetWith !== undefined)).toEqual([])
  expect(budgets.usedBytes).toBe(550_000)
  for (const { stream } of taken) stream.discard()
  expect(budgets.usedBytes).toBe(0)
  for (const { client } of sessions) client.close('done')
})

describe('over real sockets', () => {
  let server: Server
  afterEach(() => server.close({ graceMs: 0 }))

  const isRefused = (reply: Awaited<ReturnType<typeof call>>) => {
    expect([reply.status, reply.headers['sallyport-error']]).toEqual([429, 'too-many-requests'])
    expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0)
  }

  test('exchanges of one runtime', async () => {
    server = await startServer({ limits: { exchangesPerRuntime: 1 } })
    const { handler, begun } = hanging()
    await dial(server, { handler })
    await dial(server, { runtime: 'other' })
    const first = call(server, HOST)
    const response = await begun
    isRefused(await call(server, HOST))
    expect((await call(server, OTHER)).status).toBe(200)
    answer(response, 200, 'done')
    expect((await first).text).toBe('done')
    expect(server.stats().exchanges).toBe(0)
  })

  test('requests of one address, whatever the runtime; an embedder has no address', async () => {
    server = await startServer({ limits: { requestRatePerAddress: 2 }, trustedProxies: ['127.0.0.0/8'] })
    await dial(server)
    await dial(server, { runtime: 'other' })
    const from = (address: string) => ({ headers: { 'x-forwarded-for': address } })
    // At once, since room for more comes with time.
    const hosts = [HOST, OTHER, HOST, OTHER, HOST, OTHER, HOST, OTHER]
    const answers = await Promise.all(hosts.map(host => call(server!, host, '/', from('192.0.2.1'))))
    const [taken, refused] = [200, 429].map(wanted => answers.filter(({ status }) => status === wanted))
    expect([taken!.length >= 2, refused!.length > 0]).toEqual([true, true])
    for (const answer of refused!) isRefused(answer)
    expect((await call(server, HOST, '/', from('192.0.2.2'))).status).toBe(200)
    for (let i = 0; i < 5; i++) expect((await server.fetch('demo', 'http://demo/')).status).toBe(200)
  })

  test('bytes of one runtime: slowed in both directions, refused when it owes, and whole in the end', async () => {
    server = await startServer({ limits: { byteRatePerRuntime: 200_000 } })
    const large: ExchangeHandler = (_preamble, request, response) =>
      reading(response, ({ length }) =>
        answer(response, 200, request.method === 'POST' ? String(length) : 'x'.repeat(400_000)),
      )
    await dial(server, { handler: large, hello: { limits: { windowBytes: 262_144 } } })
    await dial(server, { runtime: 'other' })
    const begun = Promise.withResolvers<void>()
    const download = call(server, HOST, '/', { onResponse: begun.resolve })
    await begun.promise
    let refused = await call(server, HOST)
    while (refused.status === 200) refused = await call(server, HOST)
    isRefused(refused)
    expect((await call(server, OTHER)).status).toBe(200)
    expect((await download).text).toHaveLength(400_000)
    let upload = await call(server, HOST, '/', { method: 'POST', body: 'x'.repeat(300_000) })
    while (upload.status === 429) {
      upload = await call(server, HOST, '/', { method: 'POST', body: 'x'.repeat(300_000) })
    }
    expect(upload.text).toBe('300000')
    expect(server.stats()).toMatchObject({ exchanges: 0, bufferedBytes: 0 })
  })

  test('sessions of one address', async () => {
    server = await startServer({ limits: { sessionsPerAddress: 1 } })
    const client = await dial(server)
    await expect(openWebSocket(server, { runtime: 'other' })).rejects.toMatchObject({ status: 503 })
    client.ws.terminate()
    await client.closed
    await until(() => server.sessions().length === 0)
    await openWebSocket(server, { runtime: 'other' })
  })
})
