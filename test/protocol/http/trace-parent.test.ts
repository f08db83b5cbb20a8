import { expect, test } from 'vitest'
import { sampledTraceId } from '../../../protocol/http/trace-parent.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'

test.each([
  ['sampled', `00-${TRACE}-${PARENT}-01`, TRACE],
  ['sampled, and a flag that is not known', `00-${TRACE}-${PARENT}-09`, TRACE],
  ['a later version, which says more', `cc-${TRACE}-${PARENT}-01-what`, TRACE],
  ['not sampled', `00-${TRACE}-${PARENT}-00`, undefined],
  ['not sampled, and a flag that is not known', `00-${TRACE}-${PARENT}-fe`, undefined],
  ['more than version 00 may say', `00-${TRACE}-${PARENT}-01-what`, undefined],
  ['a later version, and no end of the flags', `cc-${TRACE}-${PARENT}-01what`, undefined],
  ['version ff', `ff-${TRACE}-${PARENT}-01`, undefined],
  ['no trace', `00-${'0'.repeat(32)}-${PARENT}-01`, undefined],
  ['no parent', `00-${TRACE}-${'0'.repeat(16)}-01`, undefined],
  ['upper case', `00-${TRACE.toUpperCase()}-${PARENT}-01`, undefined],
  ['cut', `00-${TRACE}-${PARENT}-0`, undefined],
  ['empty', '', undefined],
])('%s', (_name, value, expected) => {
  expect(sampledTraceId(['host', 'a', 'traceparent', value])).toBe(expected)
})

test('none, or two', () => {
  const value = `00-${TRACE}-${PARENT}-01`
  expect(sampledTraceId(['accept', '*/*'])).toBeUndefined()
  expect(sampledTraceId(['traceparent', value, 'traceparent', value])).toBeUndefined()
})
