import { expect, test } from 'vitest'
import { checkout } from '../../scripts/docs.ts'

/** A wait or limit of a second or a minute, which a busy machine exceeds. `vitest.config.ts` has the one for all. */
const SHORT = [
  /\bvi\.wait(?:For|Until)\(/,
  /\.poll\(.*\btimeout:/,
  /^ *\}, (?:[0-9]{1,2}|[0-2][0-9]{2})_000\)$/m,
  /^ *(?:(?:describe|it|test)\b|\]\)|\{ tags:).*\btimeout: (?:[0-9]{1,2}|[0-2][0-9]{2})_000\b/m,
  /\b(?:test|hook)Timeout: (?:[0-9]{1,2}|[0-2][0-9]{2})_000\b/,
]

test('tests wait with `until` and `eventually`, and none has less time than the others', () => {
  const tests = [...checkout()].filter(([file]) => /^test\/.*\.ts$/.test(file) && !import.meta.filename.endsWith(file))
  expect(tests.length).toBeGreaterThan(300)
  expect(tests.filter(([, text]) => SHORT.some(pattern => pattern.test(text))).map(([file]) => file)).toEqual([])
})
