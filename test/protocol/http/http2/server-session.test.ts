import { once } from 'node:events'
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2'
import { afterEach, describe, expect, test } from 'vitest'
import { LOOK_MS } from '../../../../protocol/base/deadline-watch.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { discarding } from '../../../../protocol/base/guard.ts'
import type { Handler, ResponseSink } from '../../../../protocol/exchange.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { listen } from '../../../../protocol/http/listener.ts'
import { unhurried } from '../../../support/busy.ts'
import { until } from '../../../support/until.ts'
import { ok, recorder } from '../http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

async function serve(handler: Handler, limits?: Partial<HttpLimits>) {
  const listener = await listen({ port: 0, handler, limits })
  const session = connect(`http://127.0.0.1:${listener.address.port}`)
  session.on('error', () => {})
  open.push(
    () => listener.close({ graceMs: 0 }),
    () => session.destroy(),
  )
  await once(session, 'remoteSettings')
  return { listener, session }
}

interface Answer {
  status: number
  headers: Record<string, unknown>
  raw: string[]
  body: string
  trailers: Record<string, unknown> | undefined
  informed: number[]
  rst: number
}

async function answer(stream: ClientHttp2Stream): Promise<Answer> {
  const result: Answer = { status: 0, headers: {}, raw: [], body: '', trailers: undefined, informed: [], rst: 0 }
  stream.on('response', (headers, _flags, raw) => {
    result.headers = headers
    result.raw = raw as unknown as string[]
    result.status = headers[':status'] ?? 0
  })
  stream.on('headers', headers => result.informed.push(Number(headers[':status'])))
  stream.on('trailers', headers => {
    result.trailers = headers
  })
  stream.on('data', chunk => {
    result.body += chunk.toString('latin1')
  })
  stream.on('error', () => {})
  await new Promise(resolve => stream.once('close', resolve))
  result.rst = stream.rstCode
  return result
}

function ask(session: ClientHttp2Session, headers: Record<string, string | string[]>, end = true): ClientHttp2Stream {
  const all = { ':path': '/', ':authority': 'a.example', ...headers }
  return session.request(all, { endStream: end })
}

