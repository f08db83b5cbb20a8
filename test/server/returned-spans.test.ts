/** What a server accepts of its clients' trace reports: spans of what it gave them, once. */

import { afterEach, describe, expect, test } from 'vitest'
import { discarding } from '../../protocol/base/guard.ts'
import { getHeader } from '../../protocol/http/headers.ts'
import type { AttributeValue } from '../../protocol/trace/span.ts'
import type { ReturnedRequest, ReturnedSpan } from '../../protocol/wire/control.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import { ReturnedSpans, type SpanReport } from '../../server/control/returned-spans.ts'
import type { Server } from '../../server/server.ts'
import { createTracer } from '../../tracing/index.ts'
import { Spans } from '../support/spans.ts'
import { answer, call, DOMAIN, dial, startServer, type TestClient } from './fixture.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const headers = { traceparent: `00-${TRACE}-b7ad6b7169203331-01` }

let server: Server | undefined
afterEach(() => server?.close({ graceMs: 0 }))

interface Peer {
  readonly client: TestClient
  /** Has a request sent to it, and returns the request's span. */
  given(flags?: string): Promise<string>
  /** Reports, and waits until the server has read that. */
  tell(...requests: ReturnedRequest[]): Promise<void>
}

async function connect(runtime: string, features = ['spans']): Promise<Peer> {
  const told: string[] = []
  const handler: ExchangeHandler = (_preamble, request, response) => {
    told.push(getHeader(request.headers, 'traceparent') ?? '')
    answer(response, 200, 'ok')
    return discarding(response)
  }
  const client = await dial(server!, { runtime, handler, hello: { features } })
  return {
    client,
    async given(flags = '01') {
      await call(server!, `${runtime}.${DOMAIN}`, '/', {
        headers: { traceparent: headers.traceparent.slice(0, -2) + flags },
      })
      return told.at(-1)!.slice(36, 52)
    },
    async tell(...requests) {
      client.session.control({ type: 'spans', requests })
      const read = new Promise<number>(resolve => client.session.ping(resolve))
      await Promise.race([read, client.closed])
    },
  }
}

async function start(): Promise<Spans> {
  const spans = new Spans()
  server = await startServer({ trustedProxies: ['127.0.0.1'], tracing: { tracer: spans.tracer } })
  return spans
}

const span = (parent: string, more: Partial<ReturnedSpan> = {}): ReturnedSpan => ({
  ...{ id: '00f067aa0ba902b7', parent, name: 'GET', kind: 'server', at: 0, took: 1000, ...more },
})
const reported = (spans: Spans) =>
  spans.finished.filter(({ attributes }) => attributes['sallyport.reported_by'] === 'client')

test('spans of what its session was given go on, in their trace, and marked', async () => {
  const spans = await start()
  const peer = await connect('demo')
  const of = await peer.given()
  const attributes = {
    'http.response.status_code': 200,
    'client.address': '6.6.6.6',
    'sallyport.reported_by': 'edge',
    'sallyport.runtime': 'other',
  }
  await peer.tell({ of, spans: [span(of, { attributes, failed: true })] })
  expect(reported(spans)).toEqual([
    expect.objectContaining({
      ...{
        traceId: TRACE,
        parentId: of,
        spanId: '00f067aa0ba902b7',
        name: 'GET',
        kind: 'server',
        failed: true,
        links: [],
      },
      attributes: {
        'http.response.status_code': 200,
        'sallyport.reported_by': 'client',
        'sallyport.runtime': 'demo',
        'sallyport.session': expect.any(String),
      },
    }),
  ])
})

