/** The spans of a router that listens by itself. */
import { once } from 'node:events'
import { createServer, get } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, expect, test } from 'vitest'
import { serveRouter } from '../../router/index.ts'
import { Spans, waterfall } from '../support/spans.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const TRACE = '0af7651916cd43dd8448eb211c80319c'

async function ask(trustedProxies: string[]) {
  const received: unknown[] = []
  const upstream = createServer((request, response) => {
    received.push(request.headers.traceparent)
    response.writeHead(404).end()
  }).listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  open.push(() => upstream.close())
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
  const spans = new Spans()
  const service = await serveRouter({
    ...{ port: 0, trustedProxies, tracing: { tracer: spans.tracer } },
    routes: { routes: [{ name: 'all', match: { path: '/a' }, target, rewrite: { stripPrefix: '/a' } }] },
  })
  open.push(() => service.close({ graceMs: 0 }))
  const headers = { traceparent: `00-${TRACE}-b7ad6b7169203331-01` }
  const url = `http://127.0.0.1:${service.address.port}/a/b?secret=1`
  const [response] = await once(get(url, { headers, agent: false }), 'response')
  await text(response)
  return { spans, received, target }
}

test("a trusted proxy's trace is joined and passed on to the upstream", async () => {
  const { spans, received, target } = await ask(['127.0.0.1'])
  await spans.named('GET /a')
  expect(waterfall(spans.finished, 'http.response.status_code', 'url.full', 'error.type')).toEqual([
    'GET /a server http.response.status_code=404',
    `  GET client FAILED http.response.status_code=404 url.full=${target}/b error.type=404`,
  ])
  const { spanId } = await spans.named('GET')
  expect(received).toEqual([`00-${TRACE}-${spanId}-01`])
})

test('a caller that leaves an event stream is no failure, of the upstream neither', async () => {
  const upstream = createServer((_request, response) => response.write('data: 1\n\n')).listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  open.push(() => upstream.close())
  const spans = new Spans()
  const service = await serveRouter({
    ...{ port: 0, tracing: { tracer: spans.tracer, ratio: 1 } },
    routes: {
      routes: [
        { name: 'all', match: { path: '/' }, target: `http://127.0.0.1:${(upstream.address() as AddressInfo).port}` },
      ],
    },
  })
  open.push(() => service.close({ graceMs: 0 }))
  const caller = get(`http://127.0.0.1:${service.address.port}`, { agent: false })
  const [response] = await once(caller, 'response')
  await once(
    response.on('error', () => {}),
    'data',
  )
  caller.destroy()
  await spans.named('GET /')
  expect(waterfall(spans.finished, 'http.response.status_code', 'error.type', 'sallyport.cut')).toEqual([
    'GET / server http.response.status_code=200',
    '  GET client http.response.status_code=200',
  ])
})

test("a stranger's trace is not passed on", async () => {
  const { spans, received } = await ask([])
  expect([received, spans.finished]).toEqual([[undefined], []])
})