describe('requests', () => {
  test('head, cookies joined, body, trailers', async () => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler)
    const stream = session.request(
      {
        ':method': 'FOO',
        ':path': '/a?b=%2e',
        ':authority': 'a.example',
        'x-a': ['1', '2'],
        cookie: ['a=1', 'b=2'],
        te: 'trailers',
      },
      { waitForTrailers: true },
    )
    stream.on('wantTrailers', () =>
      stream.sendTrailers({ 'x-sum': '9', host: 'evil', 'client-ip': '1', script_name: '/x' }),
    )
    stream.end('abc')
    await until(() => seen[0]?.trailers !== undefined)
    const [{ request, body, trailers }] = seen as [(typeof seen)[0]]
    expect(request).toMatchObject({
      method: 'FOO',
      path: '/a?b=%2e',
      authority: 'a.example',
      bodyBytes: -1,
      upgrade: false,
    })
    expect(request.headers).toEqual(['x-a', '1', 'x-a', '2', 'cookie', 'a=1; b=2', 'te', 'trailers'])
    expect([body, trailers]).toEqual(['abc', ['x-sum', '9']])
    ok(seen[0]!.response)
    expect(await answer(stream)).toMatchObject({ status: 200, body: 'ok', rst: 0 })
  })

  test('an answer with informational responses, duplicates and trailers', async () => {
    const { handler } = recorder(({ response }) => {
      response.responseInformational(100, [])
      response.responseInformational(103, ['link', '</a>'])
      const headers = ['set-cookie', 'a', 'x', '1', 'set-cookie', 'b', 'date', 'd', 'date', 'e', 'connection', 'x']
      response.responseHead({ status: 299, headers, bodyBytes: -1 })
      response.responseData(Buffer.from('one'))
      response.responseEnd([
        'client-ip',
        '1',
        'script-name',
        '/x',
        'grpc-status',
        '0',
        'content-length',
        '5',
        'x-real-ip',
        '2',
      ])
    })
    const { session } = await serve(handler)
    const result = await answer(ask(session, {}))
    expect(result).toMatchObject({ status: 299, body: 'one', informed: [103], trailers: { 'grpc-status': '0' } })
    expect(result.headers['set-cookie']).toEqual(['a', 'b'])
    expect(result.headers.connection).toBeUndefined()
    expect(result.trailers).toMatchObject({ 'client-ip': '1', 'script-name': '/x' })
    expect(Object.keys(result.trailers!)).toHaveLength(3)
  })

  test('E15 informational responses are together no longer than a head may be', async () => {
    const { handler } = recorder(({ response }) => {
      for (let i = 0; i < 4; i++) response.responseInformational(103, ['link', 'x'.repeat(400)])
      ok(response)
    })
    const { session } = await serve(handler, { headBytes: 1000 })
    expect((await answer(ask(session, {}))).informed).toEqual([103, 103])
  })

  test('long trailers of many answers reach a caller that takes them late', async () => {
    const count = 100
    const { handler } = recorder(({ response }) => waiting.push(response) === count && setImmediate(answerAll))
    const waiting: ResponseSink[] = []
    const answerAll = () => {
      for (const response of waiting) {
        response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
        response.responseData(Buffer.from('x'))
        response.responseEnd(['grpc-status', '13', 'grpc-status-details-bin', 'A'.repeat(8000)])
      }
    }
    const { session } = await serve(handler)
    const settle = async (initialWindowSize: number) => {
      session.settings({ initialWindowSize })
      await once(session, 'localSettings')
    }
    await settle(0)
    const all = Promise.all(Array.from({ length: count }, () => answer(ask(session, {}))))
    await until(() => waiting.length === count)
    await new Promise(resolve => setTimeout(resolve, 2 * LOOK_MS))
    await settle(65_535)
    const answers = await all
    expect(answers.filter(({ trailers }) => trailers === undefined)).toEqual([])
  })

  describe.each([
    ['of unknown length', -1],
    ['of known length', 3],
    ['without a body', 0],
  ] as const)("an answer's trailers %s", (_name, bodyBytes) => {
    test.each([
      ['te: trailers', { te: 'trailers' }, []],
      ['announced', {}, ['trailer', 'grpc-status']],
      ['both', { te: 'trailers' }, ['trailer', 'grpc-status']],
      ['neither', {}, []],
    ] as [string, Record<string, string>, string[]][])('%s', async (_how, asked, announced) => {
      const { handler } = recorder(({ response }) => {
        response.responseHead({ status: 200, headers: [...announced], bodyBytes })
        if (bodyBytes !== 0) response.responseData(Buffer.from('one'))
        response.responseEnd(['grpc-status', '0'])
      })
      const { session } = await serve(handler)
      const result = await answer(ask(session, asked))
      expect(result).toMatchObject({ status: 200, body: bodyBytes === 0 ? '' : 'one', rst: 0 })
      expect(result.trailers?.['grpc-status']).toBe('0')
      expect(result.headers['content-length']).toBe(bodyBytes === -1 ? undefined : String(bodyBytes))
    })
  })

  test.each([3, 0])(
    'a body that goes on beyond its length of %i is cut, though trailers may follow',
    async bodyBytes => {
      const { handler, seen } = recorder(({ response }) => {
        response.responseHead({ status: 200, headers: ['trailer', 'x'], bodyBytes })
        response.responseData(Buffer.from('four'))
      })
      const { session } = await serve(handler)
      expect((await answer(ask(session, {}))).rst).toBe(constants.NGHTTP2_INTERNAL_ERROR)
      await until(() => seen[0]?.aborted === 'upstream-broken')
    },
  )

  test('a gRPC answer with only a head ends with it', async () => {
    const { handler } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: ['grpc-status', '5'], bodyBytes: 0 })
      response.responseEnd([])
    })
    const { session } = await serve(handler)
    const stream = ask(session, { te: 'trailers' })
    const [, flags] = (await once(stream, 'response')) as [unknown, number]
    expect(flags & constants.NGHTTP2_FLAG_END_STREAM).toBe(constants.NGHTTP2_FLAG_END_STREAM)
  })

  test('HEAD, 204 and a known length', async () => {
    const { handler } = recorder(({ request, response }) => {
      const none = request.method === 'HEAD' || request.path === '/204'
      response.responseHead({
        status: request.path === '/204' ? 204 : 200,
        headers: ['content-length', '2'],
        bodyBytes: none ? 0 : 2,
      })
      if (!none) response.responseData(Buffer.from('hi'))
      response.responseEnd([])
    })
    const { session } = await serve(handler)
    expect(await answer(ask(session, { ':method': 'HEAD' }))).toMatchObject({
      headers: { 'content-length': '2' },
      body: '',
    })
    const empty = await answer(ask(session, { ':path': '/204' }))
    expect(empty.status).toBe(204)
    expect(empty.headers['content-length']).toBeUndefined()
    expect(await answer(ask(session, {}))).toMatchObject({ headers: { 'content-length': '2' }, body: 'hi' })
  })

  test('a cut response is a reset, never an end', async () => {
    const { handler, seen } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.from('half'))
    })
    const { session } = await serve(handler)
    const stream = ask(session, {})
    const result = answer(stream)
    await once(stream, 'data')
    seen[0]!.response.responseAbort(new SallyportError('upstream-broken'))
    expect((await result).rst).toBe(constants.NGHTTP2_INTERNAL_ERROR)
  })

  test('an answer whose body is whole ends when its upstream ends it', async () => {
    const responses: ResponseSink[] = []
    const { handler, seen } = recorder(({ response }) => responses.push(response))
    const { session } = await serve(handler)
    const answered = answer(ask(session, { ':method': 'GET' }))
    await until(() => responses.length === 1)
    responses[0]!.responseHead({ status: 200, headers: [], bodyBytes: 3 })
    responses[0]!.responseData(Buffer.from('abc'))
    await new Promise<void>(resolve => session.ping(() => resolve()))
    responses[0]!.responseEnd([])
    expect(await answered).toMatchObject({ body: 'abc', rst: 0 })
    expect(seen[0]!.aborted).toBeUndefined()
  })

  test('a body that differs from its announced length is a reset', async () => {
    const { handler, seen } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: 9 })
      response.responseData(Buffer.from('half'))
      response.responseEnd([])
    })
    const { session } = await serve(handler)
    expect((await answer(ask(session, {}))).rst).toBe(constants.NGHTTP2_INTERNAL_ERROR)
    expect(seen[0]!.aborted).toBe('upstream-broken')
  })

  test('a caller that leaves aborts its request', async () => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler)
    const stream = ask(session, {})
    stream.on('error', () => {})
    await until(() => seen.length === 1)
    stream.close(constants.NGHTTP2_CANCEL)
    await until(() => seen[0]!.aborted === 'cancelled')
    ask(session, {}).on('error', () => {})
    await until(() => seen.length === 2)
    session.destroy()
    await until(() => seen[1]!.aborted === 'cancelled')
  })

  test('E4: an early answer: the rest of the body is not wanted', async () => {
    const { handler, seen } = recorder(({ response }) => response.responseAbort(new SallyportError('body-too-large')))
    const { session } = await serve(handler)
    const stream = ask(session, { ':method': 'POST' }, false)
    stream.write(Buffer.alloc(1000))
    expect(await answer(stream)).toMatchObject({ status: 413, rst: 0 })
    expect(seen[0]!.aborted).toBe('cancelled')
  })

  test.each([32, 0])(
    'E8: a 100 goes out when the upstream asks, or after a while, even if it may say %d',
    async most => {
      const { handler, seen } = recorder(() => {})
      const { session } = await serve(handler, { expectMs: 20, informational: most })
      const stream = ask(session, { ':method': 'POST', expect: '100-continue' }, false)
      await once(stream, 'continue')
      stream.end('x')
      await until(() => seen[0]?.trailers !== undefined)
      expect(seen[0]!.request.headers).toContain('100-continue')
      ok(seen[0]!.response)
      await answer(stream)
    },
  )

  test('each of a burst of requests with large heads that are answered at once', async () => {
    const { session } = await serve((_request, response) => {
      ok(response)
      return discarding(response)
    })
    const large = { 'x-large': 'y'.repeat(14_000) }
    const answers = await Promise.all(Array.from({ length: 50 }, () => answer(ask(session, large))))
    expect(answers.map(({ status, rst }) => [status, rst])).toEqual(answers.map(() => [200, 0]))
  })

  test('back-pressure in both directions', async () => {
    let taken = 0
    let consumed = 0
    const { session } = await serve((_request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      for (let i = 0; i < 64; i++) response.responseData(Buffer.alloc(65536))
      return {
        requestData: chunk => (taken += chunk.length),
        requestEnd() {},
        requestAbort() {},
        responseConsumed: bytes => (consumed += bytes),
      }
    })
    const stream = ask(session, { ':method': 'POST' }, false)
    stream.write(Buffer.alloc(4 * 1024 * 1024))
    await once(stream, 'response')
    await until(() => taken > 65536 && consumed > 0)
    for (let turn = 0; turn < 100; turn++) await new Promise(resolve => setImmediate(resolve))
    expect(taken).toBeLessThan(400_000)
    expect(consumed).toBeLessThan(400_000)
    stream.destroy()
  })
})

