import { createServer as createHttpServer, type Server as HttpServer } from 'node:http'
import { createSecureServer } from 'node:http2'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { connect as connectTls } from 'node:tls'
import {
  type Dispatcher,
  interceptors,
  FormData as UndiciFormData,
  fetch as undiciFetch,
  request as undiciRequest,
} from 'undici'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { WebSocket } from 'ws'
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import { BODY_UNKNOWN, type ExchangeRecord, type RequestSink, type ResponseSink } from '../../protocol/exchange.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Server } from '../../server/server.ts'
import { eventually } from '../support/until.ts'
import {
  always,
  answer,
  call,
  dial,
  echo,
  HOST,
  hanging,
  makeWorld,
  reading,
  sendingBack,
  startServer,
  type TestClient,
} from './fixture.ts'

const ORIGIN = `https://${HOST}`

let server: Server
afterEach(() => server.close({ graceMs: 0 }))

/** Answers with the head and body of the request, as JSON. */
const mirror: ExchangeHandler = (_preamble, request, response) =>
  reading(response, body => {
    const { method, path, authority, headers, caller, bodyBytes } = request
    const seen = { method, path, authority, headers, caller, bodyBytes, body: String(body) }
    response.responseHead({
      status: 201,
      headers: ['content-type', 'application/json', 'set-cookie', 'a=1', 'set-cookie', 'b=2'],
      bodyBytes: BODY_UNKNOWN,
    })
    response.responseData(Buffer.from(JSON.stringify(seen)))
    response.responseEnd([])
  })

/** A server and its client. */
async function begin(handler: ExchangeHandler = echo): Promise<TestClient> {
  server = await startServer()
  return dial(server, { handler })
}

/** Sends `bytes` bytes, never more than 64 KiB ahead of what was consumed. */
function flood(bytes: number, onSent: (sent: number) => void): ExchangeHandler {
  return (_preamble, _request, response): RequestSink => {
    let left = bytes
    let ahead = 0
    let sent = 0
    const pump = () => {
      while (left > 0 && ahead < 65_536) {
        const chunk = Buffer.alloc(Math.min(16_384, left), 'x')
        left -= chunk.length
        ahead += chunk.length
        sent += chunk.length
        onSent(sent)
        response.responseData(chunk)
      }
      if (left === 0 && ahead === 0) response.responseEnd([])
    }
    response.responseHead({ status: 200, headers: ['content-length', String(bytes)], bodyBytes: bytes })
    queueMicrotask(pump)
    return {
      ...discarding(response),
      responseConsumed(n) {
        ahead -= n
        pump()
      },
    }
  }
}

