import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import { createTunnel, type FetchHandler, type Tunnel } from '../../../client/index.ts'
import { functionTarget } from '../../../client/targets/function.ts'
import { collectGarbage as collectAllGarbage } from '../../../load-tests/lib/garbage.ts'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type HttpRequest, type ResponseSink } from '../../../protocol/exchange.ts'
import { DEAF, EXCHANGE, ends } from '../../support/ends.ts'
import { FakeServer, type FakeSession } from '../fake-server.ts'

const open: { server: FakeServer; tunnel: Tunnel }[] = []

afterEach(async () => {
  for (const { server, tunnel } of open.splice(0)) {
    await tunnel.close({ graceMs: 0 })
    await server.close()
  }
})

async function serve(target: FetchHandler): Promise<FakeSession> {
  const server = await FakeServer.listen()
  const tunnel = createTunnel({ url: server.url, token: 'a.b.c', target, connections: 1 })
  open.push({ server, tunnel })
  return await server.serve()
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
}

function thrown(): never {
  throw new Error('the caller')
}

const KIB = 1024

const REQUEST: HttpRequest = {
  method: 'GET',
  authority: 'prod.tunnels.test',
  path: '/',
  headers: [],
  bodyBytes: 0,
  upgrade: false,
  peerAddress: '192.0.2.1',
  encrypted: true,
  caller: undefined,
  requestId: 'r1',
  exchangeId: undefined,
}

