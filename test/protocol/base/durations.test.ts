import { expect, test } from 'vitest'
import { formatDuration } from '../../../protocol/base/durations.ts'

test.each([
  [-5, '0 s'],
  [0, '0 s'],
  [0.4, '0 s'],
  [151, '151 ms'],
  [999.4, '999 ms'],
  [999.5, '1 s'],
  [1499, '1 s'],
  [59_999, '1 min'],
  [190_000, '3 min 10 s'],
  [187_200_000, '2 d 4 h'],
])('%d ms is %s', (ms, text) => {
  expect(formatDuration(ms)).toBe(text)
})
