import { readFileSync } from 'node:fs'
import { dirname, relative, resolve } from 'node:path'
import { expect, it } from 'vitest'

const ROOT = resolve(import.meta.dirname, '../..')
/** Static imports and exports, `import type` aside; `import()` too. */
const IMPORT = /^\s*(?:import|export)\s+(?!type\b)(?:[^'";]*?\sfrom\s+)?'([^']+)'|\bimport\('([^']+)'\)/gm

/** Every module that loading `entry` loads: ours by path, others by name. */
function reachable(entry: string): Set<string> {
  const seen = new Set<string>()
  const queue = [entry]
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (seen.has(file)) continue
    seen.add(file)
    if (!file.startsWith('/')) continue
    // Examples in docstrings are not loaded.
    for (const match of readFileSync(file, 'utf8')
      .replaceAll(/\/\*\*[\s\S]*?\*\//g, '')
      .matchAll(IMPORT)) {
      const specifier = match[1] ?? match[2]!
      queue.push(specifier.startsWith('.') ? resolve(dirname(file), specifier) : specifier)
    }
  }
  return seen
}

it('client/index.ts loads what it needs and nothing heavy', () => {
  const all = [...reachable(resolve(ROOT, 'client/index.ts'))]
  const packages = all.filter(name => !name.startsWith('/') && !name.startsWith('node:')).sort()
  expect(packages).toEqual(['ws'])
  const folders = new Set(all.filter(name => name.startsWith('/')).map(name => relative(ROOT, name).split('/')[0]))
  expect([...folders].sort()).toEqual(['client', 'protocol', 'router'])
  for (const name of all) expect(readFileSyncIfOurs(name)).not.toMatch(/^await /m)
})

it('the check finds heavy modules where there are some', () => {
  const all = reachable(resolve(ROOT, 'server/index.ts'))
  expect(all).toContain('jose')
  expect(all).toContain('ws')
})

function readFileSyncIfOurs(name: string): string {
  return name.startsWith('/') ? readFileSync(name, 'utf8') : ''
}
