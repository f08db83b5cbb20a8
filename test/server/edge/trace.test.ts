/** Which trace a request is part of, and what later hops see of it. */
import { describe, expect, test } from 'vitest'
import { parseCidrs } from '../../../protocol/base/address.ts'
import { type ErrorCode, SallyportError } from '../../../protocol/base/errors.ts'
import { BODY_UNKNOWN, type HttpRequest } from '../../../protocol/exchange.ts'
import { callers } from '../../../protocol/http/forwarded.ts'
import { compose } from '../../../protocol/layer.ts'
import { resolveTracing } from '../../../protocol/trace/sampling.ts'
import { trace } from '../../../server/edge/trace.ts'
import { EXCHANGE, ends } from '../../support/ends.ts'
import { Spans, waterfall } from '../../support/spans.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'
const field = (flags: string) => ['traceparent', `00-${TRACE}-${PARENT}-${flags}`]

/** Sends a request through the layers of an edge that trusts 10.0.0.0/8. */
function send(given: Partial<HttpRequest>, options: { ratio?: number; parentBased?: boolean } = {}) {
  const spans = new Spans()
  const both = ends()
  const tracing = resolveTracing({ tracer: spans.tracer, ...options })
  const layers = [callers(parseCidrs(['10.0.0.0/8'])), trace(tracing, request => request.fromTrustedProxy === true)]
  const request = { ...EXCHANGE, caller: undefined, peerAddress: '10.1.2.3', ...given }
  const sink = compose(layers, both.next)(request, both.front)
  const fields = both.request!.headers
  const value = (name: string) => fields.filter((_, i) => i % 2 === 1 && fields[i - 1] === name)
  return { spans, both, sink, parent: value('traceparent'), state: value('tracestate'), span: both.request!.span }
}

describe("a trusted proxy's context", () => {
  test('that is sampled is joined: later spans are children of ours', () => {
    const { span, parent, both, sink, spans } = send({ headers: [...field('01'), 'tracestate', 'a=1'] })
    expect(span?.context).toMatchObject({ traceId: TRACE, sampled: true, state: 'a=1' })
    expect(parent).toEqual([`00-${TRACE}-${span?.context.spanId}-01`])
    sink.requestEnd([])
    both.response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
    both.response.responseEnd([])
    expect(spans.finished).toMatchObject([
      { traceId: TRACE, parentId: PARENT, spanId: span?.context.spanId, state: 'a=1' },
    ])
  })

  test('that is not sampled goes on with an id of ours, and nothing is recorded', () => {
    const { span, parent, state } = send({ headers: [...field('00'), 'tracestate', 'a=1'] }, { ratio: 1 })
    expect(span).toBeUndefined()
    expect(parent).toEqual([expect.stringMatching(`^00-${TRACE}-(?!${PARENT})[0-9a-f]{16}-00$`)])
    expect(state).toEqual(['a=1'])
  })

  test('of a later version goes on as version 00', () => {
    expect(send({ headers: ['traceparent', `cc-${TRACE}-${PARENT}-00-more`] }).parent).toEqual([
      expect.stringMatching(`^00-${TRACE}-[0-9a-f]{16}-00$`),
    ])
  })

  test.each([
    ['version ff', `ff-${TRACE}-${PARENT}-01`],
    ['zeros', `00-${'0'.repeat(32)}-${PARENT}-01`],
    ['upper case', `00-${TRACE.toUpperCase()}-${PARENT}-01`],
  ])('that breaks the rules is not passed on, nor is its state: %s', (_name, value) => {
    const { span, parent, state } = send({ headers: ['traceparent', value, 'tracestate', 'a=1'] })
    expect([span, parent, state]).toEqual([undefined, [], []])
  })
})

describe('a stranger', () => {
  const peerAddress = '192.0.2.7'
  test('cannot make us record, nor choose a trace', () => {
    const headers = [...field('01'), 'tracestate', 'a=1']
    expect(send({ peerAddress, headers })).toMatchObject({ span: undefined, parent: [], state: [] })
    const sampled = send({ peerAddress, headers: [...headers] }, { ratio: 1 })
    expect(sampled.span?.context.traceId).not.toBe(TRACE)
    expect(sampled.span?.context.state).toBeUndefined()
  })

  test('without a context, nothing changes', () => {
    const { both } = send({ peerAddress, headers: ['a', '1'] })
    expect(both.request?.headers).toEqual(['a', '1', 'x-request-id', both.request?.requestId])
  })
})

