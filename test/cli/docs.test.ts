import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { configurationDocument, withErrorTable } from '../../scripts/docs.ts'

const read = (path: string) => readFileSync(path, 'utf8')

test('docs/configuration.md is what the settings say (npm run docs)', () => {
  expect(read('docs/configuration.md')).toBe(configurationDocument())
})

test('the table of docs/errors.md is protocol/errors.ts (npm run docs)', () => {
  const document = read('docs/errors.md')
  expect(withErrorTable(document)).toBe(document)
  expect(withErrorTable(document.replace('| 502 |', '| 599 |'))).toBe(document)
})
