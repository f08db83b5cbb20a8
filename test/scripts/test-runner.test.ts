/** `npm test` itself, on a folder with a few tests of its own. */
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const ROOT = resolve(import.meta.dirname, '../..')
const NO_SUCH = 'a-program-that-nobody-has'
const HEAD = `import { describe, expect, it } from 'vitest'
import { needs } from './support/needs.ts'
`

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-runner-'))
  await mkdir(join(folder, 'test/support'), { recursive: true })
  await cp(join(ROOT, 'scripts'), join(folder, 'scripts'), { recursive: true })
  for (const file of ['vitest.config.ts', 'test/support/strict-subset.ts', 'cli/demo/programs.ts'])
    await cp(join(ROOT, file), join(folder, file))
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  const needs = await readFile(join(ROOT, 'test/support/needs.ts'), 'utf8')
  await writeFile(join(folder, 'test/support/needs.ts'), needs.replace("'redis-server', ['", `'${NO_SUCH}', ['`))
})

afterEach(() => rm(folder, { recursive: true, force: true }))

/** With a filter, so that nothing is ever installed. */
function npmTest(tests: string, env: NodeJS.ProcessEnv = {}, ...flags: string[]) {
  return npmTestOf(tests, env, ...flags, 'some.test')
}

async function npmTestOf(tests: string, env: NodeJS.ProcessEnv = {}, ...flags: string[]) {
  await writeFile(join(folder, 'test/some.test.ts'), HEAD + tests)
  const { CI: _, VITEST: __, TEST_SHORT: ___, ...rest } = process.env
  const options = { cwd: folder, env: { ...rest, ...env } }
  return new Promise<{ code: number; lines: string[] }>(resolve => {
    execFile(process.execPath, ['scripts/test.ts', ...flags], options, (error, stdout) => {
      resolve({ code: Number(error?.code ?? 0), lines: stdout.trimEnd().split('\n') })
    })
  })
}

it('ends with the counts, alone on the last line', async () => {
  const { code, lines } = await npmTest(`it('a', () => {})\nit('b', () => {})`)
  expect([code, lines.at(-1)]).toEqual([0, '2 passed, 0 failed, 0 skipped'])
})

it('a failed test, a file that does not load and an error outside a test are failures', async () => {
  const failed = await npmTest(`it('a', () => expect(1).toBe(2))\nit('b', () => {})`)
  expect([failed.code, failed.lines.at(-1)]).toEqual([1, '1 passed, 1 failed, 0 skipped'])
  const broken = await npmTest(`throw new Error('at the top')`)
  expect([broken.code, broken.lines.at(-1)]).toEqual([1, '0 passed, 1 failed, 0 skipped'])
  const outside = await npmTest(
    `it('a', async () => { setTimeout(() => { throw new Error('late') }); await new Promise(r => setTimeout(r, 50)) })`,
  )
  expect([outside.code, outside.lines.at(-1)]).toEqual([1, '1 passed, 1 failed, 0 skipped'])
})

it('having no tests is a failure', async () => {
  const { code, lines } = await npmTest('')
  expect(code).toBe(1)
  expect(lines.at(-1)).toMatch(/^0 passed, 1 failed/)
})

/** Not written out: `npm test` reads this file, too, and would install it. */
const NEED = 'redis'
const GUARDED = `describe.runIf(needs('${NEED}'))('with it', () => { it('a', () => {}) })\nit('b', () => {})`

it('what is not run is named with its reason and its remedy', async () => {
  const { code, lines } = await npmTest(GUARDED)
  expect(code).toBe(0)
  expect(lines.slice(-2)).toEqual([
    `not run: suites that need redis (no program "${NO_SUCH}"). Remedy: install redis-server (Debian's name).`,
    '1 passed, 0 failed, 1 skipped',
  ])
})

it.each([
  ['CI=true', { CI: 'true' }, []],
  ['--all', {}, ['--all']],
])('with %s, what is not run is a failure', async (_, env, flags) => {
  const { code, lines } = await npmTest(GUARDED, env, ...flags)
  expect([code, lines.at(-1)]).toEqual([1, '1 passed, 1 failed, 1 skipped'])
})

describe('a test tagged slow', () => {
  const tests = `it('a', () => {})\nit('b', { tags: ['slow'] }, () => {})\nit.runIf(process.env.TEST_SHORT)('c', () => {})`

  it('is left out of a normal run, which says so and how to run it', async () => {
    const { code, lines } = await npmTestOf(tests)
    expect([code, ...lines.slice(-4)]).toEqual([
      0,
      'left out: test/some.test.ts, 1 slow',
      'left out: most of the load, fuzz and fault suites',
      'To run everything: npm test -- --all. To run all of one file: npm test -- <its path>.',
      '2 passed, 0 failed, 1 skipped',
    ])
  })

  it.each<[string, NodeJS.ProcessEnv, string[]]>([
    ['with CI=true', { CI: 'true' }, []],
    ['with --all', {}, ['--all']],
    ['in the file that was asked for', {}, ['some.test']],
  ])('runs %s', async (_, env, flags) => {
    const { code, lines } = await npmTestOf(tests, env, ...flags)
    expect([code, lines.at(-1)]).toEqual([0, '2 passed, 0 failed, 1 skipped'])
    expect(lines.filter(line => line.startsWith('left out'))).toEqual([])
  })
})
