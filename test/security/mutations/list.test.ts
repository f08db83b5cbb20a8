import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { EQUIVALENT } from './equivalent.ts'
import { MUTATIONS } from './list.ts'

const ROOT = resolve(import.meta.dirname, '../../..')

test('each defence on the list occurs exactly once in the sources', () => {
  const astray = MUTATIONS.flatMap(({ defence, edits }) =>
    edits
      .filter(([file, find]) => readFileSync(resolve(ROOT, file), 'utf8').split(find).length !== 2)
      .map(([file, find]) => `${defence}: ${file}: ${find}`),
  )
  expect(astray).toEqual([])
})

test('docs/security.md lists each defence, with a test that catches its removal', () => {
  const [, table = ''] = readFileSync(resolve(ROOT, 'docs/security.md'), 'utf8').split(
    '| defence | caught by |\n|---|---|\n',
  )
  const rows = table
    .split('\n\n')[0]!
    .split('\n')
    .map(row => row.slice(2, -2).split(' | ') as [string, string])
  expect(rows.map(([defence]) => defence)).toEqual(MUTATIONS.map(({ defence }) => defence))
  let caughtBy = ''
  const astray = rows.filter(([, cell], i) => {
    if (cell !== 'the same') [caughtBy = ''] = cell.split(': ')
    return !MUTATIONS[i]!.tests.includes(`test/${caughtBy}.test.ts`)
  })
  expect(astray).toEqual([])
})

test('each refusal that is listed as harmless to remove is in the sources', () => {
  const gone = EQUIVALENT.filter(({ file, text }) => !readFileSync(resolve(ROOT, file), 'utf8').includes(text))
  expect(gone).toEqual([])
})
