import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { brokenReferences } from '../../scripts/docs/references.ts'
import { brokenReferencesOf, checkout } from '../../scripts/docs.ts'

const TREE = new Map([
  ['README.md', ''],
  ['docs/a.md', '# A title, with `code`\n'],
  ['server/edge/hold.ts', 'export class Hold {}\n'],
])
const broken = (file: string, text: string) => brokenReferences(file, text, TREE)

describe('the targets of documents and comments exist', () => {
  test('in the whole checkout', () => {
    const tree = checkout()
    expect(tree.size).toBeGreaterThan(500)
    expect(brokenReferencesOf(tree)).toEqual([])
  })

  test('links to files, folders and headings', () => {
    expect(broken('docs/b.md', '[x](a.md) [x](../server/) [x](a.md#a-title-with-code) [x](https://a/b.md)')).toEqual([])
    expect(broken('docs/b.md', '[x](c.md)')).toEqual(['docs/b.md links to docs/c.md, which does not exist'])
    expect(broken('docs/b.md', '[x](a.md#b)')).toEqual([
      'docs/b.md links to #b of docs/a.md, which has no such heading',
    ])
  })

  test("files by the end of their path; in the root's documents by all of it", () => {
    expect(broken('docs/b.md', '`edge/hold.ts`, `hold.ts`, and a `server.yaml` of yours')).toEqual([])
    expect(broken('docs/b.md', '`edge/queue.ts`')).toEqual(['docs/b.md names edge/queue.ts, which does not exist'])
    expect(broken('README.md', '`server/edge/hold.ts`')).toEqual([])
    expect(broken('README.md', '`hold.ts`')).toEqual(['README.md names hold.ts, which does not exist'])
  })

  test('names in files', () => {
    expect(broken('docs/b.md', '`Hold`, `Old` and `Hold` in `hold.ts`')).toEqual([
      'docs/b.md: there is no Old in hold.ts',
    ])
    expect(broken('docs/b.md', '`Hold` in `server/edge/hold.ts`')).toEqual([])
    expect(broken('docs/b.md', '`Old` in `server/edge/hold.ts`')).toEqual([
      'docs/b.md: there is no Old in server/edge/hold.ts',
    ])
  })

  test('documents that comments name', () => {
    expect(broken('server/x.ts', '// see docs/a.md and README.md')).toEqual([])
    expect(broken('server/x.ts', '// see docs/b.md')).toEqual(['server/x.ts names docs/b.md, which does not exist'])
  })
})

describe('the recipes of CONTRIBUTING.md', () => {
  const tree = checkout()
  const recipes = tree
    .get('CONTRIBUTING.md')!
    .split(/^## (?=How to add )/m)
    .slice(1)

  test.each(recipes.map(text => [text.split('\n', 1)[0]!, text]))('%s: files of the checkout, in order', (_, text) => {
    expect(brokenReferences('CONTRIBUTING.md', text, tree)).toEqual([])
    const named = [...text.matchAll(/`([\w-]+\/[\w./-]+)`/g)].map(([, path]) => path!)
    const missing = named.filter(path => ![...tree.keys()].some(file => file === path || file.startsWith(path)))
    expect(missing).toEqual([])
    expect(named.length).toBeGreaterThan(2)
    const steps = text.split(/^\d+\. /m).slice(1)
    expect(steps.length).toBeGreaterThan(2)
  })

  test('exist because people ask for them', () => {
    const titles = recipes.map(text => /^How to add an? (.*)/.exec(text)?.[1])
    const wanted = ['limit', 'error code', 'metric', 'subcommand', 'admin endpoint', 'directory store', 'route option']
    expect(titles).toEqual(expect.arrayContaining(wanted))
  })
})

test('a checkout without git can be read, too', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-checkout-'))
  await mkdir(join(folder, 'docs'))
  await mkdir(join(folder, 'node_modules'))
  await writeFile(join(folder, 'docs/a.md'), '# A\n')
  await writeFile(join(folder, 'node_modules/b.md'), '# B\n')
  expect([...checkout(folder)]).toEqual([['docs/a.md', '# A\n']])
  await rm(folder, { recursive: true })
})
