import { expect, test } from 'vitest'
import { parseUniqueObject } from '../../../server/auth/json.ts'

test('an object with a duplicate member is recognised, at every depth', () => {
  for (const text of ['{}', '{"a":":","b":{"a":[{"a":1}]}}', '{"a\\"":1,"\\\\":"\\\\"}']) {
    expect(parseUniqueObject(text)).toEqual(JSON.parse(text))
  }
  for (const text of ['{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '{"x":[{"a":1,"a":2}]}', '[]', 'null', '"{}"', '{']) {
    expect(parseUniqueObject(text)).toBeUndefined()
  }
  expect(parseUniqueObject('{"__proto__":{"sub":"x"}}')?.sub).toBeUndefined()
})
