import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { guardWith } from '../../protocol/guard.ts'
import { Alarm } from '../../server/control/alarm.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

function alarm() {
  const rung: number[] = []
  const guard = guardWith(error => expect.fail(String(error)))
  const startMs = Date.now()
  return { rung, startMs, alarm: new Alarm(Date.now, guard, () => rung.push(Date.now() - startMs)) }
}

test.each([50, 60_000, 200_500, 40 * 24 * 3_600_000 + 7])('rings once at its time, %d ms away', afterMs => {
  const { rung, startMs, alarm: one } = alarm()
  one.at(startMs + afterMs)
  vi.advanceTimersByTime(afterMs - 1)
  expect(rung).toEqual([])
  vi.advanceTimersByTime(24 * 3_600_000)
  expect(rung).toEqual([afterMs])
})

test('a new time takes the place of the old one, and a stopped one is silent', () => {
  const { rung, startMs, alarm: one } = alarm()
  one.at(startMs + 100)
  one.at(startMs + 90_000)
  vi.advanceTimersByTime(89_999)
  expect(rung).toEqual([])
  one.stop()
  vi.advanceTimersByTime(10_000)
  expect(rung).toEqual([])
})
