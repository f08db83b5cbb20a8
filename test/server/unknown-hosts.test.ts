import { expect, test } from 'vitest'
import type { RuntimeState } from '../../server/directory/directory.ts'
import { KnownRuntimes } from '../../server/directory/known-runtimes.ts'
import { UnknownHosts } from '../../server/unknown-hosts.ts'

test('D9: failed lookups are bounded per network and in total: a burst, then a rate', () => {
  let now = 1000
  const misses = new UnknownHosts(() => now)
  const ask = (network: string | undefined, count: number) => {
    let asked = 0
    for (; asked < count && misses.allow(network); asked++) misses.count(network)
    return asked
  }
  expect([ask('a', 1000), ask('b', 100)]).toEqual([200, 100])
  now += 1000
  expect(ask('a', 1000)).toBe(20)
  now += 3_600_000
  let all = 0
  for (let i = 0; i < 1000; i++) all += ask(`n${i}`, 10)
  expect(all).toBe(5000)
  expect(ask(undefined, 10)).toBe(0)
  now += 1000
  expect(ask(undefined, 2000)).toBe(1000)
})

test('D9: names that nobody serves are remembered up to a bound, and evict nothing that is served', () => {
  const known = new KnownRuntimes(
    () => 0,
    () => false,
  )
  const state: RuntimeState = {
    runtime: 'real',
    epoch: 1,
    active: 'a',
    instances: new Map(),
    version: 1,
    changedMs: 0,
  }
  known.learn(state)
  for (let i = 0; i < 300_000; i++) {
    known.expect(`made-up-${i}`)
    if (i % 2 === 0) known.missing(`made-up-${i}`)
  }
  expect([known.size, known.names]).toEqual([1, 10_000])
  expect(known.find('real', false)).toBe(state)
  expect(known.find('made-up-299998', false)).toBeUndefined()
  expect(known.find('made-up-299999', false)).toBe('unknown')
  expect(known.wants('made-up-299999')).toBe(true)
})
