/** Texts that are kept for the next request: one that differs in a single part gets its own. */
import { expect, test } from 'vitest'
import { newExchangeId, newRequestId } from '../../protocol/base/ids.ts'
import type { Caller } from '../../protocol/exchange.ts'
import { appendForwarded } from '../../protocol/http/forwarded.ts'
import { requestHeadText } from '../../protocol/wire/bhttp/encode.ts'
import { type Preamble, preambleText } from '../../protocol/wire/preamble.ts'

/** Each with one part of the second in the first, after the first was kept. */
function variants<T extends object>(first: T, second: T): [before: T, after: T][] {
  return (Object.keys(first) as (keyof T)[]).map(key => [first, { ...first, [key]: second[key] }])
}

test('forwarded: its own caller', () => {
  const first: Caller = { address: '192.0.2.1', scheme: 'http', host: 'a.example' }
  const second: Caller = { address: '192.0.2.2', scheme: 'https', host: 'b.example' }
  for (const pair of variants(first, second)) {
    for (const { address, scheme, host } of pair) {
      const headers: string[] = []
      appendForwarded(headers, { address, scheme, host })
      expect(headers.at(-1)).toBe(`for=${address};host=${host};proto=${scheme}`)
    }
  }
})

test("a request's start: its own method, scheme and authority", () => {
  type Start = { method: string; scheme: 'http' | 'https'; authority: string }
  const first: Start = { method: 'GET', scheme: 'http', authority: 'a.example' }
  for (const pair of variants<Start>(first, { method: 'PUT', scheme: 'https', authority: 'b.example' })) {
    for (const { method, scheme, authority } of pair) {
      const text = requestHeadText(method, scheme, authority, '/', [])
      expect(text).toContain(`${method}${String.fromCharCode(scheme.length)}${scheme}`)
      expect(text).toContain(`${authority}\x01/`)
    }
  }
})

test('a preamble: its own attempt, runtime and epoch', () => {
  const rest = {
    kind: 1,
    exchangeId: '\0'.repeat(16),
    timeLeftMs: 0,
    callerAddress: '::1',
    hops: 0,
    bodyBytes: 0,
  } as const
  const first = { attempt: 0, runtime: 'one', epoch: 1 }
  for (const pair of variants(first, { attempt: 2, runtime: 'two', epoch: 3 })) {
    for (const { attempt, runtime, epoch } of pair) {
      const preamble: Preamble = { ...rest, callerScheme: 'http', attempt, runtime, epoch }
      const own = `\x03\x01${String.fromCharCode(attempt)}\x05\x03${runtime}\x07\x01${String.fromCharCode(epoch)}`
      expect(preambleText(preamble)).toContain(own)
    }
  }
})

test('request ids are random version-4 UUIDs, all different', () => {
  const ids = Array.from({ length: 5000 }, newRequestId)
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  expect(new Set(ids).size).toBe(ids.length)
})

test('exchange ids have 16 bytes that no other id has, whichever ids were made in between', () => {
  const ids = Array.from({ length: 5000 }, (_, at) => {
    if (at % 3 === 0) newRequestId()
    return newExchangeId()
  })
  for (const id of ids) expect(id).toHaveLength(16)
  const halves = ids.flatMap(id => [id.slice(0, 8), id.slice(8)])
  expect(new Set(halves).size).toBe(halves.length)
})
