import { describe, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { discarding } from '../../../../protocol/base/guard.ts'
import { noLogger } from '../../../../protocol/base/log.ts'
import { BODY_UNKNOWN } from '../../../../protocol/exchange.ts'
import type { ExchangeHandler } from '../../../../protocol/wire/exchange/accept.ts'
import { closeFrame } from '../../../../protocol/wire/websocket-frames.ts'
import { request, send, tunnel, upstreams } from './support.ts'

const upgrade = () => request({ upgrade: true, headers: ['sec-websocket-protocol', 'a, b'] })
const switching = { status: 101, headers: ['sec-websocket-protocol', 'b'], bodyBytes: 0 }

describe('an upgrade', () => {
  test('both directions carry raw bytes after the 101, and each ends by itself', async () => {
    const { handler, next } = upstreams()
    const { server, client } = tunnel(handler)
    const caller = send(server, upgrade())
    const upstream = await next()
    expect(upstream.request).toMatchObject({ upgrade: true, bodyBytes: 0, headers: ['sec-websocket-protocol', 'a, b'] })
    expect(upstream.events).toEqual([])
    upstream.response.responseInformational(103, [])
    upstream.response.responseHead(switching)
    upstream.response.responseData(Buffer.from('from upstream'))
    await caller.until(self => self.bytes === 13)
    expect(caller.events).toEqual(['head 101', 'data'])
    expect(caller.head_).toEqual(switching)
    caller.sink.requestData(Buffer.from('from caller'))
    caller.sink.requestEnd([])
    await upstream.over()
    expect([upstream.text, upstream.events]).toEqual(['from caller', ['data', 'end']])
    upstream.response.responseData(Buffer.alloc(100_000))
    upstream.response.responseEnd([])
    await caller.over()
    expect(caller.bytes).toBe(100_013)
    expect([upstream.credit, caller.credit]).toEqual([100_013, 11])
    expect([server.streams, client.streams]).toEqual([0, 0])
  })

  test('an upstream that ends first still receives the rest from the caller', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, upgrade())
    const upstream = await next()
    upstream.response.responseHead(switching)
    upstream.response.responseEnd([])
    await caller.over()
    caller.sink.requestData(Buffer.from('late'))
    caller.sink.requestEnd([])
    await upstream.over()
    expect(upstream.text).toBe('late')
    expect(server.streams).toBe(0)
  })

  test('B2 a caller that leaves after its upstream has ended takes what it has not read with it', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, upgrade())
    caller.take = () => {}
    const upstream = await next()
    upstream.response.responseHead(switching)
    upstream.response.responseData(Buffer.alloc(100_000))
    upstream.response.responseEnd([])
    await caller.over()
    expect(server.bufferedBytes).toBe(100_000)
    caller.sink.requestAbort(new SallyportError('cancelled'))
    expect([server.streams, server.streamsOver, server.bufferedBytes]).toEqual([0, 0, 0])
  })

  test.each(['key', 'accept', 'version'])(
    'a 101 with sec-websocket-%s becomes 502, and the log says why',
    async field => {
      const told: string[] = []
      const error = (fields: object) => void told.push((fields as { err: Error }).err.message)
      const headers = [`sec-websocket-${field}`, '13']
      const handler: ExchangeHandler = (_preamble, _request, response) => {
        response.responseHead({ ...switching, headers })
        return discarding(response)
      }
      const { server } = tunnel(handler, {}, { ...noLogger, error })
      const caller = send(server, upgrade())
      await caller.over()
      expect([caller.events, told]).toEqual([['abort upstream-broken'], [`field ${headers[0]} inside the tunnel`]])
    },
  )

  test('an upstream that declines answers as to any request', async () => {
    const { handler, next } = upstreams()
    const { server, client } = tunnel(handler)
    const caller = send(server, upgrade())
    const upstream = await next()
    upstream.response.responseHead({ status: 403, headers: ['content-length', '2'], bodyBytes: 2 })
    upstream.response.responseData(Buffer.from('no'))
    upstream.response.responseEnd([])
    await caller.over()
    expect(caller.events).toEqual(['head 403', 'data', 'end'])
    await new Promise(done => client.ping(done))
    expect(upstream.events).toEqual([])
    expect([server.streams, client.streams]).toEqual([0, 0])
  })

  test('what arrives before the 101 is not sent', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, upgrade())
    caller.sink.requestEnd([])
    const upstream = await next()
    upstream.response.responseHead(switching)
    await caller.until(self => self.status === 101)
    caller.sink.requestData(Buffer.from('x'))
    await upstream.until(self => self.bytes === 1)
    expect(upstream.events).toEqual(['data'])
  })

  test('a peer that sends bytes before the 101 is cut', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, upgrade())
    const upstream = await next()
    caller.stream.write(Buffer.from('too early'))
    await Promise.all([caller.over(), upstream.over()])
    expect(upstream.error?.reason).toBe('upstream-broken')
    expect(caller.error?.reason).toBe('upstream-broken')
  })

  test('a peer that ends before the 101: the upstream end hears it after the 101', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, upgrade())
    const upstream = await next()
    caller.stream.end()
    await new Promise(done => server.ping(done))
    expect(upstream.events).toEqual([])
    upstream.response.responseHead(switching)
    await upstream.over()
    expect(upstream.events).toEqual(['end'])
  })

  test.each(['sec-websocket-key', 'sec-websocket-accept', 'sec-websocket-version'])(
    '%s stays on its hop',
    async name => {
      const { handler, next } = upstreams()
      const { server } = tunnel(handler)
      const refused = send(server, request({ upgrade: true, headers: [name, 'x'] }))
      await refused.over()
      expect(refused.error).toMatchObject({ refusal: 'malformed' })
      const caller = send(server, upgrade())
      const upstream = await next()
      upstream.response.responseHead({ ...switching, headers: [name, 'x'] })
      await caller.over()
      expect(caller.error?.reason).toBe('upstream-broken')
    },
  )

  test('a reset passes in either direction', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const first = send(server, upgrade())
    const upstream = await next()
    upstream.response.responseHead(switching)
    await first.until(self => self.status === 101)
    first.sink.requestAbort(new SallyportError('cancelled'))
    await upstream.over()
    expect(upstream.error?.reason).toBe('cancelled')
    const second = send(server, upgrade())
    const other = await next()
    other.response.responseHead(switching)
    other.response.responseAbort(new SallyportError('upstream-broken'))
    await second.over()
    expect(second.error?.reason).toBe('upstream-broken')
  })

  describe('when the session leaves', () => {
    const masked = Buffer.concat([Buffer.from([0x82, 0x85, 1, 2, 3, 4]), Buffer.alloc(5)])
    const plain = Buffer.concat([Buffer.from([0x82, 0x05]), Buffer.alloc(5)])
    const reason = 'this connection is being moved: connect again'
    const close = closeFrame(1001, false, reason)

    async function open() {
      const { handler, next } = upstreams()
      const { server, client } = tunnel(handler)
      const caller = send(server, upgrade())
      const upstream = await next()
      upstream.response.responseHead(switching)
      await caller.until(self => self.status === 101)
      return { server, client, caller, upstream }
    }

    test('both directions get a Close between two frames, and end', async () => {
      const { server, client, caller, upstream } = await open()
      caller.sink.requestData(masked)
      upstream.response.responseData(plain)
      await Promise.all([upstream.until(self => self.bytes === 11), caller.until(self => self.bytes === 7)])
      server.leave()
      expect(caller.text.slice(7)).toBe(close.toString('latin1'))
      expect(caller.events.at(-1)).toBe('end')
      await upstream.over()
      const frame = Buffer.from(upstream.text.slice(11), 'latin1')
      expect([frame[0], frame[1]! & 0x80, frame.length]).toEqual([0x88, 0x80, close.length + 4])
      expect([frame[6]! ^ frame[2]!, frame[7]! ^ frame[3]!]).toEqual([0x03, 0xe9])
      // What the ends still say is discarded, and credited.
      caller.sink.requestData(Buffer.alloc(8))
      expect(caller.credit).toBe(11 + 8)
      upstream.response.responseData(close)
      upstream.response.responseEnd([])
      await new Promise(done => client.ping(done))
      expect(caller.bytes).toBe(7 + close.length)
      expect([server.streams, client.streams, server.bufferedBytes]).toEqual([0, 0, 0])
    })

    test('a frame in progress is completed first', async () => {
      const { server, caller, upstream } = await open()
      upstream.response.responseData(plain.subarray(0, 3))
      await caller.until(self => self.bytes === 3)
      server.leave()
      await new Promise(done => server.ping(done))
      expect(caller.events).toEqual(['head 101', 'data'])
      upstream.response.responseData(Buffer.concat([plain.subarray(3), plain]))
      await caller.over()
      expect(caller.text).toBe(Buffer.concat([plain, close]).toString('latin1'))
      await upstream.until(self => self.credit === 14)
    })

    test("the ends' own Close is left alone", async () => {
      const { server, caller, upstream } = await open()
      upstream.response.responseData(close.subarray(0, 1))
      await caller.until(self => self.bytes === 1)
      server.leave()
      upstream.response.responseData(close.subarray(1))
      upstream.response.responseEnd([])
      await caller.over()
      expect(caller.text).toBe(close.toString('latin1'))
    })

    test('before the 101, it is closed right after it', async () => {
      const { handler, next } = upstreams()
      const { server } = tunnel(handler)
      const caller = send(server, upgrade())
      const upstream = await next()
      server.leave()
      upstream.response.responseHead(switching)
      await Promise.all([caller.over(), upstream.over()])
      expect(caller.text).toBe(close.toString('latin1'))
    })

    test('exchanges other than upgrades go on', async () => {
      const { handler, next } = upstreams()
      const { server } = tunnel(handler)
      const caller = send(server)
      const upstream = await next()
      server.leave()
      upstream.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      upstream.response.responseData(Buffer.from('page'))
      upstream.response.responseEnd([])
      await caller.over()
      expect(caller.events).toEqual(['head 200', 'data', 'end'])
    })
  })

  test('an ordinary answer with a body of unknown length', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, upgrade())
    const upstream = await next()
    upstream.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
    upstream.response.responseData(Buffer.from('page'))
    upstream.response.responseEnd(['a', 'b'])
    await caller.over()
    expect([caller.text, caller.trailers]).toEqual(['page', ['a', 'b']])
  })
})