describe('a target function', () => {
  it('receives a web Request: method, URL, headers, caller and body', async () => {
    let seen: Request | undefined
    const session = await serve(async request => {
      seen = request
      return new Response(await request.text(), { status: 201, headers: { 'x-made-by': 'me' } })
    })
    const headers = ['x-request-id', 'r1', 'cookie', 'a=1', 'x-twice', '1', 'x-twice', '2']
    const exchange = session.exchange({ method: 'PUT', path: '/a%2Fb?x=%20', headers, bodyBytes: 3 })
    exchange.request.requestData(Buffer.from('abc'))
    exchange.request.requestEnd([])
    const answer = await exchange.answer()
    expect(answer).toMatchObject({ status: 201, text: 'abc' })
    expect(answer.headers).toContain('x-made-by')
    expect(seen).toMatchObject({ method: 'PUT', url: 'https://prod.tunnels.test/a%2Fb?x=%20' })
    expect(Object.fromEntries(seen!.headers)).toMatchObject({
      host: 'prod.tunnels.test',
      cookie: 'a=1',
      'x-twice': '1, 2',
      'x-request-id': 'r1',
      'x-forwarded-for': '192.0.2.1',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': 'prod.tunnels.test',
    })
  })

  it('keeps each Set-Cookie, and no field of the connection', async () => {
    const session = await serve(() => {
      const headers = new Headers({ connection: 'x-mine', 'x-mine': '1', 'keep-alive': 'timeout=5', 'x-kept': '1' })
      headers.append('set-cookie', 'a=1')
      headers.append('set-cookie', 'b=2')
      return new Response(null, { headers })
    })
    const { headers } = await session.exchange().answer()
    expect(headers).toEqual(['set-cookie', 'a=1', 'set-cookie', 'b=2', 'x-kept', '1'])
  })

  it('cannot send our own error codes', async () => {
    const session = await serve(
      () => new Response(null, { headers: { 'sallyport-error': 'runtime-offline', 'x-kept': '1' } }),
    )
    expect((await session.exchange().answer()).headers).toEqual(['x-kept', '1'])
  })

  it.each([
    ['HEAD', 200, 'hello'],
    ['GET', 204, null],
    ['GET', 304, null],
  ])('sends no body to %s %i', async (method, status, body) => {
    const session = await serve(() => new Response(body, { status }))
    const answer = await session.exchange({ method }).answer()
    expect(answer).toMatchObject({ status, text: '' })
  })

  it.each([
    ['never', () => new Promise<void>(() => {})],
    ['with an error', () => Promise.reject(new Error('thrown on purpose'))],
  ])('answers HEAD although the body that it has made for GET ends %s', async (_, cancel) => {
    const both = ends()
    functionTarget(() => new Response(new ReadableStream({ cancel })))({ ...EXCHANGE, method: 'HEAD' }, both.front)
    await expect.poll(() => both.events).toEqual(['head 200', 'responseEnd'])
  })

  const TEXT = 'hello '.repeat(100)
  it.each<[coding: string, body: Buffer, undone: boolean]>([
    ['gzip', gzipSync(TEXT), true],
    ['x-gzip', gzipSync(TEXT), true],
    ['deflate', deflateSync(TEXT), true],
    ['br', brotliCompressSync(TEXT), true],
    ['zstd', zstdCompressSync(TEXT), true],
    ['gzip, br', brotliCompressSync(gzipSync(TEXT)), true],
    ['identity', Buffer.from(TEXT), false],
    ['gzip, unknown', Buffer.from(TEXT), false],
  ])("passes on `fetch`'s answer with a body in %s", async (coding, body, undone) => {
    const upstream = createServer((request, response) => {
      response.writeHead(200, { 'content-encoding': coding, 'content-length': body.length })
      response.end(request.method === 'HEAD' ? undefined : body)
    })
    upstream.listen(0, '127.0.0.1')
    await once(upstream, 'listening')
    const { port } = upstream.address() as AddressInfo
    const session = await serve(({ method }) => fetch(`http://127.0.0.1:${port}`, { method }))
    for (const method of ['GET', 'HEAD']) {
      const { headers, text } = await session.exchange({ method }).answer()
      expect(text).toBe(method === 'GET' ? TEXT : '')
      expect(headers.includes('content-encoding')).toBe(!undone)
      expect(headers.includes('content-length')).toBe(!undone)
    }
    upstream.closeAllConnections()
    upstream.close()
  })

  it('keeps a content coding that the function made', async () => {
    const session = await serve(() => new Response(gzipSync(TEXT), { headers: { 'content-encoding': 'gzip' } }))
    const { headers } = await session.exchange().answer()
    expect(headers).toContain('content-encoding')
  })

  it('keeps the length that it announces', async () => {
    const given = { 'content-length': '5', 'access-control-expose-headers': 'content-length' }
    const session = await serve(() => new Response('hello', { headers: given }))
    const { headers, text } = await session.exchange().answer()
    expect(headers.slice(headers.lastIndexOf('content-length')).slice(0, 2)).toEqual(['content-length', '5'])
    expect(text).toBe('hello')
  })

  it.each([
    ['longer', '3'],
    ['shorter', '9'],
  ])('is cut if its body is %s than announced', async (_name, length) => {
    const session = await serve(() => new Response('hello', { headers: { 'content-length': length } }))
    await expect(session.exchange().answer()).rejects.toMatchObject({ reason: 'upstream-broken' })
  })

  const streamOf = (chunk: unknown) => new ReadableStream({ start: into => into.enqueue(chunk) })
  it.each<[made: string, answer: () => unknown, problem: string]>([
    ['none', () => 'hello', 'the target function returned no Response'],
    [
      'one of text',
      () => new Response(streamOf('hello')),
      'the body of the Response has a chunk that is not a Uint8Array',
    ],
    [
      'one that is longer than announced',
      () => new Response('hello', { headers: { 'content-length': '3' } }),
      'the body of the Response is longer than its content-length',
    ],
    [
      'one that is shorter than announced',
      () => new Response('hello', { headers: { 'content-length': '9' } }),
      'the body of the Response is shorter than its content-length',
    ],
  ])('that answers with %s is refused with the reason, which is logged', async (_made, answer, problem) => {
    const lines: unknown[] = []
    const logger = { ...noLogger, error: (fields: object, text: string) => void lines.push([fields, text]) }
    const error = await new Promise<SallyportError>((abort, reject) => {
      const end = () => reject(new Error('it ended'))
      const response = {
        ...DEAF,
        responseEnd: end,
        responseAbort: abort,
      }
      functionTarget(answer as FetchHandler, logger)(REQUEST, response)
    })
    expect([error.reason, error.message]).toEqual(['upstream-broken', problem])
    expect(lines).toEqual([[{ err: expect.objectContaining({ message: problem }) }, 'a target function failed']])
  })

  it('streams: each chunk goes out as it is produced', async () => {
    let more: ReadableStreamDefaultController<Uint8Array> | undefined
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        more = controller
      },
    })
    const session = await serve(() => new Response(body))
    const exchange = session.exchange()
    await exchange.head$.promise
    for (let i = 1; i <= 5; i++) {
      more!.enqueue(Buffer.from('x'))
      await exchange.bytes(i)
    }
    more!.close()
    expect((await exchange.answer()).text).toBe('xxxxx')
  })

  it('has its body read no further than the caller consumes', async () => {
    let pulled = 0
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          pulled++
          controller.enqueue(new Uint8Array(16 * KIB))
        },
        cancel() {},
      },
      { highWaterMark: 0 },
    )
    const session = await serve(() => new Response(body))
    const exchange = session.exchange()
    exchange.takes = false
    await exchange.bytes(48 * KIB)
    // The stream's window is 64 KiB, and as much again may wait here; then it pauses.
    for (let i = 0; i < 20; i++) await new Promise(setImmediate)
    const stood = pulled
    expect(stood).toBeLessThanOrEqual(10)
    exchange.takes = true
    exchange.request.responseConsumed(exchange.received)
    await exchange.bytes(256 * KIB)
    expect(pulled).toBeGreaterThan(stood)
  })

  it('consumes as much of the request as it reads, and no more', async () => {
    const reading = Promise.withResolvers<ReadableStreamDefaultReader<Uint8Array>>()
    const done = Promise.withResolvers<Response>()
    const session = await serve(request => {
      reading.resolve(request.body!.getReader())
      return done.promise
    })
    const exchange = session.exchange({ method: 'POST', bodyBytes: -1 })
    for (let i = 0; i < 16; i++) exchange.request.requestData(new Uint8Array(8 * KIB))
    exchange.request.requestEnd([])
    const reader = await reading.promise
    let bytes = 0
    for (;;) {
      const { value, done: ended } = await reader.read()
      if (ended) break
      bytes += value.length
    }
    expect(bytes).toBe(128 * KIB)
    done.resolve(new Response('all'))
    expect((await exchange.answer()).text).toBe('all')
  })

  it('that reads its request late receives all of it, and until then no more memory than that is held', async () => {
    const begin = Promise.withResolvers<void>()
    let text = ''
    const handler = functionTarget(async request => {
      await begin.promise
      text = await request.text()
      return new Response()
    })
    let credit = 0
    const ended = Promise.withResolvers<void>()
    const sink = handler(
      { ...REQUEST, method: 'POST', bodyBytes: BODY_UNKNOWN },
      {
        ...DEAF,
        responseEnd: () => ended.resolve(),
        responseAbort: ended.reject,
        requestConsumed: bytes => {
          credit += bytes
        },
      },
    )
    await collectAllGarbage()
    const before = process.memoryUsage().arrayBuffers
    // As a session that is busy with others delivers them: each cut from its own slab.
    for (let i = 0; i < 500; i++) sink.requestData(Buffer.alloc(64 * KIB, 'a').subarray(100, 110))
    await collectAllGarbage()
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(512 * KIB)
    expect(credit).toBe(0)
    begin.resolve()
    sink.requestData(Buffer.from('end'))
    sink.requestEnd([])
    await ended.promise
    expect(text).toBe(`${'a'.repeat(5000)}end`)
    expect(credit).toBe(5003)
  })

  it('may answer before the request has ended; the rest is discarded', async () => {
    const session = await serve(() => new Response('no thanks', { status: 413 }))
    const exchange = session.exchange({ method: 'POST', bodyBytes: -1 })
    exchange.request.requestData(new Uint8Array(8 * KIB))
    expect(await exchange.answer()).toMatchObject({ status: 413, text: 'no thanks' })
    exchange.request.requestEnd([])
  })

  it.each([
    ['reads its request lets a caller that waits for a 100 go on', true, ['informational 100', 'requestConsumed 3']],
    ['does not read its request sends no 100', false, ['requestConsumed 3']],
  ])('that %s, and it sees no `expect`', async (_, reads, events) => {
    const both = ends()
    let expectation: string | null | undefined
    const handler = functionTarget(async request => {
      expectation = request.headers.get('expect')
      if (reads) await request.text()
      return new Response(null)
    })
    const headers = ['expect', '100-continue']
    const sink = handler({ ...EXCHANGE, method: 'POST', headers, bodyBytes: 3 }, both.front)
    await turn()
    sink.requestData(Buffer.from('abc'))
    sink.requestEnd([])
    await expect.poll(() => both.events).toContain('responseEnd')
    expect(both.events.filter(event => !/^(?:head|responseEnd)/.test(event))).toEqual(events)
    expect(expectation).toBeNull()
  })

  it('that answers with its request as it comes lets a caller that waits for a 100 go on before that', async () => {
    const both = ends()
    const handler = functionTarget(request => new Response(request.body))
    const sink = handler({ ...EXCHANGE, method: 'POST', headers: ['expect', '100-continue'], bodyBytes: 3 }, both.front)
    await expect.poll(() => both.events.some(event => event.startsWith('head'))).toBe(true)
    expect(both.events[0]).toBe('informational 100')
    sink.requestData(Buffer.from('abc'))
    sink.requestEnd([])
    await expect.poll(() => both.events).toContain('responseEnd')
  })

  it.each([
    ['has arrived in full', true],
    ['has not', false],
  ])(
    'that reads its request only after its answer gets an error, and no body that looks complete: it %s',
    async (_, whole) => {
      const answered = Promise.withResolvers<void>()
      let request: Request | undefined
      const handler = functionTarget(given => {
        request = given
        return new Response(null, { status: 202 })
      })
      const sink = handler(
        { ...REQUEST, method: 'POST', bodyBytes: 3 },
        { ...DEAF, responseEnd: () => answered.resolve() },
      )
      sink.requestData(Buffer.from('abc'))
      if (whole) sink.requestEnd([])
      await answered.promise
      await turn()
      await expect(request!.text()).rejects.toThrow('the exchange is over')
    },
  )

  it('may transfer the memory of what it reads, which no other chunk shares', async () => {
    const slab = Buffer.alloc(64 * KIB, 'a')
    const read = Promise.withResolvers<Uint8Array<ArrayBuffer>>()
    const handler = functionTarget(async request => {
      const { value } = await request.body!.getReader().read()
      read.resolve(value!)
      return new Response()
    })
    handler({ ...REQUEST, method: 'POST', bodyBytes: BODY_UNKNOWN }, DEAF).requestData(slab.subarray(0, 32 * KIB))
    const { buffer } = await read.promise
    expect(structuredClone(buffer, { transfer: [buffer] }).byteLength).toBe(32 * KIB)
    expect(slab.length).toBe(64 * KIB)
  })

  it('may reuse and transfer the memory of what it has answered', async () => {
    const made = new Uint8Array(8 * KIB).fill(1)
    const given: Uint8Array[] = []
    const ended = Promise.withResolvers<void>()
    const responseEnd = () => ended.resolve()
    const handler = functionTarget(() => {
      const start = (controller: ReadableStreamDefaultController) => controller.enqueue(made)
      const pull = (controller: ReadableStreamDefaultController) => {
        made.fill(2)
        structuredClone(made.buffer, { transfer: [made.buffer] })
        controller.close()
      }
      return new Response(new ReadableStream({ start, pull }, { highWaterMark: 0 }))
    })
    handler(REQUEST, { ...DEAF, responseData: chunk => given.push(chunk), responseEnd }).requestEnd([])
    await ended.promise
    expect(given).toEqual([new Uint8Array(8 * KIB).fill(1)])
  })

  it('that fails becomes a 502 that reveals nothing of the inside', async () => {
    const session = await serve(() => {
      throw new Error('secret')
    })
    const { status, text } = await session.exchange().answer()
    expect(status).toBe(502)
    expect(text).toContain('upstream-broken')
    expect(text).not.toContain('secret')
  })

  it('that returns no Response becomes a 502', async () => {
    const session = await serve((() => 'hello') as never)
    expect((await session.exchange().answer()).status).toBe(502)
  })

  it('whose body fails midway is cut', async () => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(Buffer.from('half'))
      },
      pull() {
        throw new Error('the disk is gone')
      },
    })
    const session = await serve(() => new Response(body))
    await expect(session.exchange().answer()).rejects.toMatchObject({ reason: 'upstream-broken' })
  })

  it('learns from its signal that the caller has left, before or during its response, even if it kept no reference to the request', async () => {
    const aborted: string[] = []
    const cancelled = Promise.withResolvers<void>()
    const thinking = Promise.withResolvers<void>()
    const session = await serve(request => {
      const path = new URL(request.url).pathname
      request.signal.addEventListener('abort', () => aborted.push(path))
      if (path === '/think') {
        thinking.resolve()
        return new Promise<Response>(() => {})
      }
      const pull = (controller: ReadableStreamDefaultController) => controller.enqueue(Buffer.from('x'))
      return new Response(new ReadableStream({ pull, cancel: () => cancelled.resolve() }, { highWaterMark: 0 }))
    })
    const think = session.exchange({ path: '/think' })
    await thinking.promise
    think.request.requestAbort(new SallyportError('cancelled'))
    const send = session.exchange({ path: '/send' })
    await send.bytes(1)
    collectGarbage()
    send.request.requestAbort(new SallyportError('cancelled'))
    await cancelled.promise
    expect(aborted).toEqual(['/think', '/send'])
  })

  it('that waits for its next event learns at once that its caller has left', async () => {
    const cancelled = Promise.withResolvers<unknown>()
    const session = await serve(() => {
      const start = (controller: ReadableStreamDefaultController<Uint8Array>) =>
        controller.enqueue(Buffer.from('first'))
      return new Response(new ReadableStream({ start, cancel: cancelled.resolve }))
    })
    const exchange = session.exchange()
    await exchange.bytes(5)
    exchange.request.requestAbort(new SallyportError('cancelled'))
    expect(await cancelled.promise).toMatchObject({ reason: 'cancelled' })
  })

  it.each<[string, unknown, Record<string, string>, Partial<ResponseSink>]>([
    ['is longer than announced', Buffer.from('long'), { 'content-length': '2' }, {}],
    ['is not made of bytes', 'text', {}, {}],
    ['has a head that the caller rejects', Buffer.from('x'), {}, { responseHead: thrown }],
    ['is rejected by the caller', Buffer.from('x'), {}, { responseData: thrown }],
  ])('hears that its answer is abandoned, if it %s', async (_, chunk, headers, front) => {
    const cancelled = Promise.withResolvers<unknown>()
    const both = ends()
    const target = functionTarget(() => {
      const pull = (controller: ReadableStreamDefaultController) => controller.enqueue(chunk)
      return new Response(new ReadableStream({ pull, cancel: cancelled.resolve }, { highWaterMark: 0 }), { headers })
    })
    target(EXCHANGE, { ...both.front, ...front }).requestEnd([])
    expect(await cancelled.promise).toBeInstanceOf(Error)
    expect(both.events.at(-1)).toBe('responseAbort upstream-broken')
  })

  it('cannot answer with a body that somebody is already reading', async () => {
    const both = ends()
    const target = functionTarget(() => {
      const answer = new Response('x')
      answer.body!.getReader()
      return answer
    })
    target(EXCHANGE, both.front).requestEnd([])
    await expect.poll(() => both.events.at(-1)).toBe('responseAbort upstream-broken')
    expect(both.events).not.toContain('head 200')
  })

  it('receives an upgrade as a plain GET, and may decline', async () => {
    const session = await serve(request => new Response(`no ${request.headers.get('upgrade')}`, { status: 426 }))
    expect(await session.exchange({ upgrade: true }).answer()).toMatchObject({ status: 426, text: 'no null' })
  })

  it('never sees a method that a Request cannot hold', async () => {
    const session = await serve(() => new Response('called'))
    expect((await session.exchange({ method: 'TRACK' }).answer()).status).toBe(405)
    expect((await session.exchange({ method: 'FOO' }).answer()).text).toBe('called')
  })

  it.each(['GET', 'HEAD'])('receives a %s with a body, without the body', async method => {
    const session = await serve(request => new Response('', { headers: { 'x-body': String(request.body) } }))
    const exchange = session.exchange({ method, bodyBytes: 3 })
    exchange.request.requestData(Buffer.from('abc'))
    exchange.request.requestEnd([])
    expect((await exchange.answer()).headers).toEqual(expect.arrayContaining(['x-body', 'null']))
  })
})
