import { expect, test } from 'vitest'
import { createMetrics } from '../../admin/index.ts'
import { exchange } from './exchange.ts'

function start() {
  const state = { now: 0, sessions: [] as { runtime: string; streams: number; bufferedBytes: number }[] }
  const metrics = createMetrics({
    ...{ component: 'server', version: '1', snapshot: () => ({}) },
    sessions: () => state.sessions,
    now: () => state.now,
  })
  metrics.close()
  /** Samples of one metric by runtime, all classes together. */
  const read = async (name: string) => {
    const { text } = await metrics.exposeRuntimes()
    const found = new Map<string, number>()
    for (const [, runtime, value] of text.matchAll(
      new RegExp(`^sallyport_runtime_${name}\\{runtime="([^"]+)".*\\} (\\S+)$`, 'gm'),
    )) {
      found.set(runtime!, (found.get(runtime!) ?? 0) + Number(value))
    }
    return found
  }
  return { metrics, state, read }
}

test('of 1,000 runtimes, 200 have rows and the rest is other; nothing is lost', async () => {
  const { metrics, state, read } = start()
  state.sessions = Array.from({ length: 1000 }, (_, i) => ({ runtime: `r${i}`, streams: 2, bufferedBytes: 10 }))
  const lost = { code: 'session-lost', status: 502, durationMs: 500 }
  for (let i = 0; i < 1000; i++) metrics.record(exchange({ runtime: `r${i}`, ...lost }))
  // A caller that leaves is no failure of ours.
  metrics.record(exchange({ runtime: 'r1', code: 'cancelled' }))
  for (const name of ['exchanges_total', 'failures_total', 'sessions', 'streams', 'buffered_bytes']) {
    const rows = await read(name)
    expect(rows.size, name).toBe(201)
    const each = { streams: 2, buffered_bytes: 10 }[name] ?? 1
    expect(rows.get('r0'), name).toBe(each)
    expect(rows.get('other'), name).toBe(800 * each)
  }
  expect((await read('failures_total')).get('r1')).toBe(1)
  expect((await read('exchange_seconds_total')).get('r0')).toBe(0.5)
  expect((await metrics.exposeRuntimes()).text.length).toBeLessThan(200_000)
})

test('the busiest get the rows, a minute later, and a counter never goes back while it has its row', async () => {
  const { metrics, state, read } = start()
  const busy = Array.from({ length: 1000 }, (_, i) => `r${i}`)
  for (const runtime of busy) metrics.record(exchange({ runtime }))
  await read('exchanges_total')
  for (const runtime of busy.slice(500, 600)) {
    for (let i = 0; i < 20; i++) metrics.record(exchange({ runtime }))
  }
  const before = await read('exchanges_total')
  expect(before.has('r500')).toBe(false)
  expect(before.get('other')).toBe(2800)
  state.now = 60_000
  const ranked = await read('exchanges_total')
  expect(ranked.get('other')).toBe(2800)
  for (const runtime of busy.slice(500, 600)) metrics.record(exchange({ runtime }))
  state.now = 119_000
  const after = await read('exchanges_total')
  for (const runtime of busy.slice(500, 600)) expect(after.get(runtime), runtime).toBe(1)
  expect(after.get('other')).toBe(2800)
  expect(after.size).toBeLessThanOrEqual(201)
})

test('names that callers made up, and a runtime called other, get no row', async () => {
  const { metrics, state, read } = start()
  state.sessions = [{ runtime: 'other', streams: 1, bufferedBytes: 1 }]
  for (let i = 0; i < 5000; i++) {
    metrics.record(exchange({ runtime: `made-up-${i}`, session: undefined, status: 404, code: 'unknown-runtime' }))
  }
  metrics.record(exchange({ runtime: 'other' }))
  metrics.record(exchange({ runtime: undefined }))
  metrics.record(exchange({ runtime: 'real' }))
  metrics.record(exchange({ runtime: 'real', session: undefined, status: 503, code: 'runtime-offline' }))
  expect(await read('exchanges_total')).toEqual(new Map(Object.entries({ real: 2, other: 5002 })))
  expect((await read('sessions')).get('other')).toBe(1)
})