describe('server.fetch', () => {
  test('calls into a runtime', async () => {
    await begin(mirror)
    const request = new Request(`${ORIGIN}/a/b?c=d%20e`, { method: 'PUT', body: 'hello', headers: { 'x-one': '1' } })
    const response = await server.fetch('demo', request, { caller: '203.0.113.5' })
    expect(response.status).toBe(201)
    expect(response.headers.getSetCookie()).toEqual(['a=1', 'b=2'])
    const seen = (await response.json()) as Record<string, unknown>
    expect(seen).toMatchObject({
      method: 'PUT',
      path: '/a/b?c=d%20e',
      authority: HOST,
      body: 'hello',
      caller: { address: '203.0.113.5', scheme: 'https', host: HOST },
    })
    expect(seen.headers).toEqual(expect.arrayContaining(['x-one', '1', 'x-request-id']))
  })

  test.each(['/a?b', '//other.example/x'])('calls the path %s of a runtime', async path => {
    await begin(mirror)
    expect(await (await server.fetch('demo', path)).json()).toMatchObject({ path, authority: HOST })
  })

  test.each(['a/b', '', 'https://'])('rejects %j, and says what it accepts', async text => {
    server = await startServer()
    const problem = `${JSON.stringify(text)} is neither a URL nor a path that begins with a slash`
    await expect(server.fetch('demo', text)).rejects.toThrow(new TypeError(problem))
  })

  test('returns our refusals as answers', async () => {
    server = await startServer()
    const response = await server.fetch('demo', ORIGIN)
    expect([response.status, response.headers.get('sallyport-error')]).toEqual([503, 'runtime-offline'])
    expect(await response.json()).toMatchObject({ code: 'runtime-offline' })
  })

  test("the embedder's forwarded fields do not pass", async () => {
    await begin(mirror)
    const headers = { 'x-forwarded-for': '1.1.1.1', forwarded: 'for=1.1.1.1', 'x-real-ip': '1.1.1.1' }
    const seen = (await (await server.fetch('demo', new Request(ORIGIN, { headers }))).json()) as { headers: string[] }
    expect(seen.headers).not.toContain('1.1.1.1')
    expect(seen.headers).not.toContain('for=1.1.1.1')
  })

  test('an abort rejects and reaches the client', async () => {
    server = await startServer()
    const begun = Promise.withResolvers<void>()
    const gone = Promise.withResolvers<SallyportError>()
    await dial(server, {
      handler: (_preamble, _request, response) => {
        begun.resolve()
        return { ...discarding(response), requestAbort: gone.resolve }
      },
    })
    const controller = new AbortController()
    const calling = server.fetch('demo', new Request(ORIGIN, { signal: controller.signal }))
    calling.catch(() => {})
    await begun.promise
    controller.abort()
    await expect(calling).rejects.toThrow(/abort/i)
    expect((await gone.promise).reason).toBe('cancelled')
  })

  test('a request body that breaks rejects', async () => {
    await begin()
    const body = new ReadableStream({
      start: controller => controller.enqueue(new TextEncoder().encode('half')),
      pull: controller => controller.error(new Error('disk')),
    })
    const request = new Request(ORIGIN, { method: 'POST', body, duplex: 'half' } as RequestInit)
    await expect(server.fetch('demo', request)).rejects.toThrow('disk')
    expect(server.stats().exchanges).toBe(0)
  })

  test('a body has the length that `content-length` announces, also at the dispatcher', async () => {
    await begin(mirror)
    const dispatcher = server.dispatcher('demo')
    const fetched = async (length: string) => {
      const headers = { 'content-length': length }
      return await (await server.fetch('demo', new Request(ORIGIN, { method: 'POST', body: 'text', headers }))).json()
    }
    const dispatched = async (length: string) => {
      const body = Readable.from([Buffer.from('text')])
      return await (
        await undiciRequest(ORIGIN, { dispatcher, method: 'POST', headers: { 'content-length': length }, body })
      ).body.json()
    }
    const whole = { body: 'text', bodyBytes: 4, headers: expect.arrayContaining(['content-length', '4']) }
    for (const call of [fetched, dispatched]) {
      expect(await call('4')).toMatchObject(whole)
      for (const other of ['3', '5']) await expect(call(other)).rejects.toThrow('that content-length announces')
    }
    const made = await undiciFetch(ORIGIN, { dispatcher, method: 'POST', body: 'text' })
    expect(await made.json()).toMatchObject(whole)
  })

  test('a request body of anything but bytes or text rejects, also at the dispatcher', async () => {
    await begin()
    const body = new ReadableStream({ start: into => into.enqueue(7) })
    const problem = new TypeError('a body must consist of bytes or text')
    const request = new Request(ORIGIN, { method: 'POST', body, duplex: 'half' } as RequestInit)
    await expect(server.fetch('demo', request)).rejects.toThrow(problem)
    const dispatcher = server.dispatcher('demo')
    const dispatched = (given: unknown) => undiciRequest(ORIGIN, { dispatcher, method: 'POST', body: given as string })
    await expect(dispatched(Readable.from([7]))).rejects.toThrow(problem)
    for (const odd of [7, true, {}, () => 'text']) {
      await expect(dispatched(odd)).rejects.toThrow('the dispatcher does not support this kind of body')
    }
    expect(server.stats().exchanges).toBe(0)
  })

  test('a name that is not a token is misuse', async () => {
    server = await startServer()
    await expect(server.fetch('demo', ORIGIN, { caller: 'nobody' })).rejects.toThrow(TypeError)
  })
})

