/**
 * Whose failure it was, in the records of both ends: our code for our own, and none for an error of the application.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { createRouter } from '../../router/index.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { type Pair, startPair } from '../support/pair.ts'

const told: [string, ExchangeRecord][] = []
const tell = (end: string) => (record: ExchangeRecord) => void told.push([end, record])
const application = createServer((_request, response) =>
  response.writeHead(502, { 'sallyport-error': 'upstream-refused' }).end(),
)
let pair: Pair

beforeAll(async () => {
  await new Promise<void>(done => application.listen(0, '127.0.0.1', done))
  const up = `http://127.0.0.1:${(application.address() as AddressInfo).port}`
  const routes = [
    { name: 'down', match: { path: '/down' }, target: 'http://127.0.0.1:1' },
    { name: 'up', match: { path: '/up' }, target: up },
  ]
  const router = createRouter({ routes: { routes }, onExchange: tell('router') })
  pair = await startPair({
    target: router,
    server: { onExchange: tell('server') },
    client: { onExchange: tell('client') },
  })
})
afterAll(async () => {
  await pair.stop()
  application.close()
})

test.each([
  ['/down', 'upstream-refused', 'down'],
  ['/nowhere', 'no-route', undefined],
  ['/up', undefined, 'up'],
])('%s: %s at the router, the client and the server alike', async (path, code, route) => {
  told.length = 0
  const caller = await Http1Caller.connect(pair.place)
  const { status } = await caller.ask({ path })
  caller.close()
  const seen = told.map(([end, record]) => [end, record.status, record.code, record.route])
  expect(seen).toEqual([
    ['router', status, code, route],
    ['client', status, code, route],
    ['server', status, code, undefined],
  ])
})
