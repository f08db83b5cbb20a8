import { execFile } from 'node:child_process'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { brokenReferences } from '../../scripts/docs/references.ts'
import { checkout } from '../../scripts/docs.ts'

test('documents in the package link only to what is in it', async () => {
  const args = ['pack', '--dry-run', '--json', '--ignore-scripts']
  const { stdout } = await promisify(execFile)('npm', args, { cwd: resolve(import.meta.dirname, '../..') })
  const [{ files }] = Object.values(JSON.parse(stdout)) as [{ files: { path: string }[] }]
  const all = checkout()
  const packed = new Map(files.map(({ path }) => [path, all.get(path) ?? '']))
  expect(packed.get('docs/operations.md')).toContain('](')
  const broken = [...packed].flatMap(([path, text]) => brokenReferences(path, text, packed))
  expect(broken.filter(problem => problem.includes(' links to '))).toEqual([])
})
