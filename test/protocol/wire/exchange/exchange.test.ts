import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { noLogger } from '../../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type ResponseSink } from '../../../../protocol/exchange.ts'
import { RefusedError } from '../../../../protocol/wire/exchange/refusal.ts'
import { post, request, send, tunnel, upstreams } from './support.ts'

const ok = (headers: string[] = [], bodyBytes = BODY_UNKNOWN) => ({ status: 200, headers, bodyBytes })
const says = (headers: string[]) => (response: ResponseSink) => response.responseHead({ ...ok(), headers })

describe('an exchange over a session', () => {
  test('a request without a body, and its answer', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, request({ caller: { address: '2001:db8::1', scheme: 'http', host: 'outer.example' } }))
    const upstream = await next()
    expect(upstream.request).toMatchObject({
      method: 'GET',
      authority: 'rt.example.com',
      path: '/a?b',
      headers: ['accept', '*/*', 'x-request-id', 'r-1'],
      bodyBytes: 0,
      upgrade: false,
      peerAddress: '2001:db8::1',
      encrypted: false,
      caller: { address: '2001:db8::1', scheme: 'http', host: 'outer.example' },
      requestId: 'r-1',
    })
    expect(upstream.request.exchangeId).toHaveLength(16)
    await upstream.over()
    expect(upstream.events).toEqual(['end'])
    upstream.response.responseInformational(103, ['link', '</a>'])
    upstream.response.responseHead(ok(['content-type', 'text/plain', 'set-cookie', 'a', 'set-cookie', 'b']))
    upstream.response.responseData(Buffer.from('hello'))
    upstream.response.responseEnd(['x-sum', '1'])
    await caller.over()
    expect(caller.events).toEqual(['informational 103', 'head 200', 'data', 'end'])
    expect(caller.informationals).toEqual([[103, ['link', '</a>']]])
    expect(caller.head_).toEqual({
      status: 200,
      headers: ['content-type', 'text/plain', 'set-cookie', 'a', 'set-cookie', 'b'],
      bodyBytes: BODY_UNKNOWN,
    })
    expect(caller.text).toBe('hello')
    expect(caller.trailers).toEqual(['x-sum', '1'])
    expect(server.streams).toBe(0)
  })

  test('a request that cannot be encoded leaves no stream behind', () => {
    const { server } = tunnel(upstreams().handler)
    expect(() => send(server, request({ bodyBytes: Number.NaN }))).toThrow('varint')
    expect(server.streams).toBe(0)
  })

  test('the preamble carries what the opener knows', async () => {
    const seen: unknown[] = []
    const { handler, next } = upstreams()
    const { server } = tunnel((preamble, received, response) => {
      seen.push(preamble)
      return handler(preamble, received, response)
    })
    const exchangeId = '\x07'.repeat(16)
    send(server, post(5, { exchangeId, headers: ['content-length', '5'] }), {
      runtime: 'other',
      epoch: 9,
      attempt: 2,
      hops: 1,
      timeLeftMs: 1.5,
    })
    await next()
    expect(seen).toEqual([
      {
        kind: 1,
        exchangeId,
        attempt: 2,
        runtime: 'other',
        epoch: 9,
        timeLeftMs: 2,
        callerAddress: '192.0.2.1',
        callerScheme: 'https',
        hops: 1,
        bodyBytes: 5,
      },
    ])
  })

  test('bodies in both directions, of any size, arrive whole, and every byte is credited once', async () => {
    const sizes = fc.array(fc.oneof(fc.integer({ min: 1, max: 6_000 }), fc.integer({ min: 1, max: 200_000 })), {
      maxLength: 12,
    })
    await fc.assert(
      fc.asyncProperty(sizes, sizes, async (up, down) => {
        const { handler, next } = upstreams()
        const { server, client } = tunnel(handler, { initialWindowBytes: 65_536 })
        const caller = send(server, post())
        for (const size of up) caller.sink.requestData(Buffer.alloc(size, 'u'))
        caller.sink.requestEnd([])
        const upstream = await next()
        upstream.response.responseHead(ok())
        for (const size of down) upstream.response.responseData(Buffer.alloc(size, 'd'))
        await upstream.over()
        upstream.response.responseEnd([])
        await caller.over()
        const sum = (list: number[]) => list.reduce((a, b) => a + b, 0)
        expect([upstream.bytes, caller.bytes]).toEqual([sum(up), sum(down)])
        await caller.until(self => self.credit === sum(up))
        await upstream.until(self => self.credit === sum(down))
        expect([server.bufferedBytes, client.bufferedBytes, server.streams, client.streams]).toEqual([0, 0, 0, 0])
      }),
      { numRuns: 40 },
    )
  })

  test('content is credited only when the far end has consumed it', async () => {
    let held = 0
    const { handler, next } = upstreams(bytes => {
      held += bytes.length
    })
    const { server } = tunnel(handler, { initialWindowBytes: 65_536, maxWindowBytes: 65_536 })
    const caller = send(server, post())
    const chunk = 16_384
    for (let i = 0; i < 64; i++) caller.sink.requestData(Buffer.alloc(chunk))
    const upstream = await next()
    await upstream.until(() => held > 60_000)
    // The window is full: what left is what it holds, and nothing more moves until somebody consumes.
    await new Promise(done => server.ping(done))
    await new Promise(done => server.ping(done))
    expect(upstream.bytes).toBeLessThanOrEqual(65_536)
    expect(caller.credit).toBeLessThanOrEqual(65_536)
    upstream.take = bytes => upstream.response.requestConsumed(bytes.length)
    upstream.response.requestConsumed(held)
    await upstream.until(self => self.bytes === 64 * chunk)
    caller.sink.requestEnd([])
    await upstream.over()
    expect(upstream.events).toEqual(['data', 'end'])
  })

  test('each chunk leaves in the turn in which it was given', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok(['content-type', 'text/event-stream']))
    await caller.until(self => self.status === 200)
    for (const event of ['one', 'two', 'three']) {
      const before = caller.bytes
      upstream.response.responseData(Buffer.from(event))
      // The next is sent only when this one has arrived.
      await caller.until(self => self.bytes === before + event.length)
    }
    expect(caller.text).toBe('onetwothree')
  })

  test.each([
    ['HEAD', 200],
    ['GET', 204],
    ['GET', 304],
  ])('%s with %i has no content, whatever content-length says', async (method, status) => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, request({ method }))
    const upstream = await next()
    upstream.response.responseHead({ status, headers: ['content-length', '5'], bodyBytes: 0 })
    upstream.response.responseEnd([])
    await caller.over()
    expect(caller.head_).toEqual({ status, headers: ['content-length', '5'], bodyBytes: 0 })
    expect(caller.events).toEqual([`head ${status}`, 'end'])
  })

  test.each([199, 600, Number.NaN])('status %d is no answer', async status => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead({ status, headers: [], bodyBytes: BODY_UNKNOWN })
    upstream.response.responseEnd([])
    await caller.over()
    expect(caller.events).toEqual(['abort upstream-broken'])
    expect(upstream.events).toContain('abort upstream-broken')
  })

  test('the handler may answer before it returns', async () => {
    const { server } = tunnel((_preamble, _received, response) => {
      response.responseHead(ok(['content-length', '2'], 2))
      response.responseData(Buffer.from('hi'))
      response.responseEnd([])
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    const caller = send(server)
    await caller.over()
    expect(caller.events).toEqual(['head 200', 'data', 'end'])
    expect(caller.head_?.bodyBytes).toBe(2)
  })
})

