import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { LOOK_MS } from '../../../../protocol/base/deadline-watch.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { BODY_UNKNOWN, type Handler, type ResponseSink } from '../../../../protocol/exchange.ts'
import { HeadParser } from '../../../../protocol/http/http1/head-parser.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { type Listener, listen } from '../../../../protocol/http/listener.ts'
import { unhurried } from '../../../support/busy.ts'
import { until } from '../../../support/until.ts'
import { call, ok, type RawPeer, recorder, type Seen } from './raw.ts'

const open: Listener[] = []
afterEach(async () => {
  for (const listener of open.splice(0)) await listener.close({ graceMs: 0 })
})

async function serve(handler: Handler, limits?: Partial<HttpLimits>) {
  const listener = await listen({ port: 0, handler, limits })
  open.push(listener)
  return { listener, caller: await call(listener.address.port, { allowHalfOpen: true }) }
}

const get = (path = '/', more = '') => `GET ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`

/** Resolves when `done` holds, checked after each turn of the event loop. */
describe('requests', () => {
  test('a head is the same at every split point', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const { caller } = await serve(handler)
    const text = `POST /x?y HTTP/1.1\r\nHost: a\r\nX-Y: z z\r\nContent-Length: 3\r\n\r\nabc`
    for (let at = 1; at < text.length; at++) {
      caller.send(text.slice(0, at))
      await new Promise(resolve => setImmediate(resolve))
      caller.send(text.slice(at))
      await caller.saying('HTTP/1.1 200', at)
      await until(() => seen.length === at)
    }
    expect(new Set(seen.map(({ request }) => `${request.method} ${request.path} ${request.headers}`)).size).toBe(1)
  })

  const chunked = 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n'
  test.each([
    ['a head', '', `GET / HTTP/1.1\r\nHost: a\r\nA: ${'b,'.repeat(100)}\r\nC: d\r\n\r\n`, 5],
    ['trailers', chunked, `A: ${'b,'.repeat(100)}\r\nC: d\r\n\r\n`, 4],
  ])('when %s arrives byte by byte, each line is examined once', async (_what, before, text, lines) => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(before)
    if (before !== '') await until(() => seen.length === 1)
    const looks = vi.spyOn(HeadParser.prototype, 'fields')
    onTestFinished(() => looks.mockRestore())
    for (const byte of text) {
      caller.send(byte)
      await new Promise(resolve => setImmediate(resolve))
    }
    await until(() => seen[0]?.trailers !== undefined)
    expect(looks.mock.calls.length).toBeLessThanOrEqual(lines)
  })

  test('if idle connections have no deadline, none is set after each request', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const { caller } = await serve(handler, { keepAliveMs: 0 })
    const timers = vi.spyOn(globalThis, 'setTimeout')
    onTestFinished(() => timers.mockRestore())
    for (let n = 1; n <= 20; n++) {
      caller.send(get())
      await caller.saying('HTTP/1.1 200', n)
      // A timer of 1 ms would fire meanwhile, and the next request would need another.
      const at = performance.now()
      await until(() => performance.now() - at > 5)
    }
    expect(seen).toHaveLength(20)
    expect(timers.mock.calls.length).toBeLessThan(5)
  })

  test('pipelined requests are answered in order, one at a time', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(get('/one') + get('/two') + get('/six'))
    for (const n of [1, 2, 3]) {
      await until(() => seen.length >= n)
      expect(seen.length).toBe(n)
      ok(seen[n - 1]!.response, seen[n - 1]!.request.path)
    }
    const text = await caller.saying('HTTP/1.1 200', 3)
    expect(text.match(/\/(one|two|six)/g)).toEqual(['/one', '/two', '/six'])
  })

  test('a pipeline that is answered at once lets others have their turn', async () => {
    const perTurn: number[] = []
    const { handler, seen } = recorder(({ response }) => {
      if (begun++ === 0) setImmediate(endTurn)
      ok(response)
    })
    let begun = 0
    const endTurn = () => {
      perTurn.push(begun)
      begun = 0
    }
    const { caller } = await serve(handler)
    const paths = Array.from({ length: 1000 }, (_, n) => `/${n}`)
    caller.send(paths.map(path => get(path)).join(''))
    await until(() => perTurn.reduce((sum, count) => sum + count, 0) === paths.length)
    expect(seen.map(({ request }) => request.path)).toEqual(paths)
    expect(Math.max(...perTurn)).toBe(16)
    caller.socket.end()
    await until(() => caller.closed)
    expect(caller.text.match(/HTTP\/1\.1 200 /g)).toHaveLength(paths.length)
  })

  test('a pipelined flood is read no further than the buffer', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(get().repeat(1_000_000))
    await until(() => seen.length === 1)
    // The kernel accepts some megabytes, then the caller's own writes wait.
    await until(() => caller.socket.writableLength > 0)
    expect(seen.length).toBe(1)
    ok(seen[0]!.response)
    await until(() => seen.length === 2)
  })

  test('chunked body with trailers, and a chunked answer with trailers', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(get('/').replace('GET', 'FOO').replace('\r\n\r\n', '\r\nTransfer-Encoding: chunked\r\n\r\n'))
    caller.send('3\r\nabc\r\n0\r\nX-Sum: 1\r\nClient-IP: 2\r\nScript_Name: /x\r\n\r\n')
    await until(() => seen[0]?.trailers !== undefined)
    expect(seen[0]).toMatchObject({ body: 'abc', trailers: ['x-sum', '1'] })
    const { response } = seen[0]!
    response.responseHead({ status: 299, headers: ['x', '1', 'set-cookie', 'a', 'x', '2'], bodyBytes: -1 })
    response.responseData(Buffer.from('one'))
    await caller.saying('3\r\none\r\n')
    response.responseData(Buffer.from('two'))
    response.responseEnd(['client-ip', '1', 'x-real-ip', '2', 'x-original-path', '/x', 'x-end', 'y'])
    const text = await caller.saying('x-end: y\r\n\r\n')
    expect(text).toMatch(
      /^HTTP\/1.1 299 \r\nx: 1\r\nset-cookie: a\r\nx: 2\r\ntransfer-encoding: chunked\r\ndate: [^\r]+\r\n\r\n/,
    )
    expect(text).toContain('3\r\ntwo\r\n0\r\nclient-ip: 1\r\nx-original-path: /x\r\nx-end: y\r\n\r\n')
  })

  test('back-pressure: no more is read than the handler consumes', async () => {
    let taken = 0
    const consume: ((bytes: number) => void)[] = []
    const { caller } = await serve((_request, response) => {
      consume.push(bytes => response.requestConsumed(bytes))
      return {
        requestData: chunk => (taken += chunk.length),
        requestEnd: () => ok(response),
        requestAbort() {},
        responseConsumed() {},
      }
    })
    const size = 64 * 1024 * 1024
    caller.send(`PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`)
    caller.send(Buffer.alloc(size))
    await until(() => taken > 64 * 1024)
    const held = taken
    for (let turn = 0; turn < 100; turn++) await new Promise(resolve => setImmediate(resolve))
    expect(taken).toBe(held)
    expect(taken).toBeLessThan(256 * 1024)
    let given = 0
    while (taken < size) {
      consume[0]!(taken - given)
      given = taken
      await new Promise(resolve => setImmediate(resolve))
    }
    await caller.saying('HTTP/1.1 200')
  })

  test('consumed reports each response byte once it has left', async () => {
    let consumed = 0
    const { caller } = await serve((_request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      for (let i = 0; i < 100; i++) response.responseData(Buffer.alloc(100_000))
      response.responseEnd([])
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed: bytes => (consumed += bytes) }
    })
    caller.socket.pause()
    caller.send(get())
    await until(() => consumed > 0)
    for (let turn = 0; turn < 50; turn++) await new Promise(resolve => setImmediate(resolve))
    expect(consumed).toBeLessThan(10_000_000)
    caller.socket.resume()
    await until(() => consumed === 10_000_000)
  })
})

