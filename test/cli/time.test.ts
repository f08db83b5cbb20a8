import { expect, test } from 'vitest'
import { readTimeS } from '../../cli/time.ts'

const NOW = Date.UTC(2026, 10, 21, 4, 0, 0)

test.each([
  ['now', NOW / 1000],
  ['1795233600', 1_795_233_600],
  ['2026-11-21T03:00Z', NOW / 1000 - 3600],
  ['2026-11-21', NOW / 1000 - 4 * 3600],
  ['+90d', NOW / 1000 + 90 * 86_400],
  ['-1h', NOW / 1000 - 3600],
])('%s', (text, seconds) => {
  expect(readTimeS('--until', text, NOW)).toBe(seconds)
})

const NONE = ['', 'tomorrow', '1h', '12', '2026-13-01', '2026-02-30', '2026-02-30T08:00Z', '+1y']
test.each(NONE)('%j is a usage error', text => {
  expect(() => readTimeS('--until', text, NOW)).toThrow(`--until ${text}: expected now, 2026-11-21T08:00Z, +90d or -1h`)
})