test('a sampling rate applies by trace id, whatever others record', () => {
  const low = `00-${'1'.repeat(19)}${'0'.repeat(13)}-${PARENT}-00`
  const high = `00-${'1'.repeat(19)}${'f'.repeat(13)}-${PARENT}-01`
  const options = { ratio: 0.5, parentBased: false }
  expect(send({ headers: ['traceparent', low] }, options).span).toBeDefined()
  expect(send({ headers: ['traceparent', high] }, options)).toMatchObject({
    span: undefined,
    parent: [expect.stringMatching(/-00$/)],
  })
})

describe('what a span contains', () => {
  const over = (given: Partial<HttpRequest>, end: (both: ReturnType<typeof send>['both']) => void) => {
    const sent = send({ headers: ['user-agent', 'curl/8'], ...given }, { ratio: 1 })
    sent.sink.requestEnd([])
    end(sent.both)
    return sent.spans.finished[0]!
  }
  const cutWith = (code: ErrorCode) =>
    over({}, both => {
      both.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      both.response.responseAbort(new SallyportError(code))
    })
  const answer = (status: number, headers: string[] = []) =>
    over({}, ({ response }) => {
      response.responseHead({ status, headers, bodyBytes: 0 })
      response.responseEnd([])
    })

  test("the names are OpenTelemetry's, and none contains a query", () => {
    const span = answer(200)
    expect(span).toMatchObject({ name: 'GET', kind: 'server', failed: false })
    expect(span.attributes).toEqual({
      'http.request.method': 'GET',
      'server.address': 'demo.example',
      'server.port': 80,
      'url.scheme': 'http',
      'url.path': '/x',
      'client.address': '10.1.2.3',
      'user_agent.original': 'curl/8',
      'sallyport.request_id': expect.stringMatching(/^[0-9a-f-]{36}$/),
      'http.response.status_code': 200,
    })
  })

  test.each([
    ['a 404', () => answer(404), []],
    ['a 500', () => answer(500), ['FAILED', 'error.type=500']],
    ['a refusal of ours', () => answer(503, ['sallyport-error', 'overloaded']), ['FAILED', 'error.type=overloaded']],
    [
      'a break',
      () => over({}, ({ response }) => response.responseAbort(new SallyportError('session-lost'))),
      ['FAILED', 'error.type=session-lost'],
    ],
    ['a cut', () => cutWith('session-lost'), ['FAILED', 'error.type=session-lost']],
    ['a caller that leaves during the answer', () => cutWith('cancelled'), []],
  ])('%s', (_name, run, expected) => {
    expect(waterfall([run()], 'error.type')).toEqual([['GET', 'server', ...expected].join(' ')])
  })

  test('a caller that leaves is not a failure', () => {
    const sent = send({ headers: [] }, { ratio: 1 })
    sent.sink.requestAbort(new SallyportError('cancelled'))
    expect(waterfall(sent.spans.finished, 'error.type')).toEqual(['GET server'])
  })

  test('made-up methods do not become names', () => {
    const sent = send({ headers: [], method: 'BREW' }, { ratio: 1 })
    sent.sink.requestAbort(new SallyportError('cancelled'))
    expect(sent.spans.finished[0]).toMatchObject({
      name: 'HTTP',
      attributes: { 'http.request.method': '_OTHER', 'http.request.method_original': 'BREW' },
    })
  })
})

test('without tracing there is no layer at all', () => {
  const { next } = ends()
  expect(trace(undefined, () => true)(next)).toBe(next)
})

test('meaningless options are refused', () => {
  expect(() => resolveTracing({ tracer: undefined as never })).toThrow(/^tracing.tracer is required/)
  expect(() => resolveTracing({ tracer: new Spans().tracer, ratio: 2 })).toThrow(/^tracing.ratio must be from 0 to 1/)
})
