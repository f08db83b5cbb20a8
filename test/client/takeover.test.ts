import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { ClientOptions, Tunnel, TunnelEvents } from '../../client/index.ts'
import { Ledger } from '../chaos/traffic/ledger.ts'
import { SteadyCaller } from '../chaos/traffic/steady.ts'
import { TrafficUpstream } from '../chaos/traffic/upstream.ts'
import { type Pair, startPair } from '../support/pair.ts'

const RUNTIME = 'demo'
const CALLERS = 8
const EVERY_MS = 25
const GRACE_MS = 10_000

let ledger: Ledger
let upstream: TrafficUpstream
let pair: Pair
let traffic: Promise<unknown>
const stop = { now: new AbortController() }

beforeEach(async () => {
  ledger = new Ledger('takeover', GRACE_MS)
  upstream = await TrafficUpstream.start(RUNTIME, ledger)
  pair = await startPair({ target: `http://127.0.0.1:${upstream.port}`, runtime: RUNTIME })
  stop.now = new AbortController()
  const callers = Array.from({ length: CALLERS }, (_, i) => {
    return new SteadyCaller(`s${i}`, pair.place, upstream, ledger, EVERY_MS)
  })
  traffic = Promise.all(callers.map(caller => caller.run(stop.now.signal)))
})
afterEach(async () => {
  stop.now.abort()
  await traffic
  await pair.stop()
  await upstream.stop()
})

/** One more instance of the runtime, in service as active or standby. */
const begin = (more: Partial<ClientOptions> = {}) =>
  pair.connect(RUNTIME, `http://127.0.0.1:${upstream.port}`, { instance: undefined, ...more })

/** Resolves once this many more requests were answered. */
async function answered(count: number): Promise<void> {
  const enough = ledger.total.answered + count
  while (ledger.total.answered < enough) await ledger.settled().then(() => new Promise(setImmediate))
}

/** Ends the traffic; fails the test if anything was lost or done twice. */
async function nothingLost(): Promise<void> {
  stop.now.abort()
  await traffic
  const { requests, answered: ok, counts, reasons, twice, wrong } = ledger.total
  expect({ reasons: [...reasons], twice, wrong }).toEqual({ reasons: [], twice: [], wrong: [] })
  expect(counts).toEqual({ lost: 0, cut: 0, outlived: 0, refused: 0 })
  expect(ok).toBe(requests)
  expect(requests).toBeGreaterThan(100)
  console.log(`${requests} requests, 0 lost, longest gap ${Math.round(ledger.total.longestGapMs)} ms`)
}

function standing(tunnel: Tunnel, active: boolean): Promise<void> {
  if (tunnel.stats().active === active && tunnel.stats().epoch > 0) return Promise.resolve()
  return new Promise(resolve => {
    const listener = (event: TunnelEvents['standing']) => {
      if (event.active !== active) return
      tunnel.off('standing', listener)
      resolve()
    }
    tunnel.on('standing', listener)
  })
}

describe('under steady traffic, nothing is lost and no POST runs twice', () => {
  test('in 10 takeovers and 50 renewals of the token', { tags: ['slow'] }, async () => {
    let current = pair.tunnel
    for (let update = 0; update < 10; update++) {
      const next = await begin()
      const closing = current.close({ graceMs: GRACE_MS })
      for (let renewal = 0; renewal < 5; renewal++) await next.refreshToken()
      await closing
      current = next
    }
    await answered(100)
    await nothingLost()
  })

  test('in a rolling update that is rolled back: the old instance was a standby, and is active again', {
    tags: ['slow'],
  }, async () => {
    const old = pair.tunnel
    await standing(old, true)
    const { epoch } = old.stats()
    const fresh = await begin()
    await standing(fresh, true)
    await standing(old, false)
    expect(old.ready()).toBe(true)
    await answered(50)
    await fresh.close({ graceMs: GRACE_MS })
    await standing(old, true)
    expect(old.stats().epoch).toBeGreaterThan(epoch)
    await answered(50)
    await nothingLost()
  })

  test('with two pods: one gets the traffic, the other is a ready standby, through reconnects of its own', async () => {
    const second = await begin()
    await standing(second, true)
    await standing(pair.tunnel, false)
    const total = pair.tunnel.stats().exchanges.total
    for (const { id } of pair.server.sessions().filter(({ instance }) => instance === pair.tunnel.stats().instance)) {
      const again = new Promise(resolve => pair.tunnel.on('connected', resolve))
      pair.server.drainSession(id)
      await again
    }
    await answered(100)
    expect(second.stats().active).toBe(true)
    expect(pair.tunnel.stats()).toMatchObject({ active: false, ready: true })
    expect(pair.tunnel.stats().exchanges.total).toBeLessThanOrEqual(total + CALLERS)
    await nothingLost()
  })

  test('with a copied deployment that comes and goes: the newest is active, each time', {
    tags: ['slow'],
  }, async () => {
    for (let copy = 0; copy < 3; copy++) {
      const theirs = await begin({ instance: `copy-${copy}` })
      await standing(theirs, true)
      await standing(pair.tunnel, false)
      await answered(20)
      await theirs.close({ graceMs: GRACE_MS })
      await standing(pair.tunnel, true)
      await answered(20)
    }
    await nothingLost()
  })
})
