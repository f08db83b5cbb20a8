/** E2, E3: a head in pieces is read like one that arrives at once, and refused as soon as possible. */
import { describe, expect, test } from 'vitest'
import { ByteCache } from '../../../../protocol/base/byte-cache.ts'
import type { Head } from '../../../../protocol/http/http1/head-parser.ts'
import { HeadReader } from '../../../../protocol/http/http1/head-reader.ts'

const LIMITS = { headBytes: 60, headFields: 10, uriBytes: 30 }
const REQUEST = 'GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n'
const RESPONSE = 'HTTP/1.1 200 OK\r\nx: y\r\n\r\n'

describe.each([
  ['a request', false, REQUEST],
  ['a response', true, RESPONSE],
])('%s', (_what, response, text) => {
  const begin = text.slice(0, -2)
  /** How many bytes had arrived when it was refused. */
  const refusedAt = (bytes: string): [number, unknown] => {
    const reader = new HeadReader(LIMITS, response)
    for (let length = 1; length <= bytes.length; length++) {
      try {
        reader.read(Buffer.from(bytes.slice(0, length)), 0)
      } catch (error) {
        return [length, (error as { reason: string }).reason]
      }
    }
    return [-1, undefined]
  }

  test('E2 the result is the same wherever it is cut', () => {
    for (let at = 0; at < text.length; at++) {
      const reader = new HeadReader(LIMITS, response)
      if (at > 0) expect(reader.read(Buffer.from(text.slice(0, at)), 0)).toBeUndefined()
      expect(reader.read(Buffer.from(`${text}more`), 0)?.headers).toEqual(['x', 'y'])
      expect(reader.end).toBe(text.length)
    }
  })

  test('E3 a line without an end is refused at the limit, not later', () => {
    const reason = response ? 'upstream-broken' : 'head-too-large'
    expect(refusedAt(begin + 'z'.repeat(200))).toEqual([61, reason])
    expect(refusedAt(`${begin}z: ${'z'.repeat(200)}\r\n\r\n`)).toEqual([61, reason])
  })

  test('E2 an invalid line is refused once it is complete', () => {
    const line = `${begin}bad line\r\n`
    expect(refusedAt(`${line}more`)).toEqual([line.length, response ? 'upstream-broken' : 'bad-request'])
  })
})

test('heads of final responses are remembered, others are not', () => {
  const seen = new ByteCache<Head>()
  const read = (text: string) => new HeadReader(LIMITS, true, seen).read(Buffer.from(text), 0)
  expect(read(RESPONSE)).toBe(read(RESPONSE))
  const early = 'HTTP/1.1 103 Early\r\nx: y\r\n\r\n'
  expect(read(early)).not.toBe(read(early))
})
