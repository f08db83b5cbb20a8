import { expect, test } from 'vitest'
import { HeadCache } from '../../../protocol/http/head-cache.ts'
import { CONNECTION, FRAMING, responseHead } from '../../../protocol/http/http1/encode.ts'

const LIST = ['content-type', 'text/plain', 'x-a', '1']

test('a list of the same strings is found only if all else is the same', () => {
  const seen = new HeadCache()
  expect(seen.keep('text', LIST, 200, 5, 'now')).toBe('text')
  const same = LIST.map(text => Buffer.from(text).toString())
  expect(seen.find(same, 200, 5, 'now')).toBe('text')
  expect(seen.find(same, 201, 5, 'now')).toBeUndefined()
  expect(seen.find(same, 264, 5, 'now')).toBeUndefined() // the same place
  expect(seen.find(same, 200, 6, 'now')).toBeUndefined()
  expect(seen.find(same, 200, 5, 'later')).toBeUndefined()
  for (let i = 0; i < LIST.length; i++) {
    const other = LIST.with(i, `${LIST[i]}!`)
    expect(seen.find(other, 200, 5, 'now')).toBeUndefined()
  }
  expect(seen.find(LIST.slice(0, 2), 200, 5, 'now')).toBeUndefined()
  expect(seen.find([...LIST, 'x-b', '2'], 200, 5, 'now')).toBeUndefined()
})

test('a list that changes afterwards is a different one', () => {
  const seen = new HeadCache()
  const list = [...LIST]
  seen.keep('text', list, 200)
  list[3] = '2'
  expect(seen.find(list, 200)).toBeUndefined()
  expect(seen.find(LIST, 200)).toBe('text')
})

test('a long head is returned and not kept', () => {
  const seen = new HeadCache()
  const long = 'x'.repeat(1025)
  expect(seen.keep(long, LIST, 200)).toBe(long)
  expect(seen.find(LIST, 200)).toBeUndefined()
})

test('a repeated response has the head that its own status, length, connection and date require', () => {
  const { length, chunked, none } = FRAMING
  const { unsaid, keepAlive, close } = CONNECTION
  const seen = new Map<string, string>()
  for (const round of [1, 2]) {
    for (const status of [200, 201, 404])
      for (const [framing, bodyBytes] of [
        [length, 3],
        [length, 4],
        [chunked, -1],
        [none, 0],
      ] as const)
        for (const connection of [unsaid, keepAlive, close])
          for (const date of ['', 'Sat, 21 Nov 2026 23:00:00 GMT', 'Sat, 21 Nov 2026 23:00:01 GMT']) {
            const key = [status, framing, bodyBytes, connection, date].join()
            const head = responseHead({ status, headers: [...LIST], bodyBytes }, framing, connection, date)
            if (round === 2) expect(head).toBe(seen.get(key))
            seen.set(key, head)
          }
  }
  expect(new Set(seen.values()).size).toBe(seen.size)
})

test('an invalid head is refused each time', () => {
  const bad = { status: 200, headers: ['x-a', 'a\r\nset-cookie: b'], bodyBytes: 0 }
  for (let i = 0; i < 3; i++) expect(() => responseHead(bad, FRAMING.length, CONNECTION.unsaid, '')).toThrow(/x-a/)
})
