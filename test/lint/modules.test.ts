import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { checkout } from '../../scripts/docs.ts'
import { importCircles, type Module, namesOfSeveral, readModule, unusedExports } from './modules.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const OURS = /^(?:server|client|router|protocol|cli|admin|certs|tracing)\/|^index\.ts$/

function modulesOf(files: Readonly<Record<string, string>>): Map<string, Module> {
  return new Map(Object.entries(files).map(([file, text]) => [file, readModule(file, text)]))
}

const all = modulesOf(Object.fromEntries([...checkout()].filter(([file]) => file.endsWith('.ts'))))
const ours = new Map([...all].filter(([file]) => OURS.test(file)))

/** What others may import: see `exports` in package.json. */
function entries(): Set<string> {
  const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    exports: Record<string, { types?: string }>
  }
  const types = Object.values(exports).flatMap(({ types }) => (types === undefined ? [] : [types]))
  return new Set(types.map(path => path.replace('./dist/', '').replace(/\.d\.ts$/, '.ts')))
}

test('no file imports itself through others, except for types within its own folder', () => {
  expect(ours.size).toBeGreaterThan(250)
  expect(importCircles(ours)).toEqual([])
})

test('a cycle is found', () => {
  const files = {
    'a/a.ts': "import { b } from './b.ts'",
    'a/b.ts': "import type { C } from '../c/c.ts'",
    'c/c.ts': "export * from '../a/a.ts'",
  }
  expect(importCircles(modulesOf(files))).toEqual(['a/a.ts > a/b.ts > c/c.ts > a/a.ts'])
  const types = { 'a/a.ts': "import type { B } from './b.ts'", 'a/b.ts': "import { a } from './a.ts'" }
  expect(importCircles(modulesOf(types))).toEqual([])
})

test('an exported name has one meaning', () => {
  /** `router/index.ts` loads the other when it is called. */
  const passedOn = ['readRoutes']
  expect(namesOfSeveral(ours).filter(name => !passedOn.includes(name))).toEqual([])
})

test('a name exported by two files is found', () => {
  const files = {
    'a.ts': 'export class A {}\nexport type B = 1',
    'b.ts': 'export interface A {}',
    'c.ts': "export { B } from './a.ts'",
  }
  expect(namesOfSeveral(modulesOf(files))).toEqual(['A'])
})

test('every export is imported somewhere', () => {
  const open = entries()
  expect(open.size).toBe(7)
  const unused = unusedExports(all, open).filter(name => OURS.test(name))
  expect(unused).toEqual([])
})

test('an unused export is found', () => {
  const files = {
    'a.ts': 'export const used = 1\nexport function passed() {}\nexport class Left {}\n/** export const no = 1 */',
    'b.ts': "import { type used as x } from './a.ts'\nexport { passed } from './a.ts'",
    'c.ts': "const b = await import('./b.ts')\nexport { b, b as d }",
  }
  expect(unusedExports(modulesOf(files), new Set(['c.ts']))).toEqual(['a.ts Left'])
})
