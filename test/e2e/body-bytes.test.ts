/** Bytes of bodies count at every component as they pass, and in the end as often as the records say. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { createRouter } from '../../router/index.ts'
import { startPair } from '../support/pair.ts'
import { until } from '../support/until.ts'

test('a response counts while it is open', async () => {
  const application = createServer((incoming, response) => {
    response.write('x'.repeat(1000))
    incoming.on('data', () => response.end('y'))
  }).listen(0, '127.0.0.1')
  await once(application, 'listening')
  const target = `http://127.0.0.1:${(application.address() as AddressInfo).port}`
  const records: ExchangeRecord[] = []
  const onExchange = (record: ExchangeRecord) => void records.push(record)
  const router = createRouter({ routes: { routes: [{ name: 'all', match: { path: '/' }, target }] }, onExchange })
  const pair = await startPair({ target: router, server: { onExchange }, client: { onExchange } })
  const counted = () =>
    [pair.server, pair.tunnel, router].map(one => [one.stats().bodyBytesIn, one.stats().bodyBytesOut])

  let send = (_: string) => {}
  const body = new ReadableStream<Uint8Array>({
    start: controller => {
      send = text => {
        controller.enqueue(Buffer.from(text))
        controller.close()
      }
    },
  })
  const init = { method: 'POST', body, duplex: 'half' }
  const response = await pair.server.fetch('demo', new Request('https://demo.example/', init as RequestInit))
  const reader = response.body!.getReader()
  expect((await reader.read()).value?.length).toBe(1000)
  expect(records).toEqual([])
  expect(counted()).toEqual(Array(3).fill([0, 1000]))
  send('four')
  while (!(await reader.read()).done);
  await until(() => records.length === 3)
  expect(counted()).toEqual(Array(3).fill([4, 1001]))
  expect(records.map(({ bytesIn, bytesOut }) => [bytesIn, bytesOut])).toEqual(Array(3).fill([4, 1001]))
  await pair.stop()
  await router.close()
  application.close()
})