describe('is dropped', () => {
  const hostile: [string, (peer: Peer, other: Peer, of: string) => ReturnedRequest | Promise<ReturnedRequest>][] = [
    ['a span that nobody was given', () => ({ of: 'a'.repeat(16), spans: [span('a'.repeat(16))] })],
    ['one of the proxy in front', () => ({ of: 'b7ad6b7169203331', spans: [span('b7ad6b7169203331')] })],
    [
      "one of another client's",
      async (_peer, other) => {
        const of = await other.given()
        return { of, spans: [span(of)] }
      },
    ],
    [
      'one that is not recorded',
      async peer => {
        const of = await peer.given('00')
        return { of, spans: [span(of)] }
      },
    ],
    ['a parent that is none of theirs', (_peer, _other, of) => ({ of, spans: [span('b7ad6b7169203331')] })],
    ['one with the id of the attempt', (_peer, _other, of) => ({ of, spans: [span(of, { id: of })] })],
    ['one that is its own parent', (_peer, _other, of) => ({ of, spans: [span('00f067aa0ba902b7')] })],
    ['the same id twice', (_peer, _other, of) => ({ of, spans: [span(of), span(of)] })],
    [
      'a circle',
      (_peer, _other, of) => ({
        of,
        spans: [span('b'.repeat(16), { id: 'a'.repeat(16) }), span('a'.repeat(16), { id: 'b'.repeat(16) })],
      }),
    ],
  ]
  test.each(hostile)('%s', async (_name, make) => {
    const spans = await start()
    const [peer, other] = [await connect('demo'), await connect('other')]
    const of = await peer.given()
    await peer.tell(await make(peer, other, of))
    expect(reported(spans)).toEqual([])
    // The canary: it may still report its own spans.
    const next = await peer.given()
    await peer.tell({ of: next, spans: [span(next)] })
    expect(reported(spans)).toHaveLength(1)
  })

  test.each<[string, AttributeValue[]]>([
    ['http.response.status_code', [1e308, 2 ** 63, -1, 0.5, '200', true]],
    ['server.port', [65_536, 1e21, '80']],
    ['url.full', [7, false]],
    ['error.type', [7]],
    ['sallyport.cut', ['yes', 1]],
  ])('%s in another form: a receiver would refuse everything that arrives with it', async (name, values) => {
    const spans = await start()
    const peer = await connect('demo')
    for (const value of values) {
      const of = await peer.given()
      await peer.tell({ of, spans: [span(of, { attributes: { [name]: value, 'http.route': '/' } })] })
    }
    const told = reported(spans).map(({ attributes }) => [attributes[name], attributes['http.route']])
    expect(told).toEqual(values.map(() => [undefined, '/']))
  })

  test('a span in the future', async () => {
    const spans = await start()
    const peer = await connect('demo')
    const of = await peer.given()
    const dayMs = 86_400_000
    await peer.tell({ of, spans: [span(of, { at: dayMs * 1000, took: dayMs * 1000 })] })
    const [told] = reported(spans)
    const attempt = spans.finished.find(({ spanId }) => spanId === of)!
    expect(told!.startMs).toBeGreaterThanOrEqual(attempt.startMs)
    expect(told!.endMs).toBeGreaterThanOrEqual(told!.startMs)
    expect(told!.endMs).toBeLessThan(attempt.startMs + dayMs)
  })

  test('the second report about a request', async () => {
    const spans = await start()
    const peer = await connect('demo')
    const of = await peer.given()
    const told = { of, spans: [span(of)] }
    await peer.tell(told, told)
    await peer.tell(told)
    expect(reported(spans)).toHaveLength(1)
    expect(server!.stats().spansReturned).toEqual({ taken: 1, refused: 2 })
  })

  test('everything without the feature', async () => {
    const spans = await start()
    const peer = await connect('demo', [])
    const of = await peer.given()
    await peer.tell({ of, spans: [span(of)] })
    expect(reported(spans)).toEqual([])
    expect(server!.stats().spansReturned).toEqual({ taken: 0, refused: 0 })
  })
})