describe('a refused exchange', () => {
  test.each(['not-here', 'already-begun', 'draining', 'overloaded', 'too-late'] as const)('%s', async code => {
    const { server } = tunnel(() => code)
    const caller = send(server)
    await caller.over()
    expect(caller.error).toBeInstanceOf(RefusedError)
    expect(caller.error).toMatchObject({ refusal: code, unprocessed: true })
    expect(caller.events).toHaveLength(1)
    expect(server.streams).toBe(0)
  })

  test('its body is discarded, and the stream ends', async () => {
    const { server, client } = tunnel(() => 'overloaded')
    const caller = send(server, post())
    caller.sink.requestData(Buffer.alloc(50_000))
    await caller.over()
    expect(caller.error).toBeInstanceOf(RefusedError)
    await new Promise(done => client.ping(done))
    expect([server.streams, client.streams, client.bufferedBytes]).toEqual([0, 0, 0])
  })

  test('a peer that accepts no streams at all refuses unprocessed', async () => {
    const { handler } = upstreams()
    const { server, client } = tunnel(handler)
    client.goAway()
    const caller = send(server)
    await caller.over()
    expect(caller.error).toBeInstanceOf(RefusedError)
  })

  test('a head over the limits of the wire is not sent', () => {
    const { handler } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, request({ path: `/${'x'.repeat(33_000)}` }))
    expect(caller.error?.reason).toBe('head-too-large')
    const many = send(server, request({ headers: Array(2 * 129).fill('a') }))
    expect(many.error?.reason).toBe('head-too-large')
    expect(server.streams).toBe(0)
  })
})