describe('answers', () => {
  test('E13: HEAD, 204 and 304 have no body, whatever arrives', async () => {
    let status = 200
    const { caller } = await serve((_request, response) => {
      response.responseHead({ status, headers: ['content-length', '5'], bodyBytes: 0 })
      response.responseData(Buffer.from('stray'))
      response.responseEnd([])
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    caller.send(get().replace('GET', 'HEAD'))
    await caller.saying('\r\n\r\n', 1)
    status = 204
    caller.send(get())
    await caller.saying('\r\n\r\n', 2)
    status = 304
    caller.send(get())
    const text = await caller.saying('\r\n\r\n', 3)
    expect(text).not.toContain('stray')
    expect(text.match(/content-length: 5/g)).toHaveLength(2)
    expect(text).toMatch(/204 No Content\r\ndate/)
  })

  test('E15 informational responses are together no longer than a head may be', async () => {
    const { handler } = recorder(({ response }) => {
      for (let i = 0; i < 4; i++) response.responseInformational(103, ['link', 'x'.repeat(400)])
      ok(response)
    })
    const { caller } = await serve(handler, { headBytes: 1000 })
    caller.send(get())
    expect((await caller.saying('ok')).match(/103 Early Hints/g)).toHaveLength(2)
  })

  test('informational responses go before the head, and 100 only if it is awaited', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(get())
    await until(() => seen.length === 1)
    seen[0]!.response.responseInformational(100, [])
    seen[0]!.response.responseInformational(103, ['link', '</a>'])
    await caller.saying('\r\n\r\n')
    ok(seen[0]!.response)
    const text = await caller.saying('ok')
    expect(text).toMatch(/^HTTP\/1.1 103 Early Hints\r\nlink: <\/a>\r\n\r\nHTTP\/1.1 200/)
  })

  test('HTTP/1.0: no chunks; a body of unknown length ends with the connection', async () => {
    const { handler } = recorder(({ response }) => {
      response.responseInformational(103, [])
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.from('old'))
      response.responseEnd(['t', '1'])
    })
    const { caller } = await serve(handler)
    caller.send('GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n')
    const text = await caller.end()
    expect(text).toMatch(/^HTTP\/1.1 200 OK\r\n.*connection: close\r\n\r\nold$/s)
  })

  test('a cut response is never ended: chunked, of known length, until close', async () => {
    for (const [version, bodyBytes] of [
      ['1.1', -1],
      ['1.1', 10],
      ['1.0', -1],
    ] as const) {
      const { handler, seen } = recorder(({ response }) => {
        response.responseHead({ status: 200, headers: [], bodyBytes })
        response.responseData(Buffer.from('half'))
      })
      const { caller } = await serve(handler)
      caller.send(get().replace('1.1', version))
      await caller.saying('half')
      seen[0]!.response.responseAbort(new SallyportError('upstream-broken'))
      const text = await caller.end()
      expect(text).not.toContain('0\r\n\r\n')
      if (version === '1.0') expect(caller.error).toBe('ECONNRESET')
    }
  })

  test('an upstream end that ends its answer while its broken request is aborted ends the connection', async () => {
    let isAborted = false
    const { caller } = await serve((_request, response) => ({
      requestData: ({ length }) => {
        response.requestConsumed(length)
        response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
      },
      requestEnd() {},
      requestAbort() {
        isAborted = true
        response.responseEnd([])
      },
      responseConsumed() {},
    }))
    caller.send('POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n')
    await caller.saying('200 OK')
    caller.send('no chunk\r\n')
    // In a read of its own.
    await until(() => isAborted)
    caller.send(get())
    expect(await caller.end()).toMatch(/^HTTP\/1.1 200 OK\r\n.*\r\n\r\n$/s)
  })

  test.each<[string, Partial<HttpLimits>, (caller: RawPeer, listener: Listener) => unknown]>([
    ['the grace of its listener is over', {}, (_, listener) => listener.close({ graceMs: 50 })],
    ['its caller half-closed, and it sends nothing', { halfCloseMs: 50 }, caller => caller.socket.end()],
  ])('HTTP/1.0: a body that ends with the connection does not look complete if %s', async (_why, limits, end) => {
    const { handler } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.from('half'))
    })
    const { caller, listener } = await serve(handler, limits)
    caller.send('GET / HTTP/1.0\r\n\r\n')
    await caller.saying('half')
    await end(caller, listener)
    await caller.end()
    expect(caller).toMatchObject({ ended: false, error: 'ECONNRESET' })
  })

  test('HTTP/1.0: nor if it has ended, and its caller has not read it, when the grace is over', async () => {
    const { handler, seen } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.alloc(32 * 1024 * 1024))
      response.responseEnd([])
    })
    const { caller, listener } = await serve(handler)
    caller.socket.pause()
    caller.send('GET / HTTP/1.0\r\n\r\n')
    await until(() => seen.length === 1)
    await listener.close({ graceMs: 50 })
    caller.socket.resume()
    await caller.end()
    expect(caller).toMatchObject({ ended: false, error: 'ECONNRESET' })
  })

  test.each([
    ['longer', 'four'],
    ['shorter', 'tw'],
  ])('a body that is %s than announced is cut, and the upstream is told', async (how, body) => {
    const { handler, seen } = recorder(({ response }) =>
      response.responseHead({ status: 200, headers: [], bodyBytes: 3 }),
    )
    const { caller } = await serve(handler)
    caller.send(get())
    await until(() => seen.length === 1)
    seen[0]!.response.responseData(Buffer.from(body))
    seen[0]!.response.responseEnd([])
    await caller.end()
    expect(seen[0]).toMatchObject({ aborted: 'upstream-broken', why: `body ${how} than announced` })
  })

  test.each([
    [199, (response: ResponseSink) => response.responseHead({ status: 199, headers: [], bodyBytes: 0 }), 'status 199'],
    [600, (response: ResponseSink) => response.responseHead({ status: 600, headers: [], bodyBytes: 0 }), 'status 600'],
    [
      'no number',
      (response: ResponseSink) => response.responseHead({ status: Number.NaN, headers: [], bodyBytes: 0 }),
      'status NaN',
    ],
    ['nothing, and ended', (response: ResponseSink) => response.responseEnd([]), 'no head'],
    ['no head, but a body', (response: ResponseSink) => response.responseData(Buffer.from('x')), 'body before head'],
    [
      'hints with CRLF',
      (response: ResponseSink) => response.responseInformational(103, ['x', 'a\r\nb: c']),
      'field cannot be sent',
    ],
  ])('an answer of %s is an error, and the upstream is told why', async (_what, answer, why) => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(get())
    await until(() => seen.length === 1)
    answer(seen[0]!.response)
    expect(await caller.saying('}')).toMatch(/^HTTP\/1.1 50[02] /)
    expect(caller.text).not.toContain('b: c')
    expect(seen[0]!.why).toContain(why)
  })

  test.each([
    ['a value with CRLF', ['x', 'a\r\nb: c']],
    ['a name with a space', ['a b', 'c']],
    ['a value beyond latin1', ['x', '\u0142']],
  ])('E14: %s never goes out', async (_name, headers) => {
    const { handler } = recorder(({ response }) => response.responseHead({ status: 200, headers, bodyBytes: 0 }))
    const { caller } = await serve(handler)
    caller.send(get())
    const text = await caller.saying('}')
    expect(text).toMatch(/^HTTP\/1.1 502/)
    expect(text).not.toContain('b: c')
  })

  test('a handler that throws costs only its own exchange', async () => {
    const { caller } = await serve(() => {
      throw new Error('secret')
    })
    caller.send(get())
    const text = await caller.saying('}')
    expect(text).toMatch(/^HTTP\/1.1 500/)
    expect(text).not.toContain('secret')
    caller.send(get())
    await caller.saying('HTTP/1.1 500', 2)
  })

  test("a handler's connection fields do not pass", async () => {
    const headers = ['connection', 'x', 'transfer-encoding', 'gzip', 'upgrade', 'y', 'keep-alive', 'z', 'host', 'q']
    const { handler } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [...headers, 'vary', 'date'], bodyBytes: 0 })
      response.responseEnd([])
    })
    const { caller } = await serve(handler)
    caller.send(get())
    const text = await caller.saying('\r\n\r\n')
    expect(text).toMatch(/^HTTP\/1.1 200 OK\r\nvary: date\r\ncontent-length: 0\r\ndate: [^\r]*\r\n\r\n$/)
  })
})