describe('for an attempt of another replica', () => {
  const of = 'a'.repeat(16)
  const report = (...requests: ReturnedRequest[]) => ({ session: 's', runtime: 'demo', rttMs: 1, requests })
  const good = { of, spans: [span(of)] }

  /** What the other replica was told, with sessions `s` and `t` here. */
  function relaying() {
    const [own, told] = [[] as unknown[], [] as unknown[]]
    const returned = new ReturnedSpans(span => void own.push(span))
    returned.giveFor('s', of, report => void told.push(report))
    return { returned, own, told }
  }

  test('goes there unchanged, once', () => {
    const { returned, own, told } = relaying()
    returned.take('s', report(good, good))
    returned.take('s', report(good))
    expect(told).toEqual([report(good)])
    expect(own).toEqual([])
    expect(returned.stats).toEqual({ taken: 0, refused: 2 })
  })

  test('is dropped if another session reports it, or it is not a tree', () => {
    const { returned, told } = relaying()
    returned.take('t', report(good))
    returned.take('s', report({ of, spans: [span(of, { id: of })] }))
    expect(told).toEqual([])
    expect(returned.stats).toEqual({ taken: 0, refused: 2 })
  })

  test('goes in one message per replica', () => {
    const { returned, told } = relaying()
    const [second, third] = ['b'.repeat(16), 'c'.repeat(16)].map(of => ({ of, spans: [span(of)] }))
    const tell = (report: SpanReport) => void told.push(report)
    for (const { of } of [second!, third!]) returned.giveFor('s', of, tell)
    returned.take('s', report(good, second!, third!))
    expect(told).toEqual([report(good), report(second!, third!)])
  })

  test('is accepted there only from the hop that had the attempt', () => {
    const { returned, own } = relaying()
    const attempt = new Spans().tracer.start('hop', 'client', undefined)
    returned.give('replica:far~1', attempt)
    const about = { of: attempt.context.spanId, spans: [span(attempt.context.spanId)] }
    returned.take('replica:other~1', report(about))
    returned.take('s', report(about))
    expect(own).toEqual([])
    returned.take('replica:far~1', report(about))
    expect(own).toEqual([
      expect.objectContaining({ parentId: attempt.context.spanId, traceId: attempt.context.traceId }),
    ])
  })
})

describe('ends the session', () => {
  test.each([
    ['more spans of a request than eight', (of: string) => ({ of, spans: Array.from({ length: 9 }, () => span(of)) })],
    ['a time that is none', (of: string) => ({ of, spans: [span(of, { took: -1 })] })],
    ['an id that is none', (of: string) => ({ of, spans: [span(of, { id: 'x' })] })],
    ['a text that is too long', (of: string) => ({ of, spans: [span(of, { name: 'x'.repeat(257) })] })],
    ['an attribute that is no value', (of: string) => ({ of, spans: [span(of, { attributes: { a: {} as never } })] })],
  ])('%s', async (_name, make) => {
    const spans = await start()
    const peer = await connect('demo')
    await peer.tell(make(await peer.given()))
    expect(await peer.client.closed).toEqual({ code: 1002, reason: 'protocol error' })
    expect(reported(spans)).toEqual([])
  })

  test('a flood of messages', async () => {
    await start()
    const peer = await connect('demo')
    for (let i = 0; i < 400; i++) peer.client.session.control({ type: 'spans', requests: [] })
    expect(await peer.client.closed).toEqual({ code: 1002, reason: 'too many control messages' })
  })
})

test('a server offers it if it traces and exports spans', async () => {
  const offered = async (tracing: Parameters<typeof startServer>[0]) => {
    server = await startServer(tracing)
    const client = await dial(server, { hello: { features: ['spans'] } })
    const { features } = client.messages.find(({ type }) => type === 'welcome') as { features?: string[] }
    await server.close({ graceMs: 0 })
    return features
  }
  const { add: _add, ...bridged } = createTracer(() => {})
  expect(await offered({})).toEqual([])
  expect(await offered({ tracing: { tracer: bridged } })).toEqual([])
  expect(await offered({ tracing: { tracer: createTracer(() => {}) } })).toEqual(['spans'])
})
