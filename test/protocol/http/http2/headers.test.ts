import { expect, test } from 'vitest'
import { outgoingBlock } from '../../../../protocol/http/http2/headers.ts'

test.each([
  ['a name that is no token', 'a b', 'c'],
  ['a name with a colon', 'a:b', 'c'],
  ['an empty name', '', 'c'],
  ['a value with a line end', 'a', 'b\r\nc: d'],
  ['a value with NUL', 'a', 'b\0'],
])('H4 not sent: %s', (_, name, value) => {
  expect(() => outgoingBlock([':status', '200'], [name, value])).toThrow(
    expect.objectContaining({ reason: 'upstream-broken', message: expect.stringContaining('field cannot be sent') }),
  )
})

test('names that an embedder writes in upper case leave in lower case, and those of one hop not at all', () => {
  expect(outgoingBlock([], ['X-Foo', 'Bar', 'Content-Type', 'a', 'Connection', 'close'])).toEqual([
    ...['x-foo', 'Bar'],
    ...['content-type', 'a'],
  ])
})
