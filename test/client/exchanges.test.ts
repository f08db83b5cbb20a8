import { afterEach, describe, expect, it, vi } from 'vitest'
import { type ClientOptions, createTunnel, type ExchangeRecord, type Tunnel } from '../../client/index.ts'
import { SeenExchanges } from '../../client/seen-exchanges.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { newExchangeId } from '../../protocol/base/ids.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { type Layer, PassThrough } from '../../protocol/layer.ts'
import { newPrivateKey, publicBytes } from '../../protocol/sealing/hpke.ts'
import { keyIdOf, partAad, sealerFor } from '../../protocol/sealing/sealed-webhook.ts'
import { createRouter } from '../../router/router.ts'
import { eventually, until } from '../support/until.ts'
import { type FakeExchange, FakeServer, type FakeSession } from './fake-server.ts'

/** A target that does nothing by itself: the test answers. */
class Target {
  readonly requests: { method: string; path: string; response: ResponseSink; aborted: SallyportError | undefined }[] =
    []
  readonly #waiting: (() => void)[] = []

  readonly handler: Handler = (request, response): RequestSink => {
    const entry: Target['requests'][number] = {
      method: request.method,
      path: request.path,
      response,
      aborted: undefined,
    }
    this.requests.push(entry)
    for (const wake of this.#waiting.splice(0)) wake()
    return {
      requestData: chunk => response.requestConsumed(chunk.length),
      requestEnd() {},
      requestAbort: error => {
        entry.aborted = error
        for (const wake of this.#waiting.splice(0)) wake()
      },
      responseConsumed() {},
    }
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>(resolve => this.#waiting.push(resolve))
  }

  answer(index: number, text = 'ok'): void {
    const { response } = this.requests[index]!
    response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    response.responseData(Buffer.from(text))
    response.responseEnd([])
  }
}

const server$: { server: FakeServer; tunnel: Tunnel }[] = []

afterEach(async () => {
  vi.useRealTimers()
  for (const { server, tunnel } of server$.splice(0)) {
    await tunnel.close({ graceMs: 0 })
    await server.close()
  }
})

async function startTunnel(more: Partial<ClientOptions> = {}) {
  const server = await FakeServer.listen()
  const target = new Target()
  const records: ExchangeRecord[] = []
  const onExchange = (record: ExchangeRecord) => void records.push(record)
  const backoff = { firstMs: 5, capMs: 10 }
  const tunnel = createTunnel({ url: server.url, token: 'a.b.c', target, connections: 1, backoff, onExchange, ...more })
  server$.push({ server, tunnel })
  const session = await server.serve()
  await tunnel.connected()
  return { server, tunnel, session, target, records }
}

/** An unsafe request whose body is complete. */
function post(session: FakeSession, exchangeId: string, attempt = 0): FakeExchange {
  return session.exchange({ method: 'POST', exchangeId }, { attempt })
}

describe('an exchange', () => {
  it('W7 for another runtime is refused, and nothing is forwarded', async () => {
    const { session, target } = await startTunnel()
    const exchange = session.exchange({}, { runtime: 'other' })
    await expect(exchange.head$.promise).rejects.toMatchObject({ refusal: 'not-here', unprocessed: true })
    expect(target.requests).toEqual([])
  })

  it('is recorded when it is over', async () => {
    const { session, target, records, tunnel } = await startTunnel()
    const exchange = session.exchange({ method: 'POST', path: '/a?secret=1', bodyBytes: 5 })
    exchange.request.requestData(Buffer.from('12345'))
    exchange.request.requestEnd([])
    await target.until(() => target.requests.length === 1)
    expect(tunnel.stats().exchanges).toEqual({ live: 1, total: 1 })
    target.answer(0, 'hello')
    await exchange.answer()
    expect(records).toHaveLength(1)
    expect(records[0]).toMatchObject({
      requestId: 'r1',
      runtime: 'prod',
      session: session.id,
      method: 'POST',
      host: 'prod.tunnels.test',
      path: '/a',
      caller: '192.0.2.1',
      status: 200,
      code: undefined,
      cut: false,
      bytesIn: 5,
      bytesOut: 5,
      upgrade: false,
    })
    expect(tunnel.stats().exchanges).toEqual({ live: 0, total: 1 })
  })

  it('that fails before a head is answered with the problem, which the page can read', async () => {
    const cors = [{ path: '/app', origins: ['https://ui.example.com'] }]
    const { session, target, records } = await startTunnel({ cors })
    const exchange = session.exchange({
      path: '/app/x',
      headers: ['x-request-id', 'r1', 'origin', 'https://ui.example.com'],
    })
    await target.until(() => target.requests.length === 1)
    target.requests[0]!.response.responseAbort(
      new SallyportError('upstream-refused', 'connect ECONNREFUSED 10.0.0.1:80'),
    )
    const { status, headers, text } = await exchange.answer()
    expect(status).toBe(502)
    expect(headers).toContain('https://ui.example.com')
    expect(JSON.parse(text)).toMatchObject({ code: 'upstream-refused', requestId: 'r1' })
    expect(text).not.toContain('10.0.0.1')
    expect(records[0]).toMatchObject({ status: 502, code: 'upstream-refused', cut: false })
  })

  const throwing = (): never => {
    throw new Error('thrown on purpose')
  }
  class Throwing extends PassThrough {
    override requestData = throwing
  }
  it.each<[string, (request: HttpRequest, response: ResponseSink) => Partial<RequestSink>, Layer[]]>([
    ['whose target throws', () => ({ requestData: throwing }), []],
    [
      'whose target gives up',
      (_, response) => ({ requestEnd: () => response.responseAbort(new SallyportError('upstream-broken')) }),
      [],
    ],
    [
      'in which a layer throws',
      () => ({}),
      [next => (request, response) => new Throwing(response).pass(next, request)],
    ],
  ])('B1: %s holds nothing of its body afterwards', async (_, sink, layers) => {
    const silent = { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    const handler: Handler = (request, response) => ({ ...silent, ...sink(request, response) })
    const { session, tunnel } = await startTunnel({ target: { handler }, layers })
    const exchange = session.exchange({ method: 'POST', bodyBytes: 10_000 })
    exchange.request.requestData(Buffer.alloc(10_000))
    exchange.request.requestEnd([])
    expect((await exchange.answer()).status).toBeGreaterThanOrEqual(500)
    await eventually(() => expect(tunnel.stats().sessions[0]!.bufferedBytes).toBe(0))
  })

  it('B1: whose target throws after its answer holds nothing of its body afterwards', async () => {
    const handler: Handler = (_, response) => {
      response.responseHead({ status: 413, headers: [], bodyBytes: 0 })
      response.responseEnd([])
      return { requestData: throwing, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    }
    const { session, tunnel } = await startTunnel({ target: { handler } })
    const exchange = session.exchange({ method: 'POST', bodyBytes: 10_000 })
    exchange.request.requestData(Buffer.alloc(10_000))
    exchange.request.requestEnd([])
    expect((await exchange.answer()).status).toBe(413)
    await eventually(() => expect(tunnel.stats().sessions[0]!.bufferedBytes).toBe(0))
  })

  it.each([
    ['the right number', 1, 0],
    ['more than it got', 5, 100],
  ])('B1: whose target consumes %s leaves the accounts right', async (_, times, more) => {
    const handler: Handler = (_, response) => {
      const requestData = (chunk: Uint8Array) => {
        for (let i = 0; i < times; i++) response.requestConsumed(chunk.length + more)
      }
      const requestEnd = () => {
        response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
        response.responseEnd([])
      }
      return { requestData, requestEnd, requestAbort() {}, responseConsumed() {} }
    }
    const { session, tunnel } = await startTunnel({ target: { handler } })
    const exchange = session.exchange({ method: 'POST', bodyBytes: 10_000 })
    exchange.request.requestData(Buffer.alloc(10_000))
    exchange.request.requestEnd([])
    expect((await exchange.answer()).status).toBe(200)
    expect(tunnel.stats().sessions[0]!.bufferedBytes).toBe(0)
  })

  const HEAD = { status: 200, headers: [], bodyBytes: -1 }
  const begun = (say: (response: ResponseSink) => void) => (response: ResponseSink) => {
    response.responseHead(HEAD)
    say(response)
  }
  it.each<[string, (response: ResponseSink) => void, 'answered' | 'cut']>([
    ['no error', response => response.responseAbort(undefined as never), 'answered'],
    ['an error that is none of ours', response => response.responseAbort(new Error('planned') as never), 'answered'],
    ['no head', response => response.responseHead(undefined as never), 'answered'],
    ['status NaN', response => response.responseHead({ ...HEAD, status: Number.NaN }), 'answered'],
    ['status 600', response => response.responseHead({ ...HEAD, status: 600 }), 'answered'],
    ['status 100 as its answer', response => response.responseHead({ ...HEAD, status: 100 }), 'answered'],
    ['no fields', response => response.responseHead({ ...HEAD, headers: undefined as never }), 'answered'],
    ['a field without a value', response => response.responseHead({ ...HEAD, headers: ['a'] }), 'answered'],
    [
      'a number as a field',
      response => response.responseHead({ ...HEAD, headers: ['a', 1 as unknown as string] }),
      'answered',
    ],
    ['a length of NaN', response => response.responseHead({ ...HEAD, bodyBytes: Number.NaN }), 'answered'],
    ['an informational answer of status NaN', response => response.responseInformational(Number.NaN, []), 'answered'],
    ['an informational 200', response => response.responseInformational(200, []), 'answered'],
    [
      'an informational answer without fields',
      response => response.responseInformational(103, undefined as never),
      'answered',
    ],
    ['a body before the head', response => response.responseData(Buffer.from('x')), 'answered'],
    ['an end before the head', response => response.responseEnd([]), 'answered'],
    ['a credit of NaN', response => response.requestConsumed(Number.NaN), 'answered'],
    ['a credit of -1000', response => response.requestConsumed(-1000), 'answered'],
    ['to keep NaN', response => response.requestKept!(Number.NaN), 'answered'],
    ['no chunk', begun(response => response.responseData(null as never)), 'cut'],
    ['a text as a chunk', begun(response => response.responseData('text' as never)), 'cut'],
    ['no trailers', begun(response => response.responseEnd(undefined as never)), 'cut'],
    ['a second head', begun(response => response.responseHead(HEAD)), 'cut'],
    [
      'late an error that is none of ours',
      begun(response => response.responseAbort(new Error('planned') as never)),
      'cut',
    ],
  ])('whose target says %s from a timer has failed, and nothing else has', async (_, say, end) => {
    for (const inspect of ['off', 'bodies'] as const) {
      const target = new Target()
      const told: string[] = []
      const logger = { ...noLogger, error: (_: object, message: string) => void told.push(message) }
      const { session, tunnel, records } = await startTunnel({ target, logger, inspect })
      const exchange = session.exchange({ method: 'POST', bodyBytes: 10_000 })
      exchange.request.requestData(Buffer.alloc(10_000))
      await target.until(() => target.requests.length === 1)
      // Otherwise, what is thrown into the timer would end this process.
      await new Promise<void>((resolve, reject) => {
        setTimeout(() => {
          try {
            resolve(say(target.requests[0]!.response))
          } catch (error) {
            reject(error)
          }
        })
      })
      if (end === 'cut') await expect(exchange.body$.promise).rejects.toMatchObject({ reason: 'upstream-broken' })
      else {
        const { status, headers } = await exchange.answer()
        expect([status, headers]).toEqual([502, expect.arrayContaining(['sallyport-error', 'upstream-broken'])])
      }
      exchange.request.requestEnd([])
      expect(told).toEqual(['a target threw'])
      expect(records).toMatchObject([
        { status: end === 'cut' ? 200 : 502, code: 'upstream-broken', cut: end === 'cut' },
      ])
      await eventually(() => expect(tunnel.stats().exchanges.live).toBe(0))
      await eventually(() => expect(tunnel.stats().sessions[0]!.bufferedBytes).toBe(0))
      const next = session.exchange()
      await target.until(() => target.requests.length === 2)
      target.answer(1)
      expect((await next.answer()).status).toBe(200)
    }
  })

  it("that fails outside a policy's path is not shown to its pages", async () => {
    const cors = [{ path: '/app', origins: ['https://ui.example.com'] }]
    const { session, target } = await startTunnel({ cors })
    const headers = ['x-request-id', 'r1', 'origin', 'https://ui.example.com']
    for (const [index, path] of ['/apple', '/app?q', '/app/'].entries()) {
      const exchange = session.exchange({ path, headers })
      await target.until(() => target.requests.length === index + 1)
      target.requests[index]!.response.responseAbort(new SallyportError('upstream-refused'))
      const answer = await exchange.answer()
      expect(answer.headers.includes('https://ui.example.com')).toBe(path !== '/apple')
    }
  })

  it.each([
    ['', undefined],
    [', which records it as well', () => {}],
  ])('through a router%s, is recorded with its route, even if it is answered at once', async (_, onExchange) => {
    const router = createRouter({
      onExchange,
      routes: {
        routes: [
          { name: 'gone', match: { path: '/gone' }, target: 'http://127.0.0.1:9' },
          { name: 'here', match: { path: '/here', methods: ['POST'] }, target: 'http://127.0.0.1:9' },
        ],
      },
    })
    const { session, records } = await startTunnel({ target: router })
    await session.exchange({ path: '/gone' }).answer()
    await session.exchange({ path: '/here' }).answer()
    await session.exchange({ path: '/nowhere' }).answer()
    expect(records.map(({ route, status }) => [route, status])).toEqual([
      ['gone', 502],
      ['here', 405],
      [undefined, 404],
    ])
    await router.close()
  })

  it('that breaks midway is cut, never ended', async () => {
    const { session, target, records } = await startTunnel()
    const exchange = session.exchange()
    await target.until(() => target.requests.length === 1)
    const { response } = target.requests[0]!
    response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    response.responseData(Buffer.from('half'))
    await exchange.bytes(4)
    response.responseAbort(new SallyportError('upstream-broken'))
    await expect(exchange.body$.promise).rejects.toMatchObject({ reason: 'upstream-broken' })
    expect(records[0]).toMatchObject({ status: 200, code: 'upstream-broken', cut: true })
  })

  it('whose caller leaves is aborted at the target', async () => {
    const { session, target, records } = await startTunnel()
    const exchange = session.exchange()
    await target.until(() => target.requests.length === 1)
    exchange.request.requestAbort(new SallyportError('cancelled'))
    await target.until(() => target.requests[0]!.aborted !== undefined)
    expect(target.requests[0]!.aborted!.reason).toBe('cancelled')
    expect(records[0]).toMatchObject({ status: 0, code: 'cancelled' })
  })
})

describe('a sealed webhook', () => {
  const KEY = newPrivateKey()
  const PEM = KEY.export({ format: 'pem', type: 'pkcs8' }).toString()
  const SEALER = sealerFor(publicBytes(KEY))
  const SEALED = {
    'sallyport-inbox-id': 'w-1',
    'sallyport-inbox-received': '2027-01-15T08:00:00.000Z',
    'sallyport-inbox-key': keyIdOf(publicBytes(KEY)),
    'sallyport-inbox-lane': 'l',
    'sallyport-inbox-enc': SEALER.enc,
  }
  const headersWith = (more: object) => Object.entries({ ...SEALED, ...more }).flat()

  afterEach(() => {
    vi.restoreAllMocks()
  })

  async function startWithKey() {
    const begun = vi.spyOn(SeenExchanges.prototype, 'begin')
    const ended = vi.spyOn(SeenExchanges.prototype, 'end')
    const parts = await startTunnel({ inboxKeys: [PEM] })
    const allEnded = async () => {
      await until(() => parts.tunnel.stats().exchanges.live === 0)
      expect(ended.mock.calls.flat()).toEqual(begun.mock.calls.map(([id]) => id))
    }
    return { ...parts, begun, allEnded }
  }

  it.each([
    ['for another key', { 'sallyport-inbox-key': 'other' }, Buffer.from('abc')],
    ["without the sender's key", { 'sallyport-inbox-enc': '' }, Buffer.from('abc')],
    ['that is cut in its first part', {}, Buffer.of(0, 0, 1, 0, 7)],
    ['that cannot be opened', {}, Buffer.of(0, 0, 0, 4, 1, 2, 3, 4)],
  ])('%s leaves nothing behind', async (_what, more, body) => {
    const { session, target, allEnded } = await startWithKey()
    const exchange = session.exchange({ method: 'POST', headers: headersWith(more), bodyBytes: body.length })
    exchange.request.requestData(body)
    exchange.request.requestEnd([])
    const { text } = await exchange.answer()
    expect(JSON.parse(text)).toMatchObject({ code: 'inbox-sealed' })
    await allEnded()
    expect(target.requests).toEqual([])
  })

  it('whose sender leaves before its head is complete counts as held, and leaves nothing behind', async () => {
    const { session, tunnel, allEnded } = await startWithKey()
    const held = () => tunnel.stats().sessions[0]!.bufferedBytes
    const exchange = session.exchange({ method: 'POST', headers: headersWith({}), bodyBytes: 200_000 })
    exchange.request.requestData(Buffer.concat([Buffer.of(0, 8, 0, 0), Buffer.alloc(100_000)]))
    await until(() => held() > 100_004)
    // The head of the delivery counts, too.
    expect(held()).toBeLessThan(101_000)
    exchange.request.requestAbort(new SallyportError('cancelled'))
    await allEnded()
    expect(held()).toBe(0)
  })

  it('of a safe method, which no server keeps, leaves nothing behind', async () => {
    const { session, target, allEnded } = await startWithKey()
    const received = Date.parse(SEALED['sallyport-inbox-received'])
    const caller = { address: '192.0.2.1', scheme: 'https', host: 'prod.tunnels.test' }
    const head = {
      method: 'GET',
      authority: caller.host,
      path: '/',
      headers: [],
      trailers: [],
      caller,
      requestId: 'r1',
    }
    const clear = Buffer.from(JSON.stringify({ ...head, parts: 0, bodyBytes: 0 }))
    const part = SEALER.seal(0, partAad({ runtime: 'prod', id: 'w-1', lane: 'l', received }, 0), clear)
    const exchange = session.exchange({ method: 'POST', headers: headersWith({}), bodyBytes: 4 + part.length })
    exchange.request.requestData(Buffer.concat([Buffer.of(0, 0, part.length >> 8, part.length & 0xff), part]))
    exchange.request.requestEnd([])
    await target.until(() => target.requests.length === 1)
    target.answer(0)
    await exchange.answer()
    await allEnded()
  })
})

describe('sent again', () => {
  it('an unsafe exchange that was begun is refused, even on another session', async () => {
    const { server, session, target } = await startTunnel({ connections: 2 })
    const other = await server.serve()
    const id = newExchangeId()
    const first = post(session, id)
    await target.until(() => target.requests.length === 1)
    const refused = { refusal: 'already-begun', unprocessed: true }
    await expect(post(other, id, 1).head$.promise).rejects.toMatchObject(refused)
    target.answer(0)
    await first.answer()
    await expect(post(other, id, 1).head$.promise).rejects.toMatchObject(refused)
    expect(target.requests).toHaveLength(1)
  })

  it('a safe exchange is forwarded again', async () => {
    const { session, target } = await startTunnel()
    const exchangeId = newExchangeId()
    const first = session.exchange({ exchangeId })
    const second = session.exchange({ exchangeId }, { attempt: 1 })
    await target.until(() => target.requests.length === 2)
    target.answer(0, 'one')
    target.answer(1, 'two')
    expect([(await first.answer()).text, (await second.answer()).text]).toEqual(['one', 'two'])
  })
})

describe('the death of a session', () => {
  it('does not cancel an unsafe exchange that the target has completely', async () => {
    const { server, session, target, records, tunnel } = await startTunnel()
    const id = newExchangeId()
    post(session, id)
    session.exchange()
    await target.until(() => target.requests.length === 2)
    session.webSocket.terminate()
    await target.until(() => target.requests[1]!.aborted !== undefined)
    expect(target.requests[1]!.aborted!.reason).toBe('session-lost')
    expect(target.requests[0]!.aborted).toBeUndefined()
    const next = await server.serve()
    await expect(post(next, id, 1).head$.promise).rejects.toMatchObject({ refusal: 'already-begun' })
    expect(tunnel.stats().exchanges.live).toBe(1)
    target.answer(0)
    expect(target.requests[0]!.aborted).toBeUndefined()
    expect(records.find(({ method }) => method === 'POST')).toMatchObject({ code: 'session-lost' })
    expect(tunnel.stats().exchanges.live).toBe(0)
  })

  it('ends an unsafe exchange after 5 s', async () => {
    const { session, target } = await startTunnel()
    post(session, newExchangeId())
    await target.until(() => target.requests.length === 1)
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const lost = new Promise(resolve => session.webSocket.once('close', resolve))
    session.webSocket.terminate()
    await lost
    while (vi.getTimerCount() === 0) await new Promise(setImmediate)
    await vi.advanceTimersByTimeAsync(4990)
    expect(target.requests[0]!.aborted).toBeUndefined()
    await vi.advanceTimersByTimeAsync(20)
    expect(target.requests[0]!.aborted?.reason).toBe('session-lost')
    vi.useRealTimers()
  })

  it('leaves nothing behind in a client that closes', async () => {
    const { session, target, tunnel } = await startTunnel()
    post(session, newExchangeId())
    await target.until(() => target.requests.length === 1)
    const closing = tunnel.close({ graceMs: 20 })
    await closing
    expect(target.requests[0]!.aborted?.reason).toBe('session-lost')
    expect(tunnel.stats().exchanges.live).toBe(0)
  })

  it('ends an unsafe exchange at once if its body is incomplete', async () => {
    const { session, target } = await startTunnel()
    const exchange = session.exchange({ method: 'POST', bodyBytes: 10 })
    exchange.request.requestData(Buffer.from('12345'))
    await target.until(() => target.requests.length === 1)
    session.webSocket.terminate()
    await target.until(() => target.requests[0]!.aborted !== undefined)
    expect(target.requests[0]!.aborted!.reason).toBe('session-lost')
  })
})
