import { expect, test } from 'vitest'
import { readTimeS } from '../../cli/time.ts'

const NOW = Date.UTC(2026, 10, 21, 4, 0, 0)

test.each([
  ['now', NOW / 1000],
  ['1795233600', 1_795_233_600],
  ['2026-11-21T03:00Z', NOW / 1000 - 3600],
  ['2026-11-21t03:00:00.0z', NOW / 1000 - 3600],
  ['2026-11-21T03:00-01:30', NOW / 1000 + 1800],
  ['2026-11-21', NOW / 1000 - 4 * 3600],
  ['+90d', NOW / 1000 + 90 * 86_400],
  ['-1h', NOW / 1000 - 3600],
])('%s', (text, seconds) => {
  expect(readTimeS('--until', text, NOW)).toBe(seconds)
})

const NONE = [
  '',
  'tomorrow',
  '1h',
  '12',
  '2026-13-01',
  '2026-02-30',
  '2026-02-30T08:00Z',
  '+1y',
  '2026-11-21T08:00',
  '2026-11-21 08:00Z',
  '2026-11-21T08:00+0100',
  '2026-11-21T25:00Z',
  '2026-11-21T08:00+99:99',
]
test.each(NONE)('%j is a usage error', text => {
  expect(() => readTimeS('--until', text, NOW)).toThrow(`--until ${text}: expected now, 2026-11-21T08:00Z, +90d or -1h`)
})