describe('server.dispatcher', () => {
  test('carries undici.request, with a streamed body', async () => {
    await begin(mirror)
    const { statusCode, headers, body } = await undiciRequest(`${ORIGIN}/x`, {
      dispatcher: server.dispatcher('demo'),
      method: 'POST',
      query: { a: '1 2', b: [3, 4] },
      headers: { 'x-two': ['1', '2'] },
      body: Readable.from([Buffer.from('one'), Buffer.from('two')]),
    })
    expect(statusCode).toBe(201)
    expect(headers['set-cookie']).toEqual(['a=1', 'b=2'])
    expect(await body.json()).toMatchObject({
      method: 'POST',
      path: '/x?a=1%202&b=3&b=4',
      body: 'onetwo',
      bodyBytes: -1,
    })
  })

  test.each<[string, unknown, string, number]>([
    ['text', 'text', 'text', 4],
    ['bytes', new TextEncoder().encode('bytes'), 'bytes', 5],
    ['an ArrayBuffer', new TextEncoder().encode('buffer').buffer, 'buffer', 6],
    ['a Blob', new Blob(['bl', 'ob']), 'blob', 4],
    ['an iterable', ['a', 'b'], 'ab', -1],
    ['nothing', undefined, '', 0],
    ['an empty buffer', new Uint8Array(0), '', 0],
  ])('accepts %s as a body', async (_name, body, text, bodyBytes) => {
    await begin(mirror)
    const response = await new Promise<string>((resolve, reject) => {
      const chunks: Buffer[] = []
      server.dispatcher('demo').dispatch(
        { origin: ORIGIN, path: '/', method: 'POST', body: body as never, headers: new Map([['x-a', 'b']]) },
        {
          onResponseData: (_controller, chunk) => chunks.push(chunk),
          onResponseEnd: () => resolve(Buffer.concat(chunks).toString()),
          onResponseError: (_controller, error) => reject(error),
        },
      )
    })
    expect(JSON.parse(response)).toMatchObject({ body: text, bodyBytes, headers: expect.arrayContaining(['x-a', 'b']) })
  })

  test.each<[string, new () => FormData, object]>([
    ['of the platform', FormData, {}],
    ['of undici', UndiciFormData as never, {}],
    ['beside a value that reads like a name', FormData, { 'x-kind': 'content-type' }],
  ])('a form %s keeps its boundary', async (_name, Form, headers) => {
    await begin(mirror)
    const form = new Form()
    form.append('name', 'value')
    const { body } = await undiciRequest(ORIGIN, {
      dispatcher: server.dispatcher('demo'),
      method: 'POST',
      headers: headers as Record<string, string>,
      body: form as never,
    })
    const seen = (await body.json()) as { headers: string[]; body: string }
    const type = seen.headers.find((_, i) => i % 2 === 1 && seen.headers[i - 1] === 'content-type')!
    const boundary = /boundary=(.+)/.exec(type)![1]!
    expect(seen.body).toContain(boundary)
    expect(seen.body).toContain('value')
  })

  test.each([
    ['none is given', {}, 'image/png'],
    ['one is given', { 'Content-Type': 'x/y' }, 'x/y'],
  ])("a Blob's type is sent where %s", async (_name, headers, type) => {
    await begin(mirror)
    const body = new Blob(['x'], { type: 'image/png' }) as never
    const dispatcher = server.dispatcher('demo')
    const answer = await undiciRequest(ORIGIN, { dispatcher, method: 'POST', headers, body })
    const seen = (await answer.body.json()) as { headers: string[] }
    expect(seen.headers.filter((_, i) => seen.headers[i - 1] === 'content-type')).toEqual([type])
  })

  test('a path with two slashes names no host', async () => {
    await begin(mirror)
    const seen = await new Promise<string>((resolve, reject) => {
      const options = { origin: ORIGIN, path: '//other.example/x', method: 'GET' as const }
      server.dispatcher('demo').dispatch(options, {
        onResponseData: (_controller, chunk) => resolve(chunk.toString()),
        onResponseError: (_controller, error) => reject(error),
      })
    })
    expect(JSON.parse(seen)).toMatchObject({ authority: HOST, path: '//other.example/x' })
  })

  test('a body that breaks aborts the exchange', async () => {
    await begin()
    const broken = Readable.from(
      (async function* () {
        yield Buffer.from('half')
        throw new Error('disk')
      })(),
    )
    const calling = undiciRequest(ORIGIN, { dispatcher: server.dispatcher('demo'), method: 'POST', body: broken })
    await expect(calling).rejects.toThrow('disk')
    expect(server.stats().exchanges).toBe(0)
  })

  test('carries undici.fetch, which follows redirects', async () => {
    server = await startServer()
    const redirecting: ExchangeHandler = (preamble, request, response) => {
      if (request.path === '/target') return always('arrived')(preamble, request, response)
      response.responseHead({ status: 302, headers: ['location', '/target', 'content-length', '0'], bodyBytes: 0 })
      response.responseEnd([])
      return discarding(response)
    }
    await dial(server, { handler: redirecting })
    const response = await undiciFetch(ORIGIN, { dispatcher: server.dispatcher('demo') })
    expect(await response.text()).toBe('arrived')
  })

  const CALLBACKS = ['onRequestStart', 'onResponseStart', 'onResponseData', 'onResponseEnd'] as const
  test.each(CALLBACKS)('what %s throws is reported once, as an uncaught error', async name => {
    await begin()
    const told = vi.fn()
    const thrown = new Error('on purpose')
    const handler = {
      onResponseError: (controller: Dispatcher.DispatchController, error: Error) => told(error, controller.aborted),
      [name]: () => {
        throw thrown
      },
    }
    server.dispatcher('demo').dispatch({ origin: ORIGIN, path: '/', method: 'GET' }, handler)
    await eventually(() => expect(told).toHaveBeenCalled())
    expect(told.mock.calls).toEqual([[thrown, false]])
    await eventually(() => expect(server.stats().exchanges).toBe(0))
  })

  test('the handlers of an older undici, as in Node 22, are refused, since they would hear nothing', async () => {
    await begin()
    const handler: object = { onConnect() {}, onHeaders: () => true, onData: () => true, onComplete() {}, onError() {} }
    const dispatcher = server.dispatcher('demo')
    const dispatch = () => dispatcher.dispatch({ origin: ORIGIN, path: '/', method: 'GET' }, handler)
    expect(dispatch).toThrow('needs undici 8')
  })

  test("undici's retry works", async () => {
    server = await startServer()
    let asked = 0
    const failing: ExchangeHandler = (preamble, request, response) => {
      if (++asked > 1) return always('at last')(preamble, request, response)
      response.responseHead({ status: 503, headers: ['content-length', '4'], bodyBytes: 4 })
      response.responseData(Buffer.from('busy'))
      response.responseEnd([])
      return discarding(response)
    }
    await dial(server, { handler: failing })
    const dispatcher = server.dispatcher('demo').compose(interceptors.retry({ minTimeout: 1, maxTimeout: 1 }))
    const { body } = await undiciRequest(ORIGIN, { dispatcher })
    expect(await body.text()).toBe('at last')
  })

  test('fields of the connection do not pass', async () => {
    await begin(mirror)
    const headers = { connection: 'x-mine', 'x-mine': '1', 'keep-alive': 'timeout=5', 'x-kept': '1' }
    const { body } = await undiciRequest(ORIGIN, { dispatcher: server.dispatcher('demo'), headers })
    const seen = (await body.json()) as { headers: string[] }
    expect(seen.headers.filter((_, i) => i % 2 === 0)).toEqual(['x-kept', 'x-request-id'])
  })

  test('passes on trailers', async () => {
    server = await startServer()
    const trailing: ExchangeHandler = (_preamble, _request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      response.responseData(Buffer.alloc(50_000))
      response.responseEnd(['x-sum', 'abc'])
      return discarding(response)
    }
    await dial(server, { handler: trailing })
    const { body, trailers } = await undiciRequest(ORIGIN, { dispatcher: server.dispatcher('demo') })
    expect((await body.arrayBuffer()).byteLength).toBe(50_000)
    expect(trailers).toEqual({ 'x-sum': 'abc' })
  })

  test("a caller's abort reaches the client; what it cannot carry is an error", async () => {
    server = await startServer()
    const { handler, begun } = hanging()
    await dial(server, { handler })
    const controller = new AbortController()
    const dispatcher = server.dispatcher('demo')
    const calling = undiciRequest(ORIGIN, { dispatcher, signal: controller.signal })
    calling.catch(() => {})
    await begun
    controller.abort()
    await expect(calling).rejects.toThrow(/abort/i)
    expect(server.stats().exchanges).toBe(0)
    const refused = async (over: object) => {
      const options = { origin: ORIGIN, path: '/', method: 'GET' as const, ...over }
      const error = await new Promise<Error>((told, reject) => {
        const onRequestStart = () => reject(new Error('it was begun'))
        dispatcher.dispatch(options, { onRequestStart, onResponseError: (_controller, reason) => told(reason) })
      })
      return error.message
    }
    expect(await refused({ method: 'CONNECT' })).toBe('method CONNECT is not supported')
    expect(await refused({ upgrade: 'websocket' })).toMatch(/^the dispatcher does not support upgrades: /)
    expect(await refused({ path: '/?a=1', query: { b: 2 } })).toBe('the path has a query already')
    await dispatcher.close()
    expect(await refused({})).toBe('the dispatcher is closed')
    await expect(undiciRequest(ORIGIN, { dispatcher })).rejects.toThrow('closed')
  })
})

