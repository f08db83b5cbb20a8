import { describe, expect, test } from 'vitest'
import { newSpanId, newTraceId } from '../../../protocol/base/ids.ts'
import { readContext, sampledTraceId, writeContext } from '../../../protocol/trace/context.ts'

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

const PARENT_FIELD = `00-${TRACE}-${PARENT}-01`

describe('readContext', () => {
  const read = (...states: string[]) =>
    readContext(['traceparent', PARENT_FIELD, ...states.flatMap(state => ['tracestate', state])])

  test('trace, parent, flag and state', () => {
    expect(read('a=1, b@c=2')).toEqual({ traceId: TRACE, spanId: PARENT, sampled: true, state: 'a=1, b@c=2' })
  })

  test('a state spread over several fields is one', () => {
    expect(read('a=1', 'b=2', '')?.state).toBe('a=1,b=2,')
  })

  test.each([
    ['a key with capitals', 'Foo=1'],
    ['a key with a point', 'foo.bar=1'],
    ['no key', '=1'],
    ['no value', 'foo='],
    ['no equals sign', 'foo'],
    ['a space in the key', 'foo =1'],
    ['two tenants', 'a@b@c=1'],
    ['an empty tenant', '@b=1'],
    ['a system that is too long', `a@${'b'.repeat(15)}=1`],
    ['a key of 257 characters', `${'a'.repeat(257)}=1`],
    ['a value of 257 characters', `a=${'b'.repeat(257)}`],
    ['an equals sign in the value', 'a=b=c'],
    ['a control character', 'a=b\x01'],
    ['what is no ASCII', 'a=\xe9'],
    ['a key twice', 'a=1,b=2,a=3'],
    ['33 members', Array.from({ length: 33 }, (_, i) => `k${i}=1`).join(',')],
    ['nothing', ' , '],
  ])('%s: the state is dropped, and the parent stays', (_name, state) => {
    expect(read(state)).toEqual({ traceId: TRACE, spanId: PARENT, sampled: true, state: undefined })
  })

  test.each([
    ['32 members', Array.from({ length: 32 }, (_, i) => `k${i}=1`).join(',')],
    ['a key of 256 characters', `${'a'.repeat(256)}=1`],
    ['a value of 256 characters', `a=${'b'.repeat(256)}`],
    ['a tenant that begins with a digit', '0a_-*/@system=1'],
    ['512 characters', `${'a'.repeat(249)}=1,b=${'c'.repeat(200)},d=${'e'.repeat(55)}`],
  ])('%s: the state stays byte for byte', (_name, state) => {
    expect(state.length).toBeLessThanOrEqual(512)
    expect(read(state)?.state).toBe(state)
  })

  test('over 512 characters, long members go first, then the last ones', () => {
    const short = (n: number) => `k${n}=${'x'.repeat(96)}`
    const long = `l=${'y'.repeat(127)}`
    const five = [0, 1, 2, 3, 4].map(short)
    expect(read([five[0], long, ...five.slice(1)].join(','))?.state).toBe(five.join(','))
    expect(read([...five, short(5)].join(','))?.state).toBe(five.join(','))
  })
})

describe('writeContext', () => {
  const context = { traceId: TRACE, spanId: 'c'.repeat(16), sampled: false }
  const OURS = `00-${TRACE}-${'c'.repeat(16)}-00`

  test.each([
    ['in place', ['a', '1', 'traceparent', 'x', 'b', '2'], undefined, ['a', '1', 'traceparent', OURS, 'b', '2']],
    ['beside a state', ['tracestate', 'k=1', 'traceparent', 'x'], 'k=1', ['tracestate', 'k=1', 'traceparent', OURS]],
    ['where there was none', ['a', '1'], undefined, ['a', '1', 'traceparent', OURS]],
    ['without the state that is dropped', ['traceparent', 'x', 'tracestate', '?'], undefined, ['traceparent', OURS]],
    ['a state without a parent', ['tracestate', 'k=1'], undefined, ['traceparent', OURS]],
    [
      'one state out of several fields',
      ['traceparent', 'x', 'tracestate', 'k=1', 'tracestate', 'l=2'],
      'k=1,l=2',
      ['traceparent', OURS, 'tracestate', 'k=1,l=2'],
    ],
    ['one parent out of two', ['traceparent', 'x', 'traceparent', 'y'], undefined, ['traceparent', OURS]],
    ['a state that is added', ['traceparent', 'x'], 'k=1', ['traceparent', OURS, 'tracestate', 'k=1']],
  ])('%s', (_name, headers, state, expected) => {
    writeContext(headers, { ...context, state })
    expect(headers).toEqual(expected)
  })
})

test('no id is given twice', () => {
  const ids = new Set(Array.from({ length: 2000 }, () => newSpanId()))
  const traces = new Set(Array.from({ length: 2000 }, () => newTraceId()))
  expect([ids.size, traces.size]).toEqual([2000, 2000])
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{16}$/)
  for (const id of traces) expect(id).toMatch(/^[0-9a-f]{32}$/)
})
