/** A server starts with any limit at either end of its range, and serves with all of them at their maximum. */
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { afterEach, describe, expect, test } from 'vitest'
import { connect, type Tunnel } from '../../client/index.ts'
import { CLIENT_SESSION_LIMITS, CONNECT_LIMITS } from '../../client/limits.ts'
import { type Limits, rangeOf, readLimit } from '../../protocol/base/limit.ts'
import { HTTP_LIMITS } from '../../protocol/http/limits.ts'
import { DRAIN_TIMES, HOLD_LIMITS, SERVER_LIMITS } from '../../server/limits.ts'
import type { Server } from '../../server/server.ts'
import { until } from '../support/until.ts'
import { HOST, startServer, token } from './fixture.ts'

let server: Server | undefined
let tunnel: Tunnel | undefined
const warnings: string[] = []
process.on('warning', ({ name }) => warnings.push(name))
afterEach(async () => {
  await tunnel?.close({ graceMs: 0 })
  await server?.close({ graceMs: 0 })
  tunnel = undefined
  server = undefined
  // If a timer cannot hold its time, Node warns and fires it at once.
  expect(warnings.splice(0)).not.toContain('TimeoutOverflowWarning')
})

function all(schema: Limits, end: 'least' | 'most'): Record<string, number> {
  const entries = Object.entries(schema).map(([name, limit]) => [name, readLimit(limit, rangeOf(limit)[end])])
  return Object.fromEntries(entries)
}

const control = { port: 0, plaintext: true }

test('all at their maximum', async () => {
  server = await startServer({
    public: { port: 0, limits: all(HTTP_LIMITS, 'most') },
    control,
    limits: all(SERVER_LIMITS, 'most'),
    hold: all(HOLD_LIMITS, 'most'),
    ...all(DRAIN_TIMES, 'most'),
  })
  tunnel = await connect({
    url: `ws://127.0.0.1:${server.controlAddress!.port}`,
    token: await token('demo'),
    target: request => new Response(request.body),
    ...all(CONNECT_LIMITS, 'most'),
    limits: all(CLIENT_SESSION_LIMITS, 'most'),
  })
  await until(() => tunnel!.ready())
  const body = 'x'.repeat(100_000)
  const answer = await server.fetch('demo', new Request('https://demo.invalid/', { method: 'POST', body }))
  expect([answer.status, await answer.text()]).toEqual([200, body])
  const session = connectHttp2(`http://127.0.0.1:${server.publicAddress!.port}`)
  const [headers] = await once(session.request({ ':authority': HOST, ':method': 'HEAD' }), 'response')
  expect(headers[':status']).toBe(200)
  session.destroy()
})

describe.each(['least', 'most'] as const)('one limit alone at its %s', end => {
  test.each(Object.entries(all(SERVER_LIMITS, end)))('%s: %d', async (name, value) => {
    server = await startServer({ control, limits: { [name]: value } })
    expect(server.ready()).toBe(true)
  })
})