describe('an exchange that breaks off', () => {
  test('the caller leaves: the upstream end hears it, and the caller is told nothing more', async () => {
    const { handler, next } = upstreams()
    const { server, client } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok())
    upstream.response.responseData(Buffer.alloc(100))
    await caller.until(self => self.bytes === 100)
    caller.sink.requestAbort(new SallyportError('cancelled'))
    await upstream.until(self => self.error !== undefined)
    expect(upstream.error?.reason).toBe('cancelled')
    upstream.response.responseData(Buffer.alloc(100))
    upstream.response.responseEnd([])
    await new Promise(done => client.ping(done))
    expect(caller.events).toEqual(['head 200', 'data'])
    expect(upstream.credit).toBe(200)
    expect([server.streams, client.streams]).toEqual([0, 0])
  })

  test.each([
    ['request-timeout', 'request-timeout'],
    ['shutting-down', 'request-timeout'],
    ['overloaded', 'overloaded'],
    ['too-many-requests', 'overloaded'],
    ['bad-request', 'bad-request'],
    ['upstream-broken', 'upstream-broken'],
    ['internal', 'upstream-broken'],
  ] as const)('its caller was cut (%s): the upstream end hears that it did not leave (%s)', async (given, heard) => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok())
    await caller.until(self => self.status === 200)
    caller.sink.requestAbort(new SallyportError(given))
    await upstream.until(self => self.error !== undefined)
    expect(upstream.error?.reason).toBe(heard)
  })

  test.each([
    ['upstream-broken', 'upstream-broken'],
    ['upstream-timeout', 'upstream-timeout'],
    ['overloaded', 'overloaded'],
    ['internal', 'upstream-broken'],
  ] as const)('the upstream breaks (%s): the response is cut (%s)', async (given, seen) => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok())
    await caller.until(self => self.status === 200)
    upstream.response.responseAbort(new SallyportError(given))
    await caller.over()
    expect(caller.events).toEqual(['head 200', `abort ${seen}`])
  })

  test('the session is lost: both ends hear session-lost', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, post())
    const upstream = await next()
    server.destroy(new SallyportError('session-lost'))
    await Promise.all([caller.over(), upstream.over()])
    expect([caller.error?.reason, upstream.error?.reason]).toEqual(['session-lost', 'session-lost'])
  })

  test('the session is lost before any of it was sent: nothing was forwarded', async () => {
    const { handler } = upstreams()
    const { server, accepted } = tunnel(handler)
    const caller = send(server, post())
    server.destroy(new SallyportError('session-lost'))
    await caller.over()
    expect(caller.error).toBeInstanceOf(RefusedError)
    expect([caller.error?.reason, accepted]).toEqual(['runtime-offline', []])
  })

  test('a response head over the limits of the wire becomes 502, and the upstream end is stopped', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok(['a', 'b'.repeat(33_000)]))
    await Promise.all([caller.over(), upstream.until(self => self.error !== undefined)])
    expect(caller.events).toEqual(['abort upstream-broken'])
  })

  test.each<readonly [string, (response: ResponseSink) => void, string]>([
    ...['a\r\nb: c', 'č', ' a', 'a\t', '\x7f'].map(
      value => [JSON.stringify(value), says(['x-a', value]), 'field cannot be sent: "x-a"'] as const,
    ),
    ...['', 'X-A', 'x a', 'connection', 'host', 'te'].map(
      name => [JSON.stringify(name), says([name, 'a']), `field cannot be sent: "${name}"`] as const,
    ),
    ['no head', response => response.responseHead(undefined as never), 'Cannot destructure'],
    ['no fields', says(undefined as never), 'undefined'],
    ['an early field', response => response.responseInformational(103, ['x-a', '\n']), 'field cannot be sent: "x-a"'],
  ])('an answer that cannot be sent becomes 502 each time, and the log says why: %s', async (_, say, why) => {
    const { handler, next } = upstreams()
    const told: string[] = []
    const error = (fields: object, what: string) => void told.push(`${what}: ${(fields as { err: Error }).err.message}`)
    const { server } = tunnel(handler, {}, { ...noLogger, error })
    for (const time of [1, 2]) {
      const caller = send(server)
      const upstream = await next()
      say(upstream.response)
      await Promise.all([caller.over(), upstream.until(self => self.error !== undefined)])
      expect(caller.events).toEqual(['abort upstream-broken'])
      expect(told).toHaveLength(time)
      expect(told.at(-1)).toContain('an answer cannot be sent: ')
      expect(told.at(-1)).toContain(why)
    }
  })

  test.each<[string, (response: ResponseSink) => void]>([
    ['a chunk', response => response.responseData(undefined as never)],
    ['its trailers', response => response.responseEnd(['x-a', '\r'])],
  ])('an answer that cannot be sent to its end is cut: %s', async (_, say) => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok())
    await caller.until(self => self.head_ !== undefined)
    say(upstream.response)
    await Promise.all([caller.over(), upstream.until(self => self.error !== undefined)])
    expect(caller.events).toEqual(['head 200', 'abort upstream-broken'])
  })

  test('a 101 that nobody asked for becomes 502', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    await caller.over()
    expect(caller.events).toEqual(['abort upstream-broken'])
    expect(upstream.error?.reason).toBe('upstream-broken')
  })

  test('a response whose length differs from the announced one is cut', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok(['content-length', '10'], 10))
    upstream.response.responseData(Buffer.from('short'))
    upstream.response.responseEnd([])
    await caller.over()
    expect(caller.error?.reason).toBe('upstream-broken')
    expect(caller.trailers).toBeUndefined()
  })

  test('a request whose length differs from the announced one reaches no clean end', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, post(10))
    caller.sink.requestData(Buffer.from('short'))
    caller.sink.requestEnd([])
    const upstream = await next()
    await upstream.over()
    expect(upstream.trailers).toBeUndefined()
    expect(upstream.events).not.toContain('end')
    await caller.over()
    expect(caller.error?.reason).toBe('upstream-broken')
  })

  test('calls after the end are ignored', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseHead(ok())
    upstream.response.responseEnd([])
    upstream.response.responseHead(ok())
    upstream.response.responseInformational(103, [])
    upstream.response.responseData(Buffer.from('x'))
    upstream.response.responseEnd(['a', 'b'])
    upstream.response.responseAbort(new SallyportError('internal'))
    await caller.over()
    caller.sink.requestEnd([])
    caller.sink.requestAbort(new SallyportError('cancelled'))
    expect(caller.events).toEqual(['head 200', 'end'])
  })
})
