/** A setting that nobody reads is a flag that does nothing. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { COMPONENTS } from '../../../cli/config/components.ts'
import { LIMITS } from '../../../scripts/docs/limits.ts'
import { readModule } from '../../lint/modules.ts'

const ROOT = join(import.meta.dirname, '../../..')
/** Those are read by `limitOptions`, all of a schema at once. */
const limits = new Set(Object.values(LIMITS).flatMap(schema => Object.values(schema).map(({ flag }) => flag)))

/**
 * What turns settings into a component: its command, and what it uses of `cli/service` and beside it. `files.ts` only
 * checks them.
 */
function readersOf(component: string): string[] {
  const found = new Set<string>()
  const visit = (file: string) => {
    if (
      found.has(file) ||
      !/^cli\/(?:commands|service|config\/(?:server|client|router)\.ts)/.test(file) ||
      file.endsWith('/files.ts')
    )
      return
    found.add(file)
    for (const { from } of readModule(atRoot(file)).imports) visit(from.slice(ROOT.length + 1))
  }
  visit(`cli/commands/${component}.ts`)
  return [...found].map(file => readFileSync(atRoot(file), 'utf8'))
}

const atRoot = (file: string) => join(ROOT, file)

describe.each(Object.entries(COMPONENTS))('sallyport %s', (component, settings) => {
  const readers = readersOf(component)

  test.each(Object.keys(settings).filter(name => !limits.has(name)))('--%s is read', name => {
    const text = name.replaceAll('.', '\\.')
    const reads = new RegExp(`(config|values)(\\['${text}'\\]|\\.${text}\\b)|const \\{ .*'${text}': `)
    expect(readers.some(each => reads.test(each))).toBe(true)
  })
})
