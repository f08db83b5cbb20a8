/**
 * What the tracing layer costs per request, in this process. Nothing else runs.
 *
 *     node load-tests/tracing-quick.ts [rounds]
 *
 * Each figure is the best of the rounds, minus the cost of the same request without the layer.
 */
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseSink } from '../protocol/exchange.ts'
import { resolveTracing, type TracingOptions } from '../protocol/trace/sampling.ts'
import { createTracer } from '../protocol/trace/tracer.ts'
import { trace } from '../server/edge/trace.ts'

const REQUESTS = 200_000
const TRACE = '0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331'
const FIELDS =
  'host a.example accept */* accept-encoding gzip user-agent bench/1 cookie a=b x-request-id 1234 cache-control no-cache'.split(
    ' ',
  )

const nothing = () => {}
const response: ResponseSink = {
  responseInformational: nothing,
  responseHead: nothing,
  responseData: nothing,
  responseEnd: nothing,
  responseAbort: nothing,
  requestConsumed: nothing,
}
const sink: RequestSink = {
  requestData: nothing,
  requestEnd: nothing,
  requestAbort: nothing,
  responseConsumed: nothing,
}
const HEAD = { status: 200, headers: [], bodyBytes: 0 }
/** Reads what the layer wrote, like the wire does. */
let read = 0
const next: Handler = ({ headers }, back) => {
  for (const text of headers) read += text.charCodeAt(text.length - 1)
  back.responseHead(HEAD)
  back.responseEnd([])
  return sink
}

function requestWith(fields: readonly string[], fromTrustedProxy: boolean): HttpRequest {
  const headers: HeaderList = [...FIELDS, ...fields]
  return {
    ...{ method: 'GET', authority: 'a.example', path: '/x?y=1', headers, bodyBytes: 0, upgrade: false },
    ...{ peerAddress: '10.0.0.1', encrypted: true, fromTrustedProxy, requestId: '1234', exchangeId: undefined },
    caller: { address: '192.0.2.7', scheme: 'https', host: 'a.example' },
  }
}

/** Microseconds per request. */
function time(handler: Handler, fields: readonly string[], fromTrustedProxy: boolean): number {
  const from = process.hrtime.bigint()
  for (let i = 0; i < REQUESTS; i++) handler(requestWith(fields, fromTrustedProxy), response).requestEnd([])
  return Number(process.hrtime.bigint() - from) / 1000 / REQUESTS
}

let spans = 0
const tracer = createTracer(() => void spans++)
const layer = (options: Omit<TracingOptions, 'tracer'>): Handler =>
  trace(resolveTracing({ tracer, ...options }), ({ fromTrustedProxy }) => fromTrustedProxy === true)(next)

const unsampled = ['traceparent', `00-${TRACE}-00`]
const state = ['tracestate', 'congo=t61rcWkgMzE,rojo=00f067aa0ba902b7']
const CASES: readonly [string, Handler, readonly string[], boolean][] = [
  ['tracing off', trace(undefined, () => true)(next), unsampled, true],
  ['on, no context', layer({}), [], true],
  ['on, no context, a share of 1 in a million', layer({ ratio: 1e-6 }), [], true],
  ['on, a context of a stranger', layer({}), unsampled, false],
  ['on, a context that is not sampled', layer({}), unsampled, true],
  ['on, the same with a state', layer({}), [...unsampled, ...state], true],
  ['on, a context that is sampled', layer({}), ['traceparent', `00-${TRACE}-01`, ...state], true],
]

const rounds = Number(process.argv[2] ?? 7)
const best = CASES.map(() => [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY])
for (let round = 0; round < rounds; round++) {
  for (const [i, [, handler, fields, fromTrustedProxy]] of CASES.entries()) {
    best[i]![0] = Math.min(best[i]![0]!, time(next, fields, fromTrustedProxy))
    best[i]![1] = Math.min(best[i]![1]!, time(handler, fields, fromTrustedProxy))
  }
}
for (const [i, [name]] of CASES.entries()) console.log(`${(best[i]![1]! - best[i]![0]!).toFixed(2)} us  ${name}`)
console.log(`(${spans} spans, ${read})`)
