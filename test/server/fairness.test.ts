/** One noisy runtime beside a quiet one: what the quiet one notices. Times are reported; none is asserted. */

import { Agent } from 'node:http'
import { afterEach, expect, test } from 'vitest'
import { discarding } from '../../protocol/base/guard.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Server } from '../../server/server.ts'
import { until } from '../support/until.ts'
import { call, DOMAIN, dial, startServer } from './fixture.ts'

const NOISY = `noisy.${DOMAIN}`
const QUIET = `quiet.${DOMAIN}`
const BLOB = Buffer.alloc(128 * 1024, 'x')
const REQUESTS = 60
const DOWNLOADS = 16

let server: Server
afterEach(() => server.close({ graceMs: 0 }))

/** As many bytes as there is credit for. */
const blob: ExchangeHandler = (_preamble, _request, response) => {
  response.responseHead({ status: 200, headers: ['content-length', String(BLOB.length)], bodyBytes: BLOB.length })
  for (let at = 0; at < BLOB.length; at += 65_536)
    response.responseData(Uint8Array.from(BLOB.subarray(at, at + 65_536)))
  response.responseEnd([])
  return discarding(response)
}

interface Measured {
  readonly p50: number
  readonly p99: number
  /** Bytes that the noisy runtime received during one quiet request, as a median. */
  readonly beside: number
}

async function measure(noise: { bytes: number }): Promise<Measured> {
  const agent = new Agent({ keepAlive: true })
  const times: number[] = []
  const beside: number[] = []
  for (let i = 0; i < REQUESTS; i++) {
    const startedAt = performance.now()
    const before = noise.bytes
    const { status, text } = await call(server, QUIET, `/${i}`, { agent })
    expect([status, text]).toEqual([200, `GET /${i} `])
    times.push(performance.now() - startedAt)
    beside.push(noise.bytes - before)
  }
  agent.destroy()
  times.sort((a, b) => a - b)
  beside.sort((a, b) => a - b)
  return {
    p50: times[Math.floor(REQUESTS * 0.5)]!,
    p99: times[Math.floor(REQUESTS * 0.99)]!,
    beside: beside[Math.floor(REQUESTS * 0.5)]!,
  }
}

/** Downloads that start again as they end, until told to stop. */
function makeNoise(noise: { bytes: number; refused: number; stop: boolean }): Promise<unknown> {
  const one = async () => {
    while (!noise.stop) {
      const { status, text } = await call(server, NOISY)
      if (status === 429) noise.refused++
      else noise.bytes += text.length
    }
  }
  return Promise.all(Array.from({ length: DOWNLOADS }, one))
}

test.each([
  ['without limits', {}],
  ['with a limit on its exchanges', { exchangesPerRuntime: 2 }],
])('a quiet runtime beside a noisy one, %s, loses nothing and gets its turn', async (name, limits) => {
  server = await startServer({ limits })
  await Promise.all([
    dial(server, { runtime: 'noisy', handler: blob }),
    dial(server, { runtime: 'noisy', handler: blob, hello: { connection: 1 } }),
    dial(server, { runtime: 'quiet' }),
  ])
  const noise = { bytes: 0, refused: 0, stop: false }
  const alone = await measure(noise)
  const making = makeNoise(noise)
  await until(() => noise.bytes > 0)
  const beside = await measure(noise)
  noise.stop = true
  await making
  const ms = (value: number) => value.toFixed(1)
  console.log(
    `quiet runtime, ${name}: p50 ${ms(alone.p50)} ms alone, ${ms(beside.p50)} beside; ` +
      `p99 ${ms(alone.p99)} alone, ${ms(beside.p99)} beside; ${Math.round(beside.beside / 1024)} KiB beside each request, ${noise.refused} refused`,
  )
  // It waits for a few turns of the event loop, and not for everything in the other one's queues.
  expect(beside.beside).toBeLessThan((DOWNLOADS / 2) * BLOB.length)
})

test('a runtime that does not end its complete answers uses up no quota of its callers', async () => {
  server = await startServer({ limits: { exchangesPerAddress: 2 } })
  const unending: ExchangeHandler = (_preamble, { method }, response) => {
    if (method === 'PUT') response.responseHead({ status: 204, headers: [], bodyBytes: 0 })
    else {
      response.responseHead({ status: 200, headers: ['content-length', '2'], bodyBytes: 2 })
      response.responseData(Buffer.from('ok'))
    }
    return discarding(response)
  }
  await Promise.all([dial(server, { runtime: 'noisy', handler: unending }), dial(server, { runtime: 'quiet' })])
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const statuses: number[] = []
  for (const method of ['GET', 'POST', 'PUT', 'POST']) {
    const body = method === 'GET' ? '' : 'body'
    statuses.push((await call(server, NOISY, '/', { agent, method, body })).status)
    statuses.push((await call(server, QUIET, '/', { agent })).status)
  }
  agent.destroy()
  expect(statuses).toEqual([200, 200, 200, 200, 204, 200, 200, 200])
})