/** Its message never ends, as a hostile client or an upstream over HTTP/2 can do it. Behind a proxy, the next request is anybody's. */
describe('B3: a complete answer that its upstream does not end', () => {
  const complete: Record<string, (seen: Seen) => void> = {
    'of known length': ({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
      response.responseData(Buffer.from('ok'))
    },
    'of no length': ({ response }) => response.responseHead({ status: 200, headers: [], bodyBytes: 0 }),
    'to HEAD': ({ response }) => response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN }),
    204: ({ response }) => response.responseHead({ status: 204, headers: [], bodyBytes: BODY_UNKNOWN }),
    304: ({ response }) => response.responseHead({ status: 304, headers: [], bodyBytes: BODY_UNKNOWN }),
  }
  const cases = Object.keys(complete).flatMap(what => [false, true].map(pipelined => [what, pipelined] as const))

  test.each(cases)('%s: the next request is served; pipelined: %s', async (what, pipelined) => {
    const { handler, seen } = recorder(one => (one.request.path === '/next' ? ok(one.response) : complete[what]!(one)))
    const { caller } = await serve(handler)
    const first = what === 'to HEAD' ? get().replace('GET', 'HEAD') : get()
    if (pipelined) caller.send(first + get('/next'))
    else {
      caller.send(first)
      await caller.saying('HTTP/1.1 ')
      caller.send(get('/next'))
    }
    await caller.saying('HTTP/1.1 ', 2)
    expect(seen.map(({ aborted }) => aborted)).toEqual([undefined, undefined])
    caller.socket.destroy()
    await until(() => seen[0]!.aborted === 'cancelled')
  })

  test('the oldest end if there are too many', async () => {
    const { handler, seen } = recorder(one => complete['of known length']!(one))
    const { caller } = await serve(handler)
    for (let n = 1; n <= 18; n++) {
      caller.send(get())
      await caller.saying('HTTP/1.1 200', n)
    }
    expect(seen.map(({ aborted }) => aborted)).toEqual(['cancelled', ...Array.from({ length: 17 }, () => undefined)])
  })

  test('nor does it wait for a body that the upstream does not take', async () => {
    const { handler, seen } = recorder(one => complete['of known length']!(one))
    const { caller } = await serve(
      (request, response) => {
        const sink = handler(request, response)
        const nothing = setInterval(() => response.responseData(Buffer.alloc(0)), 10)
        onTestFinished(() => clearInterval(nothing))
        return { ...sink, requestData() {} }
      },
      { drainMs: 50 },
    )
    caller.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n${'x'.repeat(1_000_000)}${get()}`)
    await caller.saying('HTTP/1.1 200', 2)
    expect(seen.map(({ aborted }) => aborted)).toEqual(['cancelled', undefined])
  })

  test.each([1, 2])('nor for the end of one that has been read, if the answer comes with piece %i', async piece => {
    const { handler, seen } = recorder(one => one.request.path === '/next' && ok(one.response))
    let pieces = 0
    const { caller } = await serve((request, response) => {
      const requestData = () => ++pieces === piece && complete['of known length']!(seen[0]!)
      return { ...handler(request, response), requestData }
    })
    caller.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n${'x'.repeat(60_000)}`)
    await until(() => pieces > 0)
    caller.send('x'.repeat(40_000))
    await until(() => seen[0]!.trailers !== undefined)
    caller.send(get('/next'))
    await caller.saying('HTTP/1.1 200', 2)
    expect(seen[0]!.aborted).toBeUndefined()
  })

  test('a body that the upstream takes is not cut', async () => {
    const { handler, seen } = recorder(one => complete['of known length']!(one))
    const { caller } = await serve(handler, { drainMs: 50 })
    caller.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n')
    await caller.saying('ok')
    for (let sent = 0; sent < 200_000; sent += 20_000) {
      caller.send('x'.repeat(20_000))
      await new Promise(resolve => setTimeout(resolve, 15))
    }
    await until(() => seen[0]!.trailers !== undefined || seen[0]!.aborted !== undefined)
    expect(seen[0]!.body.length).toBe(200_000)
  })

  test('nor is one that the upstream takes slowly', async () => {
    const { handler, seen } = recorder(one => complete['of known length']!(one))
    const { caller } = await serve(
      (request, response) => {
        const sink = handler(request, response)
        const chunks: Uint8Array[] = []
        const takes = setInterval(() => chunks.splice(0, 1).forEach(sink.requestData), 20)
        onTestFinished(() => clearInterval(takes))
        return { ...sink, requestData: chunk => chunks.push(chunk) }
      },
      { drainMs: 200 },
    )
    caller.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n${'x'.repeat(3_000_000)}`)
    await until(() => seen[0]?.aborted !== undefined || seen[0]?.body.length === 3_000_000)
    expect(seen[0]!.aborted).toBeUndefined()
  })

  test('it may end later, and is then over', async () => {
    const { handler, seen } = recorder(one => complete['of known length']!(one))
    const { caller } = await serve(handler)
    caller.send(get())
    await caller.saying('HTTP/1.1 200')
    caller.send(get())
    await caller.saying('HTTP/1.1 200', 2)
    seen[0]!.response.responseEnd([])
    caller.socket.resetAndDestroy()
    await until(() => seen[1]!.aborted === 'cancelled')
    expect(seen[0]!.aborted).toBeUndefined()
  })
})

describe('E4: an answer before the end of the request', () => {
  test('a short rest is drained, and the next request is read', async () => {
    const { handler, seen } = recorder(({ response, request }) => ok(response, request.path))
    const { caller } = await serve(handler)
    caller.send('POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n')
    await caller.saying('/1')
    caller.send(`${get('/smuggled').padEnd(40, 'x')}${get('/2')}`)
    await caller.saying('/2')
    expect(seen.map(({ request }) => request.path)).toEqual(['/1', '/2'])
    expect(seen[0]).toMatchObject({ body: '', aborted: 'cancelled' })
  })

  test.each(['Transfer-Encoding: chunked', 'Content-Length: 1000000'])(
    'a long rest is drained as well, since its answer did not say that the connection ends: %s',
    async framing => {
      const { handler } = recorder(({ response, request }) => ok(response, request.path))
      const { caller } = await serve(handler)
      caller.send(`POST /1 HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n`)
      expect(await caller.saying('/1')).not.toContain('connection: close')
      const rest = 'x'.repeat(1_000_000)
      caller.send(framing.startsWith('C') ? rest : `f4240\r\n${rest}\r\n0\r\n\r\n`)
      caller.send(get('/2'))
      expect(await Promise.race([caller.saying('/2'), caller.end()])).toContain('/2')
    },
  )

  test('after drainMs our half is closed, and we read on so that the sender finds the answer', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const { caller } = await serve(handler, { drainMs: 100 })
    caller.send('POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n')
    await caller.saying('ok')
    const more = async () => {
      caller.send(`10000\r\n${'x'.repeat(65536)}\r\n`)
      await new Promise(resolve => setImmediate(resolve))
    }
    while (!caller.ended) await more()
    for (let i = 0; i < 100; i++) await more()
    caller.socket.end()
    await caller.close()
    expect(caller.error).toBeUndefined()
    expect(caller.text.split('HTTP/1.1').length).toBe(2)
  })

  test.each([
    ['goes on sending', { lingerMs: 200, drainMs: 60_000 }],
    ['neither sends nor closes', { drainMs: 100 }],
  ])('a caller that %s after it is not waited for', async (what, limits) => {
    const { handler } = recorder(({ response }) => response.responseAbort(new SallyportError('body-too-large')))
    const { caller, listener } = await serve(handler, limits)
    caller.send('POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n')
    const drip = what === 'goes on sending' ? setInterval(() => caller.send('x'), 10) : undefined
    await caller.end()
    await until(() => listener.connections === 0)
    clearInterval(drip)
    expect(caller.text).toMatch(/^HTTP\/1.1 413.*connection: close/s)
  })

  test('an error to a long body announces close at once', async () => {
    const { handler } = recorder(({ response }) => response.responseAbort(new SallyportError('body-too-large')))
    const { caller } = await serve(handler)
    caller.send('POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n')
    expect(await caller.saying('}')).toMatch(/^HTTP\/1.1 413.*connection: close/s)
  })
})

describe('E8: expectations', () => {
  const post = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n'

  test("the upstream's 100 requests the body", async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(post)
    await until(() => seen.length === 1)
    seen[0]!.response.responseInformational(100, [])
    expect(await caller.saying('\r\n\r\n')).toBe('HTTP/1.1 100 Continue\r\n\r\n')
    caller.send('hi')
    await until(() => seen[0]!.trailers !== undefined)
    ok(seen[0]!.response)
    expect(await caller.saying('ok')).not.toContain('close')
  })

  test.each([32, 0])(
    'if the upstream says nothing, a 100 is sent for it, even if it may say %d',
    async informational => {
      const { handler } = recorder(() => {})
      const { caller } = await serve(handler, { expectMs: 20, informational })
      caller.send(post)
      expect(await caller.saying('\r\n\r\n')).toBe('HTTP/1.1 100 Continue\r\n\r\n')
    },
  )

  test('after a final answer the body is not requested, and the connection closes', async () => {
    const { handler } = recorder(({ response }) => response.responseAbort(new SallyportError('caller-not-allowed')))
    const { caller } = await serve(handler)
    caller.send(post)
    const text = await caller.end()
    expect(text).toMatch(/^HTTP\/1.1 403.*connection: close/s)
    expect(text).not.toContain('HTTP/1.1 100')
  })
})

describe('upgrade', () => {
  const key = 'dGhlIHNhbXBsZSBub25jZQ=='
  const handshake = get(
    '/',
    `Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n`,
  )

  test('E5: early bytes wait for the 101; then raw in both directions, with half-close', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(`${handshake}early`)
    await until(() => seen.length === 1)
    caller.send(' bird')
    for (let turn = 0; turn < 20; turn++) await new Promise(resolve => setImmediate(resolve))
    expect(seen[0]).toMatchObject({ body: '', trailers: undefined, request: { upgrade: true, method: 'GET' } })
    const { response } = seen[0]!
    response.responseHead({ status: 101, headers: ['sec-websocket-protocol', 'p'], bodyBytes: 0 })
    const text = await caller.saying('\r\n\r\n')
    const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
    expect(text).toContain(`sec-websocket-accept: ${accept}\r\n`)
    expect(text).toContain('sec-websocket-protocol: p\r\n')
    await until(() => seen[0]!.body === 'early bird')
    caller.socket.end('last')
    await until(() => seen[0]!.trailers !== undefined)
    expect(seen[0]!.body).toBe('early birdlast')
    response.responseData(Buffer.from('still here'))
    response.responseEnd([])
    expect(await caller.close()).toContain('still here')
    expect(seen[0]!.aborted).toBeUndefined()
  })

  test('E5: on any other answer they are discarded, and the connection closes', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const { caller } = await serve(handler)
    caller.send(handshake + get('/smuggled'))
    const text = await caller.end()
    expect(text).toMatch(/^HTTP\/1.1 200 OK.*connection: close/s)
    expect(text.split('HTTP/1.1').length).toBe(2)
    expect(seen.length).toBe(1)
  })

  test('what its caller sent before its end is passed on, however late it is taken, also if the handler has ended its half', async () => {
    let got = 0
    let untaken = 0
    const ends: (string | undefined)[] = []
    let response!: ResponseSink
    const { caller } = await serve(
      (_request, sink) => {
        response = sink
        response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
        const requestData = ({ length }: Uint8Array) => {
          got += length
          untaken += length
        }
        return {
          requestData,
          requestEnd: () => void ends.push(undefined),
          requestAbort: ({ reason }) => void ends.push(reason),
          responseConsumed() {},
        }
      },
      { bufferBytes: 1000 },
    )
    caller.send(handshake)
    await caller.saying('101')
    response.responseEnd([])
    await caller.end()
    caller.socket.end(Buffer.alloc(100_000))
    await caller.close()
    await new Promise(resolve => setTimeout(resolve, 1.5 * LOOK_MS))
    for (; ends.length === 0; await new Promise(resolve => setImmediate(resolve))) {
      const bytes = untaken
      untaken = 0
      response.requestConsumed(bytes)
    }
    expect({ got, ends }).toEqual({ got: 100_000, ends: [undefined] })
  })

  test('E7: 101 to a plain request becomes 502', async () => {
    const { handler } = recorder(({ response }) => response.responseHead({ status: 101, headers: [], bodyBytes: 0 }))
    const { caller } = await serve(handler)
    caller.send(get())
    expect(await caller.saying('}')).toMatch(/^HTTP\/1.1 502/)
  })

  test('an aborted one is reset', async () => {
    const { handler, seen } = recorder(({ response }) =>
      response.responseHead({ status: 101, headers: [], bodyBytes: 0 }),
    )
    const { caller } = await serve(handler)
    caller.send(handshake)
    await caller.saying('\r\n\r\n')
    seen[0]!.response.responseAbort(new SallyportError('session-lost'))
    await caller.close()
    expect(caller.error).toBe('ECONNRESET')
  })
})

describe('ends', () => {
  test('a caller that leaves aborts its request', async () => {
    for (const how of ['destroy', 'resetAndDestroy'] as const) {
      const { handler, seen } = recorder(() => {})
      const { caller } = await serve(handler, { halfCloseMs: 20 })
      caller.send(get())
      await until(() => seen.length === 1)
      caller.socket[how]()
      await until(() => seen[0]!.aborted !== undefined)
      expect(seen[0]!.aborted).toBe('cancelled')
    }
  })

  test('a caller that closed only its half gets its answer', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.socket.end(get())
    await until(() => seen.length === 1)
    for (let turn = 0; turn < 20; turn++) await new Promise(resolve => setImmediate(resolve))
    ok(seen[0]!.response)
    expect(await caller.close()).toMatch(/connection: close\r\n\r\nok$/)
  })

  test('a caller that closed only its half is asked whether it is still there, and gets one whole answer', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.socket.end(get().repeat(2))
    await caller.saying('HT')
    seen[0]!.response.responseInformational(103, ['link', '</a>'])
    await caller.saying('H', 2)
    ok(seen[0]!.response, 'one')
    await until(() => seen.length === 2)
    await caller.saying('H', 3)
    ok(seen[1]!.response, 'two')
    const text = await caller.close()
    expect(text.replace(/date: [^\r]+/g, 'date')).toBe(
      'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n' +
        'HTTP/1.1 200 OK\r\ncontent-length: 3\r\ndate\r\n\r\none' +
        'HTTP/1.1 200 OK\r\ncontent-length: 3\r\ndate\r\nconnection: close\r\n\r\ntwo',
    )
  })

  test('an answer that stalls for a caller that closed its half: cut after halfCloseMs', async () => {
    const { handler, seen } = recorder(({ response }) =>
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 }),
    )
    const { caller } = await serve(handler, { halfCloseMs: 50 })
    caller.socket.end(get())
    expect(await caller.close()).not.toContain('0\r\n\r\n')
    expect(seen[0]!.aborted).toBe('cancelled')
  })

  test('a body that ends early aborts the request', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.socket.end('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc')
    await until(() => seen[0]?.aborted !== undefined)
    expect(seen[0]).toMatchObject({ body: 'abc', trailers: undefined })
  })

  test('a graceful close lets the exchange end and announces close', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller, listener } = await serve(handler)
    const idle = await call(listener.address.port)
    caller.send(get())
    await until(() => seen.length === 1)
    const closed = listener.close({ graceMs: 10_000 })
    await idle.close()
    ok(seen[0]!.response)
    expect(await caller.end()).toMatch(/connection: close\r\n\r\nok$/)
    caller.socket.end()
    await closed
  })

  test('E17 an answer that is cut takes nothing from a whole one before it that is still to be read', async () => {
    const whole = Promise.withResolvers<number>()
    const cut = Promise.withResolvers<void>()
    const handler: Handler = (request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      if (request.path === '/cut') {
        response.responseData(Buffer.from('begun'))
        setImmediate(() => {
          response.responseAbort(new SallyportError('upstream-broken'))
          cut.resolve()
        })
        return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
      }
      let [said, left] = [0, 0]
      const say = () => {
        // The kernel accepts no more.
        if (said > left) {
          response.responseEnd([])
          whole.resolve(said)
          return
        }
        response.responseData(Buffer.alloc(16_384, 'x'))
        said += 16_384
        setImmediate(say)
      }
      const consumed = (bytes: number) => {
        left += bytes
      }
      return { requestData() {}, requestEnd: say, requestAbort() {}, responseConsumed: consumed }
    }
    const { caller } = await serve(handler)
    caller.socket.pause()
    caller.send('GET /whole HTTP/1.1\r\nHost: a\r\n\r\nGET /cut HTTP/1.1\r\nHost: a\r\n\r\n')
    const bytes = await whole.promise
    await cut.promise
    caller.socket.resume()
    const text = await caller.end()
    const [, first, second] = text.split('HTTP/1.1 200 OK')
    expect(first!.split('x').length - 1).toBe(bytes)
    expect(first!.endsWith('\r\n0\r\n\r\n')).toBe(true)
    expect(second!.endsWith('\r\n\r\n5\r\nbegun\r\n')).toBe(true)
  })

  test('after the grace the rest is cut', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller, listener } = await serve(handler)
    caller.send(get())
    await until(() => seen.length === 1)
    await listener.close({ graceMs: 10 })
    await caller.end()
    expect(seen[0]!.aborted).toBe('shutting-down')
  })
})

test.each([60_000, 200_000])('a caller that leaves ends an answer that goes on by %i bytes at a time', async bytes => {
  const piece = Buffer.alloc(bytes)
  let pieces = 0
  let reason: string | undefined
  const { caller } = await serve((_request, response) => {
    const give = () => {
      if (pieces < 1000) response.responseData(piece)
      pieces++
    }
    const requestEnd = () => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      give()
    }
    const requestAbort = (error: SallyportError) => {
      reason = error.reason
    }
    return { requestData() {}, requestEnd, responseConsumed: give, requestAbort }
  })
  caller.socket.pause()
  caller.send(get())
  for (let seen = -1; pieces !== seen; ) {
    seen = pieces
    await new Promise(resolve => setTimeout(resolve, 200))
  }
  caller.socket.destroy()
  await until(() => reason !== undefined)
  expect(reason).toBe('cancelled')
  expect(pieces).toBeLessThan(1000)
})

describe('deadlines', () => {
  test('a head that never arrives: closed in silence, or 408 if begun', async () => {
    const { handler } = recorder(() => {})
    const silent = await serve(handler, { headMs: 30 })
    expect(await silent.caller.end()).toBe('')
    const slow = await serve(handler, { headMs: unhurried(300) })
    slow.caller.send('GET / HT')
    expect(await slow.caller.end()).toMatch(/^HTTP\/1.1 408/)
  })

  test("a trickle of bytes does not extend the head's deadline", async () => {
    const { handler } = recorder(() => {})
    const { caller } = await serve(handler, { headMs: unhurried(300) })
    const drip = setInterval(() => caller.send('x'), 10)
    expect(await caller.end()).toMatch(/^HTTP\/1.1 408/)
    clearInterval(drip)
  })

  test('a body that stops: 408', async () => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler, { bodyIdleMs: 30 })
    caller.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc')
    expect(await caller.end()).toMatch(/^HTTP\/1.1 408/)
    expect(seen[0]!.aborted).toBe('request-timeout')
  })

  test('a body that stops behind the begin of its answer is waited for', async () => {
    const { handler, seen } = recorder(({ request, response }) => {
      if (request.path === '/both') response.responseHead({ status: 200, headers: [], bodyBytes: 5 })
    })
    const { caller, listener } = await serve(handler, { bodyIdleMs: 30 })
    const post = (path: string) => `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx`
    caller.send(post('/both'))
    await until(() => seen[0]?.body === 'x')
    const later = await call(listener.address.port)
    later.send(post('/'))
    expect(await later.end()).toMatch(/^HTTP\/1.1 408/)
    expect(seen[0]!.aborted).toBeUndefined()
    seen[0]!.response.responseData(Buffer.from('still'))
    caller.send('y')
    await until(() => seen[0]!.trailers !== undefined)
    seen[0]!.response.responseEnd([])
    await caller.saying('still')
    expect(seen[0]!.body).toBe('xy')
  })

  test('an idle connection is closed; one with a quiet exchange is not', async () => {
    const { handler, seen } = recorder(({ request, response }) => {
      if (request.path === '/quick') ok(response)
    })
    const { caller, listener } = await serve(handler, { keepAliveMs: unhurried(400), bodyIdleMs: 40, stalledMs: 40 })
    const quiet = await call(listener.address.port)
    quiet.send(get('/quiet'))
    caller.send(get('/quick'))
    await caller.end()
    caller.socket.end()
    await until(() => seen.length === 2)
    expect(quiet.closed).toBe(false)
    ok(seen.find(({ request }) => request.path === '/quiet')!.response, 'late')
    await quiet.saying('late')
  })

  test('a caller that stops reading is reset, and the request aborted', async () => {
    const { handler, seen } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.alloc(32 * 1024 * 1024))
    })
    const { caller } = await serve(handler, { stalledMs: 100 })
    const broken = once(caller.socket, 'error')
    caller.socket.pause()
    caller.send(get())
    await until(() => seen[0]?.aborted !== undefined)
    expect(seen[0]!.aborted).toBe('request-timeout')
    caller.socket.resume()
    expect(await broken).toMatchObject([{ code: 'ECONNRESET' }])
  })

  test('a caller that reads slowly has not stopped', async () => {
    const bytes = 24 * 1024 * 1024
    const { handler, seen } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: bytes })
      response.responseData(Buffer.alloc(bytes))
      response.responseEnd([])
    })
    const { caller } = await serve(handler, { stalledMs: 600, keepAliveMs: 10_000 })
    caller.socket.pause()
    caller.send(get())
    // One large chunk, so that only the kernel's queue shows its progress. All of it takes longer than the limit.
    const begun = performance.now()
    const sip = setInterval(() => caller.socket.read(128 * 1024), 10)
    caller.socket.removeAllListeners('data')
    let got = 0
    while (got < bytes && !caller.closed) {
      await new Promise(resolve => setTimeout(resolve, 10))
      got = caller.socket.bytesRead
    }
    clearInterval(sip)
    expect(performance.now() - begun).toBeGreaterThan(600)
    expect(got).toBeGreaterThanOrEqual(bytes)
    expect(seen[0]!.aborted).toBeUndefined()
  })

  test.each([
    ['whose answer is the last', 'Connection: close\r\n'],
    ['whose answer comes before its body', 'Content-Length: 9\r\n'],
  ])('nor has one %s', async (_, header) => {
    const bytes = 24 * 1024 * 1024
    const { handler } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: bytes })
      response.responseData(Buffer.alloc(bytes))
      response.responseEnd([])
    })
    const { caller } = await serve(handler, { drainMs: 100 })
    caller.socket.pause()
    caller.send(get('/', header))
    await new Promise(resolve => setTimeout(resolve, 400))
    caller.socket.resume()
    const text = await caller.end()
    expect(text.length - text.indexOf('\r\n\r\n') - 4).toBe(bytes)
  })
})

describe('an upstream that breaks off after its answer', () => {
  const broken = new SallyportError('upstream-broken')
  const answer = ({ response }: { response: ResponseSink }, status: number, body: string, bodyBytes = body.length) => {
    response.responseHead({ status, headers: [], bodyBytes })
    if (body !== '') response.responseData(Buffer.from(body))
  }

  test.each([
    ['the head of HEAD', 'HEAD', 200, ''],
    ['a 204', 'GET', 204, ''],
    ['a 304', 'GET', 304, ''],
    ['a body of known length', 'GET', 200, 'ok'],
  ])('%s is whole: the connection stays open', async (_what, method, status, body) => {
    const { handler, seen } = recorder(one => one.request.path === '/next' && ok(one.response, 'next'))
    const { caller } = await serve(handler)
    caller.send(get().replace('GET', method))
    await until(() => seen.length === 1)
    answer(seen[0]!, status, body)
    await caller.saying(`\r\n\r\n${body}`)
    seen[0]!.response.responseAbort(broken)
    caller.send(get('/next'))
    expect(await caller.saying('next')).toMatch(new RegExp(`^HTTP/1.1 ${status} [^]*HTTP/1.1 200 [^]*next$`))
  })

  test.each([
    ['a body that is not whole', 'o', 2],
    ['a body of unknown length', 'ok', -1],
  ])('%s is cut, and so is the connection', async (_what, body, bodyBytes) => {
    const { handler, seen } = recorder(() => {})
    const { caller } = await serve(handler)
    caller.send(get())
    await until(() => seen.length === 1)
    answer(seen[0]!, 200, body, bodyBytes)
    await caller.saying(body)
    seen[0]!.response.responseAbort(broken)
    expect(await caller.end()).not.toContain('0\r\n\r\n')
    expect(seen).toHaveLength(1)
  })
})
