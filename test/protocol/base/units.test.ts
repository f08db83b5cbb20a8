import { expect, test } from 'vitest'
import { readBytes, readDuration } from '../../../protocol/base/units.ts'

test.each([
  ['0', 0],
  ['64KiB', 65_536],
  ['4 mib', 4 * 1024 ** 2],
  ['1GiB', 1024 ** 3],
])('%s is %d bytes', (text, bytes) => expect(readBytes(text)).toBe(bytes))

test.each(['', '-1', '1.5KiB', '64KB', '1'.repeat(13)])('%j is no size', text => {
  expect(() => readBytes(text)).toThrow('expected a size in bytes')
})

test.each([
  ['500ms', 500],
  ['90s', 90_000],
  ['1h', 3_600_000],
])('%s lasts %d ms', (text, ms) => expect(readDuration(text)).toBe(ms))

test.each(['', '5', '-1s', '1.5h', '1 h'])('%j is no duration', text => {
  expect(() => readDuration(text)).toThrow('expected a duration')
})
