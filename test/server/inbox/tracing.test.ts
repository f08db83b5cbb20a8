/** The spans of webhooks: their acceptance, and each delivery, with a link back. */

import { afterEach, expect, test } from 'vitest'
import { getAllHeaders } from '../../../protocol/http/headers.ts'
import { Spans, waterfall } from '../../support/spans.ts'
import { until } from '../../support/until.ts'
import { type Ground, makeGround } from './fixture.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const headers = (flags: string) => ({ traceparent: `00-${TRACE}-b7ad6b7169203331-${flags}` })
const SHOWN = ['http.response.status_code', 'sallyport.reason', 'sallyport.inbox_attempt'] as const

let ground: Ground | undefined
afterEach(() => ground?.close())

async function traced(trustedProxies = ['127.0.0.1']) {
  const spans = new Spans()
  ground = await makeGround({}, { trustedProxies, tracing: { tracer: spans.tracer } })
  return { spans, ground }
}

/** The server knows the rules of a client, which is gone. */
async function offline({ connect, server }: Ground) {
  const client = await connect()
  client.ws.terminate()
  await until(() => server.stats().sessions === 0)
}

test('a webhook that waits, and its delivery: a separate trace that links back', async () => {
  const { spans, ground } = await traced()
  await offline(ground)
  expect((await ground.post('later', { headers: headers('01') })).status).toBe(202)
  await ground.connect()
  const delivery = await spans.named('inbox deliver')
  expect(waterfall(spans.finished, ...SHOWN)).toEqual([
    'POST server http.response.status_code=202',
    '  inbox accept producer sallyport.reason=offline',
    'inbox deliver consumer -> inbox accept http.response.status_code=200 sallyport.inbox_attempt=1',
    '  tunnel client http.response.status_code=200',
  ])
  expect(delivery.traceId).not.toBe(TRACE)
  const { traceId, spanId } = await spans.named('tunnel')
  const { request } = ground.receiver.got[0]!
  expect(getAllHeaders(request.headers, 'traceparent')).toEqual([`00-${traceId}-${spanId}-01`])
})

test.each([
  ['of a stranger', [], '01'],
  ['that is not recorded', ['127.0.0.1'], '00'],
])('a context %s is not recorded, and is not kept for the delivery', async (_name, trusted, flags) => {
  const { spans, ground } = await traced(trusted)
  await offline(ground)
  await ground.post('later', { headers: headers(flags) })
  await ground.connect()
  await until(() => ground.receiver.got.length >= 1)
  expect(getAllHeaders(ground.receiver.got[0]!.request.headers, 'traceparent')).toEqual([])
  expect(spans.finished).toEqual([])
})
