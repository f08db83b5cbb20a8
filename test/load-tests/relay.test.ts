/** The slow line of the scenario `wan`, on the test's clock. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Link } from '../../load-tests/relay/link.ts'

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] }))
afterEach(() => vi.useRealTimers())

const LINE = { delayMs: 25, bytesPerSecond: 1_000_000, queueMs: 10 }

function source() {
  const calls: string[] = []
  return { calls, pause: () => calls.push('pause'), resume: () => calls.push('resume') }
}

test('bytes arrive after their time on the line and its delay, in order', () => {
  const link = new Link(LINE)
  const arrived: [string, number][] = []
  const from = source()
  const send = (name: string, bytes: number) =>
    link.send(bytes, from, () => arrived.push([name, Math.round(performance.now())]))
  const startedAt = Math.round(performance.now())
  send('a', 1000)
  send('b', 2000)
  vi.advanceTimersByTime(100)
  expect(arrived.map(([name, at]) => [name, at - startedAt])).toEqual([
    ['a', 26],
    ['b', 28],
  ])
})

test('a source is paused while too much waits, and resumes once that has left', () => {
  const link = new Link(LINE)
  const from = source()
  link.send(5_000, from, () => {})
  expect(from.calls).toEqual([])
  link.send(15_000, from, () => {})
  expect(from.calls).toEqual(['pause'])
  vi.advanceTimersByTime(60)
  expect(from.calls).toEqual(['pause', 'resume'])
})
