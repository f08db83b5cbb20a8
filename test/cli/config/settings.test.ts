/** A setting that nobody reads is a flag that does nothing. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { COMPONENTS } from '../../../cli/config/components.ts'
import { LIMITS } from '../../../scripts/docs/limits.ts'

const CLI = join(import.meta.dirname, '../../../cli')
/** What makes a component of its settings. `files.ts` and `rules.ts` only check them. */
const readers = globSync(['service/*.ts', 'commands/{server,client,router}.ts'], { cwd: CLI })
  .filter(file => !file.endsWith('/files.ts'))
  .map(file => readFileSync(join(CLI, file), 'utf8'))
/** Those are read by `limitOptions`, all of a schema at once. */
const limits = new Set(Object.values(LIMITS).flatMap(schema => Object.values(schema).map(({ flag }) => flag)))

describe.each(Object.entries(COMPONENTS))('sallyport %s', (_, settings) => {
  test.each(Object.keys(settings).filter(name => !limits.has(name)))('--%s is read', name => {
    const text = name.replaceAll('.', '\\.')
    const reads = new RegExp(`(config|values)(\\['${text}'\\]|\\.${text}\\b)|const \\{ .*'${text}': `)
    expect(readers.some(text => reads.test(text))).toBe(true)
  })
})
