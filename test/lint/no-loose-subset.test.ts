/** T1: a matcher that cannot fail is found by the lint rule, and fails where the rule cannot see it. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const ROOT = resolve(import.meta.dirname, '../..')
const BIOME = resolve(ROOT, 'node_modules/@biomejs/biome/bin/biome')

const LOOSE = [
  'expect(x).toMatchObject({ a: /b/ })',
  'expect(x).not.toMatchObject([{ a: 1 }, { a: { b: [/c/] } }])',
  'await expect(x).rejects.toMatchObject({ a: expect.any(String), b: /c/ })',
  'expect(x).toMatchObject(/a/)',
  'expect(x).toMatchObject({ a: {} })',
]
const STRICT = [
  'expect(x).toMatchObject({ a: expect.stringMatching(/b/) })',
  'expect(make({}, /a/)).toMatchObject({ a: 1 })',
  'expect(x).toEqual({ a: {} })',
]

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-lint-'))
  const { plugins } = JSON.parse(readFileSync(join(ROOT, 'biome.json'), 'utf8')) as { plugins: string[] }
  await writeFile(join(folder, 'biome.json'), JSON.stringify({ plugins: plugins.map(path => resolve(ROOT, path)) }))
})
afterAll(() => rm(folder, { recursive: true }))

test('T1 the lint rule finds what matches anything, and nothing else', async () => {
  await writeFile(join(folder, 'lines.test.ts'), [...LOOSE, ...STRICT].join('\n'))
  const { stderr } = spawnSync(process.execPath, [BIOME, 'lint', '.'], { cwd: folder, encoding: 'utf8' })
  const found = [...stderr.matchAll(/lines\.test\.ts:(\d+):\d+ plugin/g)].map(([, line]) => Number(line))
  expect(found).toEqual(LOOSE.map((_, index) => index + 1))
})

describe('T1 a regular expression that the rule cannot see equals only its like:', () => {
  const pattern = /a/
  test.each(['a', 5, undefined, null, [], /b/, /a/g])('T1 not %s', other => {
    expect(() => expect({ key: other }).toMatchObject({ key: pattern })).toThrow('to match object')
  })
  test('T1 its like', () => expect({ key: /a/ }).toMatchObject({ key: pattern }))
})