test('a handler that gives credit before it uses a chunk gets the next one after it', async () => {
  const body = Buffer.from(Array.from({ length: 60_000 }, (_, at) => at % 251))
  const taken: Uint8Array[] = []
  const ended = Promise.withResolvers<void>()
  const { session } = await serve(
    (_request, response) => ({
      ...discarding(response),
      requestData: chunk => {
        // The first waits, so that the others are kept.
        const use = () => {
          response.requestConsumed(chunk.length)
          taken.push(chunk)
        }
        if (taken.length === 0) setTimeout(use, 50)
        else use()
      },
      requestEnd: () => ended.resolve(),
    }),
    { bufferBytes: 1 },
  )
  const stream = ask(session, { ':method': 'POST' }, false)
  stream.end(body)
  await ended.promise
  expect(Buffer.concat(taken)).toEqual(body)
  stream.destroy()
})

describe('extended CONNECT', () => {
  const webSocket = { ':method': 'CONNECT', ':protocol': 'websocket', 'sec-websocket-version': '13' }

  test('a WebSocket: raw in both directions after 200, with half-close', async () => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler)
    expect(session.remoteSettings.enableConnectProtocol).toBe(true)
    const stream = ask(session, { ...webSocket, ':scheme': 'http', 'sec-websocket-protocol': 'p' }, false)
    stream.write('early')
    await until(() => seen.length === 1)
    for (let turn = 0; turn < 20; turn++) await new Promise(resolve => setImmediate(resolve))
    expect(seen[0]).toMatchObject({ body: '', request: { method: 'GET', upgrade: true, bodyBytes: 0 } })
    expect(seen[0]!.request.headers).toEqual(['sec-websocket-protocol', 'p'])
    seen[0]!.response.responseHead({ status: 101, headers: ['sec-websocket-protocol', 'p'], bodyBytes: 0 })
    const result = answer(stream)
    await until(() => seen[0]!.body === 'early')
    stream.end('last')
    await until(() => seen[0]!.trailers !== undefined)
    seen[0]!.response.responseData(Buffer.from('down'))
    seen[0]!.response.responseEnd([])
    expect(await result).toMatchObject({ status: 200, body: 'down', rst: 0 })
    expect(seen[0]!.aborted).toBeUndefined()
  })

  test('a WebSocket whose upstream ends first gets all that its caller sent', async () => {
    let taken = 0
    let last: string | undefined
    let held = () => {}
    const { session } = await serve(
      (_request, response) => {
        response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
        held = () => response.requestConsumed(taken)
        return {
          requestData(chunk) {
            if (taken > 0) response.requestConsumed(chunk.length)
            else setTimeout(() => response.responseEnd([]), 50)
            taken += chunk.length
          },
          requestEnd: () => (last = 'end'),
          requestAbort: error => (last = error.reason),
          responseConsumed() {},
        }
      },
      { bufferBytes: 1 },
    )
    const stream = ask(session, { ...webSocket, ':scheme': 'http' }, false)
    stream.end(Buffer.alloc(60_000)).resume()
    await once(stream, 'end')
    held()
    await until(() => last !== undefined)
    expect([last, taken]).toEqual(['end', 60_000])
  })

  test('a WebSocket whose caller keeps its half open after the answer is cancelled once it is silent', async () => {
    const { handler, seen } = recorder(({ request, response }) => {
      if (!request.upgrade) return
      response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
      response.responseEnd([])
    })
    const { session } = await serve(handler, { stalledMs: 200 })
    const cancelled = answer(ask(session, { ...webSocket, ':scheme': 'http' }, false))
    const beside = ask(session, {}, false)
    await until(() => seen.length === 2)
    expect(await cancelled).toMatchObject({ status: 200, rst: constants.NGHTTP2_CANCEL })
    expect([seen[0]!.aborted, seen[0]!.trailers]).toEqual(['cancelled', undefined])
    // Another one in the session is not affected.
    expect(beside.closed).toBe(false)
  })

  test('an ordinary answer is handled as one', async () => {
    const { handler } = recorder(({ response }) => response.responseAbort(new SallyportError('no-route')))
    const { session } = await serve(handler)
    expect(await answer(ask(session, { ...webSocket, ':scheme': 'http' }, false))).toMatchObject({
      status: 404,
      rst: 0,
    })
  })

  test.each([
    ['another protocol', { ...webSocket, ':protocol': 'connect-udp' }],
    ['another version', { ...webSocket, 'sec-websocket-version': '8' }],
  ])('E6, E10: %s is refused', async (_name, headers) => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler)
    const result = await answer(ask(session, { ...headers, ':scheme': 'http' }, false))
    expect([result.status, seen.length]).toEqual([405, 0])
  })
})

