import { expect, test } from 'vitest'

import { elapsedClock } from '../../../protocol/base/elapsed.ts'

/** A machine whose time goes on as it does when awake, suspended, or when somebody sets the clock of the day. */
class Machine {
  monotonicMs = 5_000
  wallMs = 1_700_000_000_000
  uptimeMs = 90_000
  uptimeReads = 0
  readonly elapsedMs = elapsedClock({
    monotonic: () => this.monotonicMs,
    wall: () => this.wallMs,
    uptime: () => {
      this.uptimeReads++
      return this.uptimeMs
    },
  })

  awake(ms: number): void {
    this.monotonicMs += ms
    this.suspended(ms)
  }

  suspended(ms: number): void {
    this.uptimeMs += ms
    this.wallMs += ms
  }
}

test.each([
  // what happens, awake, suspended, clock set by, elapsed: all in ms
  ['awake', 60_000, 0, 0, 60_000],
  ['suspended', 0, 75_000, 0, 75_000],
  ['suspended for too short to notice', 0, 900, 0, 0],
  ['the clock was set forward', 0, 0, 3_600_000, 0],
  ['the clock was set back', 0, 0, -3_600_000, 0],
  ['suspended, and the clock set forward', 10, 75_000, 3_600_000, 75_010],
  ['suspended, and the clock set back by more', 10, 75_000, -3_600_000, 75_010],
])('elapsed: %s', (_what, awakeMs, suspendedMs, setMs, passedMs) => {
  const machine = new Machine()
  const beforeMs = machine.elapsedMs()
  machine.awake(awakeMs)
  machine.suspended(suspendedMs)
  machine.wallMs += setMs
  expect(machine.elapsedMs() - beforeMs).toBe(passedMs)
})

test('elapsed never falls, and adds up over many suspensions', () => {
  const machine = new Machine()
  const beforeMs = machine.elapsedMs()
  let lastMs = beforeMs
  for (let i = 0; i < 100; i++) {
    machine.awake(10)
    if (i % 10 === 0) machine.suspended(20_000)
    if (i % 7 === 0) machine.wallMs -= 5_000
    const nowMs = machine.elapsedMs()
    expect(nowMs).toBeGreaterThanOrEqual(lastMs + 10)
    lastMs = nowMs
  }
  expect(lastMs - beforeMs).toBe(100 * 10 + 10 * 20_000)
})

test('elapsed reads the time since the machine started only after the clock of the day has jumped', () => {
  const machine = new Machine()
  for (let i = 0; i < 1000; i++) {
    machine.awake(50)
    machine.elapsedMs()
  }
  expect(machine.uptimeReads).toBe(1)
  machine.suspended(2_000)
  machine.elapsedMs()
  machine.elapsedMs()
  expect(machine.uptimeReads).toBe(2)
})
