/** Compares the table of statements in docs/security.md with the existing tests. */
import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { describe, expect, test } from 'vitest'

const ROOT = resolve(import.meta.dirname, '../..')
const read = (path: string) => readFileSync(resolve(ROOT, path), 'utf8')

const ID = /[EHWJMRCDIAPBKT]\d{1,2}/
/** The title of a test, or of its group, begins with its ids, separated by commas or "and". */
const NAME = new RegExp(`['"\`](${ID.source}(?:(?:, | and )${ID.source})*)(?=[: ])`, 'g')

/** Ids by file, from the titles of tests. */
function idsIn(file: string): Set<string> {
  const names = [...read(file).matchAll(NAME)].map(([, ids]) => ids!)
  return new Set(names.flatMap(ids => ids.split(/, | and /)))
}

const rows = [...read('docs/security.md').matchAll(/^\| ([A-Z]\d+) \| .* \| ([^|]+) \|$/gm)]
const table = new Map(rows.map(([, id, files]) => [id!, files!.split(', ').map(file => `test/${file.trim()}.test.ts`)]))

describe('docs/security.md', () => {
  test('names each statement once, in order, with none missing', () => {
    const counts = { E: 18, H: 6, W: 10, J: 9, M: 10, R: 9, C: 7, D: 9, I: 5, A: 10, P: 3, B: 3, K: 1, T: 1 }
    const all = Object.entries(counts).flatMap(([letter, count]) =>
      Array.from({ length: count }, (_, i) => `${letter}${i + 1}`),
    )
    // The list of statements has no A6.
    expect(rows.map(([, id]) => id)).toEqual(all.filter(id => id !== 'A6'))
  })

  test('each file named for a statement has a test with its id', () => {
    const untrue = [...table].flatMap(([id, files]) =>
      files.filter(file => !idsIn(file).has(id)).map(file => `${id} in ${file}`),
    )
    expect(untrue).toEqual([])
  })

  test('each id in test/security is in the table, with that file', () => {
    const files = globSync('test/security/*.test.ts', { cwd: ROOT }).map(file => file.replaceAll('\\', '/'))
    const unlisted = files.flatMap(file =>
      [...idsIn(file)].filter(id => !table.get(id)?.includes(file)).map(id => `${id} in ${file}`),
    )
    expect(unlisted).toEqual([])
  })
})
