import { afterEach, describe, expect, test, vi } from 'vitest'
import { BODY_UNKNOWN } from '../../../../protocol/exchange.ts'
import { EARLY_ANSWER_MS } from '../../../../protocol/wire/exchange/answer.ts'
import { post, send, tunnel, upstreams } from './support.ts'

afterEach(() => {
  vi.useRealTimers()
})

const head = (status: number) => ({ status, headers: [], bodyBytes: BODY_UNKNOWN })

describe('an answer before the end of the request', () => {
  test('arrives whole; then the sender of the body stops, and its source is not left waiting', async () => {
    const { handler, next } = upstreams()
    const { server, client } = tunnel(handler, { initialWindowBytes: 65_536, maxWindowBytes: 65_536 })
    const caller = send(server, post())
    for (let i = 0; i < 20; i++) caller.sink.requestData(Buffer.alloc(50_000))
    const upstream = await next()
    upstream.take = () => {}
    upstream.response.responseHead(head(413))
    upstream.response.responseData(Buffer.alloc(200_000))
    upstream.response.responseEnd([])
    await caller.over()
    expect(caller.events).toEqual(['head 413', 'data', 'end'])
    expect(caller.bytes).toBe(200_000)
    await upstream.until(self => self.error !== undefined)
    expect(upstream.error?.reason).toBe('cancelled')
    await caller.until(self => self.credit === 1_000_000)
    caller.sink.requestData(Buffer.alloc(1_000))
    expect(caller.credit).toBe(1_001_000)
    caller.sink.requestEnd([])
    expect([server.streams, client.streams]).toEqual([0, 0])
  })

  test('a request that ends in the meantime ends cleanly', async () => {
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, post())
    const upstream = await next()
    upstream.response.responseHead(head(200))
    await caller.until(self => self.status === 200)
    caller.sink.requestEnd(['x-late', '1'])
    await upstream.over()
    expect(upstream.trailers).toEqual(['x-late', '1'])
    upstream.response.responseEnd([])
    await caller.over()
    expect(caller.trailers).toEqual([])
  })

  test('a sender that does not stop within 5 s is reset', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { handler, next } = upstreams()
    const { server, client, accepted } = tunnel(handler)
    const caller = send(server, post())
    // A peer that neither reads its response nor stops: our own end would reset at once.
    const resets: string[] = []
    caller.stream.handler = { data() {}, end() {}, reset: code => resets.push(code), consumed() {} }
    const upstream = await next()
    upstream.response.responseHead(head(413))
    upstream.response.responseEnd([])
    await new Promise(done => client.ping(done))
    vi.advanceTimersByTime(EARLY_ANSWER_MS - 1)
    expect(accepted[0]!.closed).toBe(false)
    vi.advanceTimersByTime(1)
    expect(accepted[0]!.closed).toBe(true)
    expect(upstream.error?.reason).toBe('cancelled')
    await new Promise(done => client.ping(done))
    expect(resets).toEqual(['cancelled'])
    expect(server.streams).toBe(0)
  })

  test('arrives whole, however long its receiver takes', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { handler, next } = upstreams()
    const { server, client } = tunnel(handler, { initialWindowBytes: 262_144, maxWindowBytes: 262_144 })
    const caller = send(server, post())
    const upstream = await next()
    upstream.take = () => {}
    caller.take = () => {}
    upstream.response.responseHead(head(200))
    upstream.response.responseData(Buffer.alloc(300_000))
    upstream.response.responseEnd([])
    await new Promise(done => client.ping(done))
    vi.advanceTimersByTime(2 * EARLY_ANSWER_MS)
    await new Promise(done => client.ping(done))
    caller.sink.responseConsumed(caller.bytes)
    await caller.over()
    expect(caller.events).toEqual(['head 200', 'data', 'end'])
    expect(caller.bytes).toBe(300_000)
    await upstream.until(self => self.error !== undefined)
    expect(upstream.error?.reason).toBe('cancelled')
  })

  test('no timer remains when the request has ended or was reset', async () => {
    const set = vi.spyOn(globalThis, 'setTimeout')
    const clear = vi.spyOn(globalThis, 'clearTimeout')
    const { handler, next } = upstreams()
    const { server } = tunnel(handler)
    const caller = send(server, post())
    const upstream = await next()
    upstream.response.responseHead(head(413))
    upstream.response.responseEnd([])
    // Sessions have their own timers.
    const at = set.mock.calls.findIndex(([, ms]) => ms === EARLY_ANSWER_MS)
    expect(at).toBeGreaterThanOrEqual(0)
    const timer = set.mock.results[at]?.value
    await caller.over()
    await upstream.until(self => self.error !== undefined)
    expect(clear.mock.calls.flat()).toContain(timer)
  })
})