type Body = AsyncIterable<Uint8Array>
describe.each<[string, (body?: Body) => Promise<Body>]>([
  [
    'server.fetch',
    async (body: Body = Readable.from([])) => {
      const init = { method: 'POST', body: ReadableStream.from(body), duplex: 'half' }
      return (await server.fetch('demo', new Request(ORIGIN, init as RequestInit))).body!
    },
  ],
  [
    'server.dispatcher',
    async (body: Body = Readable.from([])) => {
      const dispatcher = server.dispatcher('demo')
      return (await undiciRequest(ORIGIN, { dispatcher, method: 'POST', body: Readable.from(body) })).body
    },
  ],
])('a long body of %s', (_, send) => {
  /** Resolves once `count` stays the same: what was in flight has arrived once several echoes have crossed behind it. */
  async function settled(client: TestClient, count: () => number): Promise<void> {
    for (let before = -1; before !== count(); ) {
      before = count()
      for (let i = 0; i < 10; i++) await new Promise(resolve => client.session.ping(resolve))
    }
  }

  test('passes in both directions', async () => {
    await begin((_preamble, _request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      return sendingBack(response)
    })
    const sent = Array.from({ length: 40 }, (_, i) => Buffer.alloc(100_000, i))
    const got = await buffer(await send(Readable.from(sent)))
    expect(got.equals(Buffer.concat(sent))).toBe(true)
  })

  test('is an error for its reader if it breaks off', async () => {
    const begun = Promise.withResolvers<ResponseSink>()
    await begin((_preamble, _request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      response.responseData(Buffer.from('half'))
      begun.resolve(response)
      return discarding(response)
    })
    const reader = (await send())[Symbol.asyncIterator]()
    await reader.next()
    const response = await begun.promise
    response.responseAbort(new SallyportError('upstream-broken'))
    await expect(reader.next()).rejects.toMatchObject({ reason: 'upstream-broken' })
  })

  test('stops if its reader stops reading', async () => {
    let sent = 0
    const size = 20_000_000
    const client = await begin(
      flood(size, count => {
        sent = count
      }),
    )
    const reader = (await send())[Symbol.asyncIterator]()
    let got = (await reader.next()).value!.length
    await settled(client, () => sent)
    expect(sent).toBeLessThan(2_000_000)
    for (let next = await reader.next(); next.done !== true; next = await reader.next()) got += next.value.length
    expect(got).toBe(size)
  })

  test.each<[string, (response: ResponseSink) => void]>([
    ['has answered', response => response.responseEnd([])],
    ['has failed', response => response.responseAbort(new SallyportError('upstream-broken'))],
  ])('is read only as far as the runtime takes it, and closed once that %s', async (_, end) => {
    let read = 0
    const closed = Promise.withResolvers<void>()
    async function* endless() {
      try {
        for (; ; read += 10_000) yield await new Promise<Buffer>(resolve => setImmediate(resolve, Buffer.alloc(10_000)))
      } finally {
        closed.resolve()
      }
    }
    const begun = Promise.withResolvers<ResponseSink>()
    const client = await begin((_preamble, _request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      begun.resolve(response)
      return { ...discarding(response), requestData() {} }
    })
    const received = buffer(await send(endless())).catch(() => {})
    await settled(client, () => read)
    expect(read).toBeLessThan(1_000_000)
    end(await begun.promise)
    await received
    await closed.promise
  })
})

