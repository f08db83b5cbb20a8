/** What the inspector tells of a request that waited at the server. */
import { afterEach, expect, it } from 'vitest'
import { Http1Caller } from '../support/caller-http1.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { until } from '../support/until.ts'

const target = () => new Response('here')
let pair: Pair
afterEach(() => pair.stop())

it('has the wait for a session as time of its own', async () => {
  pair = await startPair({ target, server: { hold: { holdMs: 60_000 } } })
  const caller = await Http1Caller.connect(pair.place)
  await pair.tunnel.close()
  const waiting = caller.ask({ path: '/waits' })
  await until(() => pair.server.stats().held === 1)
  const { inspector } = await pair.connect('demo', target, { inspect: 'heads' })
  expect((await waiting).status).toBe(200)
  await caller.ask({ path: '/goes-on' })
  const holds = inspector!.list().map(({ path, timings }) => [path, timings.hold])
  caller.close()
  expect(Object.fromEntries(holds)).toEqual({ '/waits': expect.any(Number), '/goes-on': undefined })
})
