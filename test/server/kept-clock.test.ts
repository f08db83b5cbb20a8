import { expect, test, vi } from 'vitest'
import { keptClock } from '../../server/kept-clock.ts'

test.each([undefined, null, Number.NaN, Number.POSITIVE_INFINITY, '5', new Date()])(
  'a time that is kept goes on while the clock says %s',
  async bad => {
    vi.useFakeTimers({ toFake: ['Date', 'performance', 'setTimeout'] })
    try {
      let clock = (): unknown => Date.now() - 86_400_000
      const kept = keptClock(() => clock() as number)
      const before = kept()
      expect(before).toBe(clock())
      clock = () => bad
      vi.advanceTimersByTime(5000)
      expect(kept()).toBe(before + 5000)
      clock = () => 1e12
      expect(kept()).toBe(1e12)
    } finally {
      vi.useRealTimers()
    }
  },
)

test('a time that is kept has no fractions', () => {
  expect(keptClock(() => 1e12 + 0.25)()).toBe(1e12)
})
