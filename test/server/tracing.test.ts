/** The spans of requests that cross a server, over real sockets. */

import { afterEach, describe, expect, test } from 'vitest'
import { discarding } from '../../protocol/base/guard.ts'
import { getAllHeaders } from '../../protocol/http/headers.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Server } from '../../server/server.ts'
import { Spans, waterfall } from '../support/spans.ts'
import { until } from '../support/until.ts'
import { always, answer, call, dial, HOST, startServer } from './fixture.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'
const headers = { traceparent: `00-${TRACE}-${PARENT}-01`, tracestate: 'vendor=1' }
const SHOWN = ['http.request.method', 'http.response.status_code', 'http.request.resend_count', 'error.type'] as const

let server: Server | undefined
afterEach(() => server?.close({ graceMs: 0 }))

async function traced(options: Parameters<typeof startServer>[0] = {}) {
  const spans = new Spans()
  server = await startServer({ trustedProxies: ['127.0.0.1'], tracing: { tracer: spans.tracer }, ...options })
  return { spans, server }
}

/** What the client was told about the trace. */
function telling(): { handler: ExchangeHandler; told: string[][] } {
  const told: string[][] = []
  return {
    told,
    handler: (_preamble, request, response) => {
      told.push([...getAllHeaders(request.headers, 'traceparent'), ...getAllHeaders(request.headers, 'tracestate')])
      answer(response, 200, 'ok')
      return discarding(response)
    },
  }
}

describe('waterfalls', () => {
  test('a request: the client receives the span of the attempt', async () => {
    const { spans } = await traced()
    const { handler, told } = telling()
    await dial(server!, { handler })
    await call(server!, HOST, '/hello?secret=1', { headers })
    const whole = await spans.named('GET')
    expect(waterfall(spans.finished, ...SHOWN)).toEqual([
      'GET server http.request.method=GET http.response.status_code=200',
      '  tunnel client http.request.method=GET http.response.status_code=200',
    ])
    expect(whole).toMatchObject({ traceId: TRACE, parentId: PARENT, attributes: { 'sallyport.runtime': 'demo' } })
    const { spanId } = await spans.named('tunnel')
    expect(told).toEqual([[`00-${TRACE}-${spanId}-01`, 'vendor=1']])
    expect(JSON.stringify(spans.finished)).not.toContain('secret')
  })

  test('a request that waits for a session, loses it, and waits for the next', async () => {
    const { spans } = await traced({ hold: { holdMs: 60_000 } })
    const calling = call(server!, HOST, '/', { headers })
    await until(() => server!.stats().held === 1)
    let lose = () => {}
    const losing = await dial(server!, {
      handler: (_preamble, _request, response) => {
        lose()
        return discarding(response)
      },
      notReady: true,
    })
    lose = () => losing.ws.terminate()
    losing.session.control({ type: 'ready' })
    await losing.closed
    await dial(server!, { handler: always('ok') })
    expect((await calling).status).toBe(200)
    await spans.named('GET')
    expect(waterfall(spans.finished, ...SHOWN, 'sallyport.reason')).toEqual([
      'GET server http.request.method=GET http.response.status_code=200',
      '  hold internal sallyport.reason=runtime-offline',
      '  tunnel client FAILED http.request.method=GET error.type=session-lost',
      '  hold internal sallyport.reason=session-lost',
      '  tunnel client http.request.method=GET http.response.status_code=200 http.request.resend_count=1',
    ])
  })

  test('a request that nobody serves', async () => {
    const { spans } = await traced()
    expect((await call(server!, HOST, '/', { headers })).status).toBe(503)
    await spans.named('GET')
    expect(waterfall(spans.finished, ...SHOWN)).toEqual([
      'GET server FAILED http.request.method=GET http.response.status_code=503 error.type=runtime-offline',
    ])
  })

  test('a call by the embedder has the trace that it names', async () => {
    const { spans } = await traced({ trustedProxies: [] })
    await dial(server!, { handler: always('ok') })
    await (await server!.fetch('demo', new Request(`https://${HOST}/x`, { headers }))).text()
    expect(await spans.named('GET')).toMatchObject({ traceId: TRACE, parentId: PARENT })
  })
})

describe('off', () => {
  test('contexts pass unchanged', async () => {
    server = await startServer()
    const { handler, told } = telling()
    await dial(server, { handler })
    await call(server, HOST, '/', { headers })
    expect(told).toEqual([[headers.traceparent, 'vendor=1']])
  })
})

test('a sink that throws affects nobody', async () => {
  const { createTracer } = await import('../../tracing/index.ts')
  const lines: string[] = []
  const say = (_fields: object, message: string) => void lines.push(message)
  const logger = { debug: say, info: say, warn: say, error: say }
  const tracer = createTracer(() => {
    throw new Error('full')
  }, logger)
  await traced({ tracing: { tracer, ratio: 1 } })
  await dial(server!, { handler: always('ok') })
  expect((await call(server!, HOST)).status).toBe(200)
  expect(lines).toContain('the sink of spans threw')
})