describe('answers that cannot be sent', () => {
  const head = (status: number) => (response: ResponseSink) =>
    response.responseHead({ status, headers: [], bodyBytes: 0 })
  test.each([
    ['E7: a 101 to a request that asked for no upgrade', head(101), '101 to a request that asked for no upgrade'],
    ['199', head(199), 'status 199'],
    ['600', head(600), 'status 600'],
    [
      'hints with CRLF',
      (response: ResponseSink) => response.responseInformational(103, ['x', 'a\r\nb: c']),
      'field cannot be sent',
    ],
  ])('%s: 502, and the upstream is told why', async (_what, answerWith, why) => {
    const { handler, seen } = recorder(({ response }) => answerWith(response))
    const { session } = await serve(handler)
    const result = await answer(ask(session, {}))
    expect([result.status, result.informed]).toEqual([502, []])
    expect(seen[0]!.why).toContain(why)
  })
})

describe('H4: what must not be forwarded', () => {
  test.each([
    ['TRACE', { ':method': 'TRACE' }, 405],
    ['a fragment', { ':path': '/#x' }, 400],
    ['two authorities', { host: 'b.example' }, 400],
    ['a URI over 8 KiB', { ':path': `/${'a'.repeat(8192)}` }, 414],
    ['over 16 KiB of head', { x: 'y'.repeat(17_000) }, 431],
    ['over 16 KiB of cookies', { cookie: Array.from({ length: 50 }, () => `a=${'b'.repeat(400)}`) }, 431],
    ['over 100 fields', { x: Array.from({ length: 110 }, () => 'y') }, 431],
  ])('H3, H4: %s', async (_name, headers, status) => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler)
    const result = await answer(ask(session, headers as Record<string, string>))
    expect([result.status, seen.length]).toEqual([status, 0])
    expect(result.headers['content-type']).toBe('application/problem+json')
  })

  test.each([
    ['a path without a slash', { ':path': 'x' }],
    ['user info', { ':authority': 'u@h' }],
    ['transfer-encoding', { 'Transfer-Encoding': 'chunked' }],
    ['a name in upper case or with a space', { 'a b': 'x' }],
  ])('H4: %s never reaches a handler', async (_name, headers) => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler)
    const stream = () => answer(ask(session, headers as unknown as Record<string, string>))
    const status = await Promise.resolve()
      .then(stream)
      .then(
        ({ status }) => status,
        () => 0,
      )
    expect([0, 400]).toContain(status)
    expect(seen.length).toBe(0)
  })

  test('a body longer or shorter than content-length is never complete', async () => {
    for (const body of ['abc', 'abcdefgh']) {
      const { handler, seen } = recorder(() => {})
      const { session } = await serve(handler)
      const stream = ask(session, { ':method': 'POST', 'content-length': '5' }, false)
      stream.end(body)
      const result = await answer(stream)
      expect(result.status === 400 || result.rst !== 0).toBe(true)
      await until(() => seen[0] === undefined || seen[0].aborted !== undefined)
      expect(seen[0]?.trailers).toBeUndefined()
    }
  })

  test('a body although content-length is 0: nothing comes behind the abort', async () => {
    const calls: string[] = []
    const { session } = await serve(() => ({
      requestData: () => calls.push('data'),
      requestEnd: () => calls.push('end'),
      requestAbort: ({ reason }) => calls.push(reason),
      responseConsumed: () => {},
    }))
    const stream = ask(session, { ':method': 'POST', 'content-length': '0' }, false)
    stream.end('x')
    expect((await answer(stream)).rst).toBe(constants.NGHTTP2_PROTOCOL_ERROR)
    expect(calls).toEqual(['end', 'bad-request'])
  })

  test('H5: 100 streams are announced and enforced', async () => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler)
    expect(session.remoteSettings).toMatchObject({ maxConcurrentStreams: 100, initialWindowSize: 65536 })
    for (let i = 0; i < 101; i++) ask(session, {}).on('error', () => {})
    await until(() => seen.length === 100)
    ok(seen[0]!.response)
    await until(() => seen.length === 101)
  })
})

