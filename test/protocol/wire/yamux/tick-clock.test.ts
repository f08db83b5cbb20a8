import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { TickClock } from '../../../../protocol/wire/yamux/tick-clock.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

test('what is due within a tick is called together, never too early', () => {
  const clock = new TickClock()
  const seen: Array<[string, number]> = []
  const start = clock.now()
  const at = (name: string, ms: number) => clock.setTimeout(() => seen.push([name, clock.now() - start]), ms)
  at('a', 10)
  at('b', 900)
  at('c', 901)
  clock.clearTimeout(at('never', 300))
  vi.advanceTimersByTime(2000)
  expect(seen.map(([name]) => name)).toEqual(['a', 'b', 'c'])
  const [a, b, c] = seen.map(([, ms]) => ms)
  expect([a! >= 10, a! <= 260, b! >= 900, c! >= 901]).toEqual([true, true, true, true])
  expect(Math.abs(c! - b!) % 250).toBe(0)
  expect(vi.getTimerCount()).toBe(0)
})

test('a timer that has fired can be started again for the same time', () => {
  const clock = new TickClock()
  const seen: number[] = []
  const start = clock.now()
  const timer = clock.setTimeout(() => seen.push(clock.now() - start), 900)
  vi.advanceTimersByTime(2000)
  expect(seen).toEqual([1000])
  clock.refresh(timer)
  vi.advanceTimersByTime(2000)
  expect(seen).toEqual([1000, 3000])
  clock.refresh(timer)
  clock.clearTimeout(timer)
  vi.advanceTimersByTime(2000)
  expect(seen).toHaveLength(2)
  expect(vi.getTimerCount()).toBe(0)
})

test('callbacks may set the next one; thousands share one timer', () => {
  const clock = new TickClock()
  let calls = 0
  const again = () => {
    calls++
    clock.setTimeout(again, 1000)
  }
  for (let i = 0; i < 1000; i++) clock.setTimeout(again, 1000)
  expect(vi.getTimerCount()).toBe(1)
  vi.advanceTimersByTime(10_000)
  expect(calls).toBeGreaterThanOrEqual(7000)
  expect(calls).toBeLessThanOrEqual(10_000)
})

test('a late tick makes up for those that were missed', () => {
  const clock = new TickClock()
  const seen: number[] = []
  for (const ms of [600, 100, 1100]) clock.setTimeout(() => seen.push(ms), ms)
  vi.advanceTimersByTime(250 * 8)
  expect(seen).toEqual([100, 600, 1100])
})

test('a wait of a few ms has its own timer', async () => {
  const clock = new TickClock()
  let cleared = false
  clock.clearTimeout(
    clock.setTimeout(() => {
      cleared = true
    }, 1),
  )
  await new Promise<void>(resolve => void clock.setTimeout(resolve, 2))
  expect(cleared).toBe(false)
  expect(vi.getTimerCount()).toBe(0)
})
