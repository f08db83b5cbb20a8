import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { Cooldowns } from '../../../server/peer/cooldowns.ts'

let cooldowns: Cooldowns
let over: string[]
let room: string[]
beforeEach(() => {
  vi.useFakeTimers()
  over = []
  room = []
  cooldowns = new Cooldowns(
    () => performance.now(),
    noLogger,
    runtime => over.push(runtime),
    runtime => room.push(runtime),
  )
})
afterEach(() => {
  cooldowns.close()
  vi.useRealTimers()
})

test('a replica that refused rests for this runtime, as long as there is no news', () => {
  cooldowns.begin('r1', 'demo', 3)
  expect(cooldowns.has('r1', 'demo', 3)).toBe(true)
  expect(cooldowns.has('r1', 'demo', 4)).toBe(false)
  expect(cooldowns.has('r1', 'other', 3)).toBe(false)
  expect(cooldowns.has('r2', 'demo', 3)).toBe(false)
})

test('and for a moment: then those who wait for the runtime are told, once', () => {
  cooldowns.begin('r1', 'demo', 3)
  cooldowns.begin('r2', 'demo', 3)
  vi.advanceTimersByTime(200)
  cooldowns.begin('r1', 'other', 1)
  vi.advanceTimersByTime(50)
  expect([cooldowns.has('r1', 'demo', 3), cooldowns.has('r1', 'other', 1)]).toEqual([false, true])
  expect(over).toEqual(['demo'])
  vi.advanceTimersByTime(200)
  expect(over).toEqual(['demo', 'other'])
})

test('one that refuses again rests anew', () => {
  cooldowns.begin('r1', 'demo', 3)
  vi.advanceTimersByTime(200)
  cooldowns.begin('r1', 'demo', 3)
  vi.advanceTimersByTime(200)
  expect([cooldowns.has('r1', 'demo', 3), over]).toEqual([true, []])
  vi.advanceTimersByTime(50)
  expect(over).toEqual(['demo'])
})

test('their number is bounded; the oldest ends early, and those who wait for it are told', async () => {
  for (let i = 0; i <= 10_000; i++) cooldowns.begin('r1', `runtime-${i}`, 1)
  expect([cooldowns.has('r1', 'runtime-0', 1), cooldowns.has('r1', 'runtime-1', 1)]).toEqual([false, true])
  await Promise.resolve()
  expect(over).toEqual(['runtime-0'])
})

test('one with exchanges of the runtime gets three quarters as many, and those who wait are told of room', async () => {
  for (let i = 0; i < 9; i++) cooldowns.opened('r1', 'demo')
  cooldowns.opened('r1', 'other')
  // The ninth one is refused.
  cooldowns.released('r1', 'demo')
  cooldowns.begin('r1', 'demo', 3)
  cooldowns.released('r1', 'other')
  // Other servers get the room of two.
  for (let i = 0; i < 2; i++) cooldowns.released('r1', 'demo')
  await Promise.resolve()
  expect([cooldowns.has('r1', 'demo', 3), room]).toEqual([true, []])
  cooldowns.released('r1', 'demo')
  await Promise.resolve()
  expect([cooldowns.has('r1', 'demo', 3), room]).toEqual([false, ['demo']])
  cooldowns.opened('r1', 'demo')
  expect(cooldowns.has('r1', 'demo', 3)).toBe(true)
  // That was too many.
  cooldowns.released('r1', 'demo')
  cooldowns.begin('r1', 'demo', 3)
  await Promise.resolve()
  expect([cooldowns.has('r1', 'demo', 3), room, over]).toEqual([true, ['demo'], []])
  vi.advanceTimersByTime(250)
  expect([cooldowns.has('r1', 'demo', 3), over]).toEqual([false, ['demo']])
})

test('one with a single exchange rests, so that no server keeps its only place', () => {
  cooldowns.opened('r1', 'demo')
  cooldowns.begin('r1', 'demo', 3)
  cooldowns.released('r1', 'demo')
  expect(cooldowns.has('r1', 'demo', 3)).toBe(true)
})
