/** security.md, E15: one request causes a bounded number of exchanges, even where a target leads back to us. */
import { afterEach, expect, test } from 'vitest'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { serveRouter } from '../../router/index.ts'
import { call } from '../protocol/http/http1/raw.ts'
import { lastingPort } from '../support/ports.ts'
import { DOMAIN } from '../support/secrets.ts'
import { answering, HOST, startEdge, stopEdges } from './edge.ts'

afterEach(stopEdges)

test('E15: a runtime whose target is the edge itself: 508, and a handful of exchanges', async () => {
  const records: ExchangeRecord[] = []
  const edge = await startEdge(answering, { onExchange: record => records.push(record) })
  await edge.connect('loop', `http://127.0.0.1:${edge.port}`)
  const caller = await edge.call()
  caller.send(`GET / HTTP/1.1\r\nHost: loop.${DOMAIN}\r\n\r\n`)
  const text = await caller.saying('}')
  expect(text).toMatch(/^HTTP\/1\.1 508 Loop Detected\r\n/)
  expect(text).toContain('"code":"loop-detected"')
  expect(records.filter(({ code }) => code === 'loop-detected')).toHaveLength(1)
  expect(records.length).toBeLessThanOrEqual(11)
  await edge.othersUnhurt()
})

test('E15: a router whose target is itself: 508', async () => {
  const port = await lastingPort()
  const records: ExchangeRecord[] = []
  const service = await serveRouter({
    port,
    routes: { routes: [{ name: 'loop', match: {}, target: `http://127.0.0.1:${port}` }] },
    onExchange: record => records.push(record),
  })
  const caller = await call(port)
  caller.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  expect(await caller.saying('}')).toMatch(/^HTTP\/1\.1 508 /)
  const refused = records.filter(({ code }) => code === 'loop-detected')
  expect(refused).toHaveLength(1)
  expect(records.length - refused.length).toBeLessThanOrEqual(10)
  caller.socket.destroy()
  await service.close({ graceMs: 0 })
})

test.each([
  [
    'one that has passed others',
    'cdn-loop: cloudflare, a.example; v=1',
    'cdn-loop: cloudflare, a.example; v=1, sallyport',
  ],
  ['one that has passed us', 'CDN-Loop: sallyport', 'cdn-loop: sallyport, sallyport'],
  ['one that comes first here', 'x: y', 'cdn-loop: sallyport'],
])('E15: %s is forwarded and marked', async (_name, field, seen) => {
  const { upstream, call } = await startEdge(answering)
  const caller = await call()
  caller.send(`GET /x HTTP/1.1\r\nHost: ${HOST}\r\n${field}\r\n\r\n`)
  await caller.saying('answer to /x')
  expect(upstream.text).toContain(`\r\n${seen}\r\n`)
})
