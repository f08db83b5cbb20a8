/**
 * One waterfall of both sides, over real TLS, WSS and upstreams: what server, client and router report about one
 * request.
 */

import { EventEmitter, once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { createRouter, type RouteTable } from '../../router/index.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { Spans, waterfall } from '../support/spans.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'
const SHOWN = ['http.response.status_code', 'http.route', 'url.full', 'error.type'] as const

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

/** An upstream, and the trace headers that it received. */
async function startUpstream() {
  const told: unknown[] = []
  const calls = new EventEmitter()
  const server = createServer((request, response) => {
    told.push(request.headers.traceparent)
    if (request.url === '/orders/slow') calls.emit('slow')
    else response.end('ok')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  open.push(() => server.close())
  return { told, calls, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

async function traced(
  table: (upstream: string) => RouteTable,
  server: Spans | undefined,
  client: Spans | 'server' | undefined,
) {
  const upstream = await startUpstream()
  const router = createRouter({ routes: table(upstream.url) })
  const pair: Pair = await startPair({
    target: router,
    server: { trustedProxies: ['127.0.0.1'], ...(server && { tracing: { tracer: server.tracer } }) },
    client: client ? { tracing: client === 'server' ? client : { tracer: client.tracer } } : {},
  })
  open.push(() => pair.stop())
  const caller = await Http1Caller.connect(pair.place)
  open.push(() => caller.close())
  const ask = (path: string, flags = '01') =>
    caller.ask({ path, fields: ['traceparent', `00-${TRACE}-${PARENT}-${flags}`] })
  return { upstream, ask, caller }
}

const table = (target: string): RouteTable => ({
  routes: [
    { name: 'orders', match: { path: '/orders/{id}' }, target },
    { name: 'away', match: { path: '/away' }, target: 'http://127.0.0.1:1' },
    { name: 'fixed', match: { path: '/fixed' }, answer: { status: 204 } },
  ],
})

describe('server and client each report their part', () => {
  test('a request to a route: the upstream receives the span of the call', async () => {
    const both = new Spans()
    const { upstream, ask } = await traced(table, both, both)
    expect((await ask('/orders/7?secret=1')).status).toBe(200)
    await both.named('GET')
    const { traceId, spanId } = both.finished.find(span => 'url.full' in span.attributes)!
    expect(upstream.told).toEqual([`00-${traceId}-${spanId}-01`])
    expect(new Set(both.finished.map(span => span.traceId))).toEqual(new Set([TRACE]))
    expect(waterfall(both.finished, ...SHOWN)).toEqual([
      'GET server http.response.status_code=200',
      '  tunnel client http.response.status_code=200',
      '    GET /orders/{id} server http.response.status_code=200 http.route=/orders/{id}',
      `      GET client http.response.status_code=200 url.full=${upstream.url}/orders/7`,
    ])
    expect(JSON.stringify(both.finished)).not.toContain('secret')
  })

  test('an upstream that is unreachable', async () => {
    const both = new Spans()
    const { ask } = await traced(table, both, both)
    expect((await ask('/away')).status).toBe(502)
    await both.named('GET')
    expect(waterfall(both.finished, ...SHOWN)).toEqual([
      'GET server FAILED http.response.status_code=502 error.type=upstream-refused',
      '  tunnel client FAILED http.response.status_code=502 error.type=502',
      '    GET /away server FAILED http.response.status_code=502 http.route=/away error.type=upstream-refused',
      '      GET client FAILED url.full=http://127.0.0.1:1/away error.type=upstream-refused',
    ])
  })

  test('a fixed answer has no upstream, and a path without a route has no name', async () => {
    const client = new Spans()
    const { ask } = await traced(table, new Spans(), client)
    await ask('/fixed')
    await ask('/nowhere')
    await client.named('GET')
    expect(waterfall(client.finished, ...SHOWN)).toEqual([
      'GET /fixed server http.response.status_code=204 http.route=/fixed',
      'GET server http.response.status_code=404',
    ])
  })

  test('an unsampled trace is passed on, and nothing is recorded', async () => {
    const both = new Spans()
    const { upstream, ask } = await traced(table, both, both)
    await ask('/orders/7', '00')
    expect(upstream.told).toEqual([expect.stringMatching(`^00-${TRACE}-(?!${PARENT})[0-9a-f]{16}-00$`)])
    expect(both.finished).toEqual([])
  })
})

test('a client does not follow a trace that its server does not vouch for', async () => {
  const client = new Spans()
  const { upstream, ask } = await traced(table, undefined, client)
  await ask('/orders/7')
  expect(upstream.told).toEqual([`00-${TRACE}-${PARENT}-01`])
  expect(client.finished).toEqual([])
})

describe('the client returns its spans to the server', () => {
  test('one waterfall has both sides, each part within its parent, and says who reported it', async () => {
    const server = new Spans()
    const { upstream, ask } = await traced(table, server, 'server')
    expect((await ask('/orders/7?secret=1')).status).toBe(200)
    const route = await server.named('GET /orders/{id}')
    expect(waterfall(server.finished, ...SHOWN, 'sallyport.reported_by')).toEqual([
      'GET server http.response.status_code=200',
      '  tunnel client http.response.status_code=200',
      '    GET /orders/{id} server http.response.status_code=200 http.route=/orders/{id} sallyport.reported_by=client',
      `      GET client http.response.status_code=200 url.full=${upstream.url}/orders/7 sallyport.reported_by=client`,
    ])
    const call = server.finished.find(span => 'url.full' in span.attributes)!
    expect(upstream.told).toEqual([`00-${TRACE}-${call.spanId}-01`])
    expect(route).toMatchObject({
      traceId: TRACE,
      attributes: { 'sallyport.runtime': 'demo', 'sallyport.route': 'orders' },
    })
    const attempt = server.finished.find(({ name }) => name === 'tunnel')!
    expect(route.startMs).toBeGreaterThanOrEqual(attempt.startMs)
    expect(call.startMs).toBeGreaterThanOrEqual(route.startMs)
    expect(JSON.stringify(server.finished)).not.toContain('secret')
  })

  test('a caller that leaves hides nothing of what its request waited for', async () => {
    const server = new Spans()
    const { upstream, ask, caller } = await traced(table, server, 'server')
    const called = once(upstream.calls, 'slow')
    const answer = ask('/orders/slow').catch(() => undefined)
    await called
    caller.close()
    await answer
    await server.named('GET /orders/{id}')
    expect(waterfall(server.finished, ...SHOWN, 'sallyport.reported_by')).toEqual([
      'GET server',
      '  tunnel client',
      '    GET /orders/{id} server http.route=/orders/{id} sallyport.reported_by=client',
      `      GET client url.full=${upstream.url}/orders/slow sallyport.reported_by=client`,
    ])
  })

  test('a server that does not trace receives none', async () => {
    const { upstream, ask } = await traced(table, undefined, 'server')
    expect((await ask('/orders/7')).status).toBe(200)
    expect(upstream.told).toEqual([`00-${TRACE}-${PARENT}-01`])
  })
})