describe("on the embedder's own http.Server", () => {
  let host: HttpServer
  afterEach(() => {
    host.closeAllConnections()
    host.close()
  })
  async function attach(options: Parameters<typeof startServer>[0]) {
    const made = await makeWorld()
    const app = (_request: unknown, response: import('node:http').ServerResponse) => response.end('the app')
    host =
      options?.control === 'off'
        ? createHttpServer(app)
        : createHttpsServer({ cert: made.server.certificate, key: made.server.key }, app)
    await new Promise<void>(resolve => host.listen(0, '127.0.0.1', resolve))
    server = await startServer({ public: undefined, ...options })
    const detach = server.attach(host)
    const { port, address } = host.address() as AddressInfo
    // Where the test's callers and clients find it.
    const at = { value: { host: address, port } }
    Object.defineProperties(server, { publicAddress: at, controlAddress: at })
    return detach
  }

  test('our hosts are ours, and the rest is the app’s', async () => {
    const detach = await attach({ control: 'off' })
    expect((await call(server, HOST)).status).toBe(503)
    expect((await call(server, 'app.example')).text).toBe('the app')
    detach()
    expect((await call(server, HOST)).text).toBe('the app')
  })

  test('detaching leaves the app as it was, even when the server closes', async () => {
    const detach = await attach({ control: 'off' })
    const other = await startServer({ public: undefined, control: 'off', domains: ['other.example'] })
    other.attach(host)
    detach()
    await server.close({ graceMs: 0 })
    expect((await call(server, HOST)).text).toBe('the app')
    expect((await call(server, 'demo.other.example')).status).toBe(503)
    await other.close({ graceMs: 0 })
    expect((await call(server, 'demo.other.example')).text).toBe('the app')
    expect([host.listenerCount('request'), host.listenerCount('upgrade')]).toEqual([1, 0])
  })

  test("a cut answer is cut, a caller's departure is reported, and a bad target gets 400", async () => {
    const records: ExchangeRecord[] = []
    await attach({ control: {}, onExchange: record => records.push(record) })
    let sent: ResponseSink | undefined
    const half: ExchangeHandler = (_preamble, _request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      response.responseData(Buffer.from('half'))
      sent = response
      return discarding(response)
    }
    await dial(server, { handler: half })
    const ca = (await makeWorld()).authority.certificate
    const tls = { ca, servername: HOST }
    const onResponse = () => sent!.responseAbort(new SallyportError('upstream-broken'))
    await expect(call(server, HOST, '/', { ...tls, onResponse })).rejects.toThrow()
    const leaving = new AbortController()
    const left = call(server, HOST, '/', { ...tls, onResponse: () => leaving.abort(), signal: leaving.signal })
    await expect(left).rejects.toThrow()
    await eventually(() => expect(records.map(record => record.code)).toEqual(['upstream-broken', 'cancelled']))
    expect(records.map(record => record.cut)).toEqual([true, false])
    expect((await call(server, HOST, 'https://other.example/', tls)).status).toBe(400)
  })

  test('without TLS the control endpoint is not mounted', async () => {
    host = createHttpServer()
    server = await startServer({ public: undefined, control: {} })
    expect(() => server.attach(host)).toThrow(TypeError)
  })

  test.each([false, true])('a server of HTTP/2 is refused (allowHTTP1: %s)', async allowHTTP1 => {
    host = createHttpServer()
    server = await startServer({ public: undefined, control: {} })
    const http2 = createSecureServer({ allowHTTP1 }) as unknown as import('node:http').Server
    expect(() => server.attach(http2)).toThrow(/http\.Server or an https\.Server/)
  })

  test('clients dial in on it, and bodies and WebSockets pass', async () => {
    await attach({ control: {} })
    const upgrades: string[] = []
    const both: ExchangeHandler = (preamble, request, response) => {
      if (!request.upgrade) return mirror(preamble, request, response)
      upgrades.push(request.path)
      response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
      return sendingBack(response)
    }
    await dial(server, { handler: both })
    const ca = (await makeWorld()).authority.certificate
    const options = { ca, servername: HOST, method: 'POST', body: 'x'.repeat(300_000) }
    const answer = await call(server, HOST, '/post?q', options)
    expect(answer.status).toBe(201)
    expect(JSON.parse(answer.text)).toMatchObject({ path: '/post?q', caller: { scheme: 'https' } })
    expect(JSON.parse(answer.text).body).toHaveLength(300_000)
    const { host: address, port } = server.publicAddress!
    const ws = new WebSocket(`wss://${address}:${port}/socket`, { ca, headers: { host: HOST } })
    ws.on('error', () => {})
    await new Promise(resolve => ws.once('open', resolve))
    expect(upgrades).toEqual(['/socket'])
    ws.terminate()
  })

  /** Sends bytes, and reads until the connection ends or `done` appears. */
  async function raw(text: string, done: RegExp): Promise<string> {
    const { host: address, port } = server.publicAddress!
    const ca = (await makeWorld()).authority.certificate
    const socket = connectTls({ host: address, port, ca, servername: HOST })
    socket.on('error', () => {})
    return new Promise(resolve => {
      let seen = ''
      socket.on('close', () => resolve(seen))
      socket.on('data', data => {
        seen += data.toString('latin1')
        if (done.test(seen)) socket.destroy()
      })
      socket.write(text, 'latin1')
    })
  }

  const get = (line: string, ...fields: string[]) => `${[line, ...fields].join('\r\n')}\r\n\r\n`
  const ours = `host: ${HOST}`
  test.each<[string, string, number]>([
    ['a plain request', get('GET /a HTTP/1.1', ours), 200],
    ['a fragment', get('GET /a#b HTTP/1.1', ours), 400],
    ['two hosts', get('GET / HTTP/1.1', ours, ours), 400],
    ['two hosts, the second of somebody else', get('GET / HTTP/1.1', ours, 'host: other.example'), 400],
    ['an absolute form', get(`GET https://${HOST}/ HTTP/1.1`, ours), 400],
    ['an asterisk', get('OPTIONS * HTTP/1.1', ours), 400],
    ['TRACE', get('TRACE / HTTP/1.1', ours), 405],
    ['a path over 8 KiB', get(`GET /${'p'.repeat(9000)} HTTP/1.1`, ours), 414],
    ['101 fields', get('GET / HTTP/1.1', ours, ...Array.from({ length: 100 }, (_, i) => `x-${i}: 1`)), 431],
    ['100 fields', get('GET / HTTP/1.1', ours, ...Array.from({ length: 99 }, (_, i) => `x-${i}: 1`)), 200],
  ])('E9: %s is treated as on a listener of ours', async (_name, text, status) => {
    await attach({ control: {} })
    const seen: string[] = []
    const handler: ExchangeHandler = (preamble, request, response) => {
      seen.push(request.path)
      return always('ok')(preamble, request, response)
    }
    await dial(server, { handler })
    expect((await raw(text, /\r\n\r\n/)).slice(0, 13)).toBe(`HTTP/1.1 ${status} `)
    expect(seen).toHaveLength(status === 200 ? 1 : 0)
  })

  test("an upstream's hints pass unchanged, whatever they say, before the answer", async () => {
    await attach({ control: {} })
    const links = '</a.css>; rel=preload; as=style; title="a, \\"b\\"", </b.js>; rel=preload'
    const hinting: ExchangeHandler = (_preamble, _request, response) => {
      response.responseInformational(103, ['link', links, 'link', '</c>; rel=x', 'x-more', '1'])
      response.responseInformational(102, [])
      response.responseInformational(100, [])
      answer(response, 200, 'served')
      return discarding(response)
    }
    await dial(server, { handler: hinting })
    const hints = `HTTP/1.1 103 Early Hints\r\nlink: ${links}\r\nlink: </c>; rel=x\r\nx-more: 1\r\n\r\n`
    const seen = await raw(get('GET / HTTP/1.1', ours), /served/)
    expect(seen.startsWith(`${hints}HTTP/1.1 102 `)).toBe(true)
    expect(seen.match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 103', 'HTTP/1.1 102', 'HTTP/1.1 200'])
    // HTTP/1.0 callers get none.
    expect(await raw(get('GET / HTTP/1.0', ours), /served/)).toMatch(/^HTTP\/1\.[01] 200 /)
  })

  test('E15 hints are together no longer than a head may be', async () => {
    await attach({ control: {} })
    const hinting: ExchangeHandler = (_preamble, _request, response) => {
      for (let i = 0; i < 4; i++) response.responseInformational(103, ['link', 'x'.repeat(7000)])
      answer(response, 200, 'served')
      return discarding(response)
    }
    await dial(server, { handler: hinting })
    expect((await raw(get('GET / HTTP/1.1', ours), /served/)).match(/103 Early Hints/g)).toHaveLength(2)
  })

  test.each([
    ['of known length', ['content-length: 5'], 'hello'],
    ['in chunks', ['transfer-encoding: chunked'], '5\r\nhello\r\n0\r\n\r\n'],
  ])('the body %s of a request that offers an upgrade stays its own', async (_name, fields, body) => {
    await attach({ control: {} })
    await dial(server, { handler: mirror })
    const offer = ['connection: upgrade', 'upgrade: h2c']
    const text = `${get('POST /a HTTP/1.1', ours, ...fields, ...offer)}${body}${get('GET /behind HTTP/1.1', ours)}`
    expect(await raw(text, /"body":"hello"/)).toContain('"path":"/a"')
  })

  test('a caller that waits for a 100 gets one', async () => {
    await attach({ control: {} })
    await dial(server, { handler: mirror })
    const head = get('POST / HTTP/1.1', ours, 'content-length: 2', 'expect: 100-continue')
    const seen = await raw(`${head}ab`, /"body":"ab"/)
    expect(seen.match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 100', 'HTTP/1.1 201'])
    expect(seen).not.toContain('expect')
  })
})