describe('ends', () => {
  test('a graceful close: GOAWAY asks the caller to leave, then says what is in progress, and that ends', async () => {
    const { handler, seen } = recorder(() => {})
    const { session, listener } = await serve(handler)
    const result = answer(ask(session, {}))
    await until(() => seen.length === 1)
    const said: number[][] = []
    session.on('goaway', (code, last) => said.push([code, last]))
    const closed = listener.close({ graceMs: 10_000 })
    await until(() => said.length === 2)
    expect(said).toEqual([
      [0, 2 ** 31 - 1],
      [0, 1],
    ])
    ok(seen[0]!.response)
    expect(await result).toMatchObject({ status: 200, body: 'ok' })
    await closed
  })

  test('a graceful close: a caller that has just connected sends its request, and hears of the close with the answer', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const { listener, session } = await serve(handler)
    const closed = listener.close({ graceMs: 10_000 })
    // The answer to a ping comes after everything that the close has sent.
    await new Promise(resolve => session.ping(resolve))
    expect(session.closed).toBe(false)
    const said: number[][] = []
    session.on('goaway', (code, last) => said.push([code, last]))
    expect(await answer(ask(session, {}))).toMatchObject({ status: 200, body: 'ok' })
    await closed
    expect(said[0]).toEqual([0, 2 ** 31 - 1])
  })

  test('an idle session is closed; one with a quiet stream is pinged instead', async () => {
    const { handler, seen } = recorder(({ request, response }) => request.path === '/used' && ok(response))
    const { session, listener } = await serve(handler, { keepAliveMs: unhurried(400), http2PingMs: 20 })
    await answer(ask(session, { ':path': '/used' }))
    const quiet = connect(`http://127.0.0.1:${listener.address.port}`)
    open.push(() => quiet.destroy())
    const result = answer(quiet.request({ ':path': '/', ':authority': 'a' }))
    const pinged = once(quiet, 'ping')
    const said: number[] = []
    session.on('goaway', (_code, last) => said.push(last))
    await once(session, 'close')
    // A request may be on its way.
    expect(said[0]).toBe(2 ** 31 - 1)
    await pinged
    ok(seen[1]!.response)
    expect((await result).status).toBe(200)
  })

  test('a body that stops: 408', async () => {
    const { handler, seen } = recorder(() => {})
    const { session } = await serve(handler, { bodyIdleMs: 30 })
    const stream = ask(session, { ':method': 'POST' }, false)
    stream.write('x')
    expect((await answer(stream)).status).toBe(408)
    expect(seen[0]!.aborted).toBe('request-timeout')
  })

  test('a request that announced no body and does not end behind its answer is over', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const { session } = await serve(handler, { drainMs: 30 })
    const result = answer(ask(session, { ':method': 'POST', 'content-length': '0' }, false))
    expect(await result).toMatchObject({ status: 200, body: 'ok', rst: 0 })
  })

  // In gRPC, both directions stream at once, and a caller may only listen.
  test('a body that stops behind the begin of its answer is waited for', async () => {
    const { handler, seen } = recorder(({ request, response }) => {
      if (request.path === '/both') response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    })
    const { session } = await serve(handler, { bodyIdleMs: 30 })
    const both = ask(session, { ':method': 'POST', ':path': '/both' }, false)
    const result = answer(both)
    both.write('x')
    await until(() => seen[0]?.body === 'x')
    const later = ask(session, { ':method': 'POST' }, false)
    expect((await answer(later)).status).toBe(408)
    expect(seen[0]!.aborted).toBeUndefined()
    seen[0]!.response.responseData(Buffer.from('still'))
    both.end('y')
    await until(() => seen[0]!.trailers !== undefined)
    seen[0]!.response.responseEnd([])
    expect(await result).toMatchObject({ status: 200, body: 'still', rst: 0 })
    expect(seen[0]!.body).toBe('xy')
  })
})
