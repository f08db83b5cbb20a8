/** What a client returns of its spans: little, seldom, and nothing that a server could not read. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { SpanReturn } from '../../client/span-return.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { MAX_CONTROL_BYTES, parseControl, type SpansReturned } from '../../protocol/wire/control.ts'

const PARENT = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331', sampled: true }

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function start() {
  const sent: SpansReturned[] = []
  const guard = guardWith(error => {
    throw error
  })
  // In the form of the wire.
  const send = (message: SpansReturned) => void sent.push(parseControl(JSON.stringify(message)) as SpansReturned)
  const tracer = new SpanReturn({ guard, send })
  const requests = () => sent.flatMap(message => message.requests)
  return { tracer, sent, requests }
}

test("a request's spans are sent when it ends, children first", async () => {
  const { tracer, requests } = start()
  const whole = tracer.start('GET', 'server', PARENT)
  const call = whole.child('GET', 'client')
  call.set('url.full', 'http://a/x')
  call.end('502')
  vi.advanceTimersByTime(1000)
  expect(requests()).toEqual([])
  whole.end()
  await Promise.resolve()
  call.child('late', 'internal').end()
  vi.advanceTimersByTime(1000)
  const time = { at: expect.any(Number), took: expect.any(Number) }
  expect(requests()).toEqual([
    {
      of: PARENT.spanId,
      spans: [
        {
          ...{ id: call.context.spanId, parent: whole.context.spanId, name: 'GET', kind: 'client', failed: true },
          ...{ attributes: { 'url.full': 'http://a/x', 'error.type': '502' }, ...time },
        },
        {
          ...{ id: whole.context.spanId, parent: PARENT.spanId, name: 'GET', kind: 'server' },
          ...{ attributes: {}, at: 0, took: expect.any(Number) },
        },
      ],
    },
  ])
})

test('the call of a request that its caller gave up is among them, although it ends after the request', async () => {
  const { tracer, requests } = start()
  const whole = tracer.start('GET', 'server', PARENT)
  const call = whole.child('GET', 'client')
  whole.end()
  call.end()
  await vi.advanceTimersByTimeAsync(1000)
  expect(requests()[0]!.spans.map(({ id }) => id)).toEqual([call.context.spanId, whole.context.spanId])
})

test('only what the edge cannot know is sent, and nothing that a caller chose breaks the session', async () => {
  const { tracer, requests } = start()
  const span = tracer.start(`GET /\x85\n\ud800${'x'.repeat(500)}`, 'server', PARENT)
  span.set('user_agent.original', 's3cret')
  span.set('client.address', '192.0.2.7')
  span.set('url.full', `http://a/\x00\u2028${'y'.repeat(500)}`)
  span.end()
  await vi.advanceTimersByTimeAsync(1000)
  const [sent] = requests()[0]!.spans
  expect(Object.keys(sent!.attributes!)).toEqual(['url.full'])
  expect(sent!.attributes!['url.full']).toMatch(/^http:\/\/a\/\?\?y{245}$/)
  expect(sent!.name).toMatch(/^GET \/\?\?\?x{248}$/)
})

test('a span of an embedder without a name, or of a kind that a server does not read, does not break the session', async () => {
  const { tracer, requests } = start()
  const whole = tracer.start('GET', 'server', PARENT)
  whole.child('', 'producer').end()
  whole.child('take', 'consumer').end()
  whole.end()
  await vi.advanceTimersByTimeAsync(1000)
  expect(requests()[0]!.spans.map(({ name, kind }) => [name, kind])).toEqual([
    ['unnamed', 'internal'],
    ['take', 'internal'],
    ['GET', 'server'],
  ])
})

describe('bounds', () => {
  const traceRequest = (tracer: SpanReturn, parts = 0) => {
    const whole = tracer.start('GET', 'server', PARENT)
    for (let i = 0; i < parts; i++) {
      const part = whole.child('p', 'internal')
      for (const name of ['url.full', 'http.route', 'error.type', 'sallyport.route']) part.set(name, 'x'.repeat(500))
      part.end()
    }
    whole.end()
  }

  test('a message is no longer than a control message, and there are four per second', async () => {
    const { tracer, sent, requests } = start()
    for (let i = 0; i < 1000; i++) traceRequest(tracer)
    await vi.advanceTimersByTimeAsync(1000)
    expect(sent).toHaveLength(4)
    for (const message of sent) expect(JSON.stringify(message).length).toBeLessThanOrEqual(MAX_CONTROL_BYTES)
    await vi.advanceTimersByTimeAsync(60_000)
    // What did not fit was dropped.
    expect(requests().length).toBeLessThan(1000)
    expect(JSON.stringify(requests()).length).toBeLessThanOrEqual(4 * MAX_CONTROL_BYTES)
    traceRequest(tracer)
    await vi.advanceTimersByTimeAsync(250)
    expect(sent.at(-1)!.requests).toHaveLength(1)
  })

  test('a request has at most eight spans, including its own', async () => {
    const { tracer, requests } = start()
    traceRequest(tracer, 20)
    await vi.advanceTimersByTimeAsync(1000)
    expect(requests()[0]!.spans).toHaveLength(8)
    expect(requests()[0]!.spans.at(-1)).toMatchObject({ parent: PARENT.spanId })
  })

  test('closing sends one last message, and nothing after it', async () => {
    const { tracer, sent } = start()
    for (let i = 0; i < 1000; i++) traceRequest(tracer)
    await Promise.resolve()
    tracer.close()
    expect(sent).toHaveLength(1)
    traceRequest(tracer)
    tracer.close()
    await vi.advanceTimersByTimeAsync(60_000)
    expect(vi.getTimerCount()).toBe(0)
  })
})
