/** Who waits for a session, and leaves before there is one. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { ResponseSink } from '../../../protocol/exchange.ts'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { SecureContexts } from '../../../router/upstream/dial.ts'
import { Http2Pool } from '../../../router/upstream/http2-pool.ts'
import { type PooledUpstream, ConnectionBudget } from '../../../router/upstream/pool.ts'
import { Http2Upstream } from '../../support/http2-upstream.ts'

const PER_SESSION = 100
let upstream: Http2Upstream
let budget: ConnectionBudget
let pool: Http2Pool
beforeEach(async () => {
  upstream = await Http2Upstream.start()
  budget = new ConnectionBudget(10, 10)
  const target = fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
  pool = new Http2Pool(target, new SecureContexts(), budget, 60_000)
})
afterEach(async () => {
  pool.close()
  await upstream.stop()
})

const silent: ResponseSink = {
  responseInformational() {},
  responseHead() {},
  responseData() {},
  responseEnd() {},
  responseAbort() {},
  requestConsumed() {},
}
const request = {
  method: 'GET',
  authority: 'a',
  path: '/',
  headers: [],
  bodyBytes: 0,
  upgrade: false,
  caller: '192.0.2.1',
  idempotent: false,
}

/** One more than a session takes; `then` is called as the first of them gets it. */
function waitTogether(then: (giveUps: (() => void)[]) => void): { got: number[]; giveUps: (() => void)[] } {
  const got: number[] = []
  const giveUps: (() => void)[] = []
  const use = (i: number) => (_: unknown, connection: PooledUpstream | undefined) => {
    got.push(i)
    connection?.send(request, silent, 60_000)
    if (got.length === 1) then(giveUps)
  }
  for (let i = 0; i <= PER_SESSION; i++) giveUps.push(pool.open('192.0.2.1', 10_000, use(i)))
  return { got, giveUps }
}

it('as the session opens that has no room for it', async () => {
  const { got } = waitTogether(giveUps => giveUps[PER_SESSION]!())
  await vi.waitFor(() => expect(got).toHaveLength(PER_SESSION), { timeout: 10_000 })
  expect(budget.used).toBe(1)
})

it('while another session is opened for it', async () => {
  const used: number[] = []
  const leave = (giveUps: (() => void)[]) => {
    used.push(budget.used)
    giveUps[PER_SESSION]!()
    used.push(budget.used)
  }
  // Once all have been told.
  const { got } = waitTogether(giveUps => queueMicrotask(() => leave(giveUps)))
  await vi.waitFor(() => expect(upstream.streams).toHaveLength(PER_SESSION), { timeout: 10_000 })
  expect(used).toEqual([2, 1])
  expect(got).toHaveLength(PER_SESSION)
})
