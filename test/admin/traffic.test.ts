import { describe, expect, test } from 'vitest'
import { Traffic } from '../../admin/traffic.ts'
import { exchange } from './exchange.ts'

function clocked() {
  let now = 1_000_000
  const traffic = new Traffic(() => now)
  const wait = (ms: number) => {
    now += ms
  }
  return { traffic, wait }
}

describe('traffic of the last 15 minutes', () => {
  test('a step has what ended in it, once it is over', () => {
    const { traffic, wait } = clocked()
    for (const status of [200, 204, 404, 502, 0])
      traffic.note(exchange({ status, code: status === 0 ? 'x' : undefined }))
    traffic.count({ bodyBytesIn: 5, bodyBytesOut: 10 })
    expect(traffic.history(1)[0]).toMatchObject({ byClass: [0, 0, 0, 0, 0, 0] })
    wait(5000)
    expect(traffic.history(1)).toMatchObject([{ byClass: [1, 0, 2, 0, 1, 1], failed: 2, bytesIn: 5, bytesOut: 10 }])
  })

  test('bytes are those that passed in a step, whether or not their exchange is over', () => {
    const { traffic, wait } = clocked()
    for (const bodyBytesOut of [1000, 3000, 3000, 3500]) {
      traffic.count({ bodyBytesIn: bodyBytesOut / 1000, bodyBytesOut })
      wait(5000)
    }
    expect(traffic.history(4).map(({ bytesIn, bytesOut }) => [bytesIn, bytesOut])).toEqual([
      [1, 1000],
      [2, 2000],
      [0, 0],
      [0.5, 500],
    ])
  })

  test.each([0, 0.1, 0.25, 1, 9.7, 250, 60_000, 3_600_000, Number.MAX_VALUE])('a duration of %d ms', durationMs => {
    const { traffic, wait } = clocked()
    traffic.note(exchange({ durationMs }))
    wait(5000)
    const p50 = traffic.history(1)[0]!.p50!
    const known = Math.min(Math.max(durationMs, 0.25), 0.25 * 1.25 ** 63)
    expect(p50).toBeGreaterThanOrEqual(known * 0.999)
    expect(p50).toBeLessThanOrEqual(known * 1.251)
  })

  test('the lifetime of a WebSocket is not the duration of a request', () => {
    const { traffic, wait } = clocked()
    traffic.note(exchange())
    traffic.note(exchange({ status: 101, upgrade: true, durationMs: 3_600_000 }))
    wait(5000)
    expect(traffic.history(1)).toMatchObject([{ byClass: [0, 1, 1, 0, 0, 0] }])
    expect(traffic.history(1)[0]!.p95).toBeLessThan(20)
  })

  test('p95 is that of the slow ones', () => {
    const { traffic, wait } = clocked()
    for (let i = 0; i < 94; i++) traffic.note(exchange({ durationMs: 10 }))
    for (let i = 0; i < 6; i++) traffic.note(exchange({ durationMs: 1000 }))
    wait(5000)
    const [step] = traffic.history(1)
    expect([step!.p50! < 13, step!.p95! > 999]).toEqual([true, true])
  })

  test('a step is forgotten after 15 minutes, and its place is not mistaken for a new one', () => {
    const { traffic, wait } = clocked()
    traffic.note(exchange())
    const seen = () => traffic.history().reduce((sum, { byClass }) => sum + byClass[2]!, 0)
    wait(179 * 5000)
    expect(seen()).toBe(1)
    wait(5000)
    expect(seen()).toBe(0)
    expect(traffic.history()).toHaveLength(179)
    wait(24 * 3_600_000)
    expect(seen()).toBe(0)
  })

  test('a caller that leaves is no failure, but is listed if it had no answer yet', () => {
    const { traffic, wait } = clocked()
    for (const status of [0, 200, 499]) traffic.note(exchange({ status, code: 'cancelled' }))
    wait(5000)
    expect(traffic.history(1)).toMatchObject([{ byClass: [1, 0, 1, 0, 1, 0], failed: 0 }])
    expect(traffic.failed).toMatchObject([{ status: 0, code: 'cancelled' }])
  })

  test.each([
    ['unknown-host', () => undefined],
    ['not-authenticated', i => `r${i % 12}`],
    ['cancelled', i => `r${i % 12}`],
  ] satisfies [string, (i: number) => string | undefined][])(
    'those that strangers cause (%s) push no others off',
    (code, runtimeOf) => {
      const { traffic } = clocked()
      traffic.note(exchange({ requestId: 'ours', status: 502, code: 'upstream-refused' }))
      for (let i = 0; i < 150; i++)
        traffic.note(exchange({ requestId: `r${i}`, runtime: runtimeOf(i), status: 0, code }))
      expect(traffic.failed.at(-1)?.requestId).toBe('ours')
      expect(traffic.failed[0]?.requestId).toBe('r149')
    },
  )

  test('nor do those with many codes', () => {
    const { traffic } = clocked()
    const codes = ['unknown-host', 'bad-request', 'uri-too-long', 'head-too-large', 'not-authenticated'] as const
    traffic.note(exchange({ requestId: 'ours', status: 502, code: 'upstream-refused' }))
    for (let i = 0; i < 150; i++) traffic.note(exchange({ status: 0, code: codes[i % codes.length] }))
    expect(traffic.failed.at(-1)?.requestId).toBe('ours')
  })

  test('a runtime that fails all the time pushes off no failure of another', () => {
    const { traffic } = clocked()
    traffic.note(exchange({ requestId: 'ours', status: 502, code: 'upstream-refused' }))
    for (let i = 0; i < 150; i++) traffic.note(exchange({ runtime: 'other', status: 502, code: 'upstream-refused' }))
    expect(traffic.failed.at(-1)?.requestId).toBe('ours')
  })

  test('the last 50 failures are kept, newest first, with their texts cut', () => {
    const { traffic } = clocked()
    for (let i = 0; i < 60; i++) {
      traffic.note(exchange({ requestId: `r${i}`, status: 502, code: 'upstream-refused', path: 'x'.repeat(10_000) }))
    }
    expect(traffic.failed.map(({ requestId }) => requestId)).toEqual(Array.from({ length: 50 }, (_, i) => `r${59 - i}`))
    expect(JSON.stringify(traffic.failed).length).toBeLessThan(50 * 600)
  })
})
