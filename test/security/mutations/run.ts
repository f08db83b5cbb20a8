/**
 * Removes one defence at a time and shows that a test fails:
 *
 *     node test/security/mutations/run.ts             all of them, as rows of a table
 *     node test/security/mutations/run.ts fragment    those whose name contains that text
 *     node test/security/mutations/run.ts --part 2/6  every sixth, starting with the second
 *
 * It works in a copy of the checkout, which is deleted at the end. Exits 1 if no test misses one of the defences.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { MUTATIONS, type Mutation } from './list.ts'

const ROOT = resolve(import.meta.dirname, '../../..')
const NOT_COPIED = new Set(['node_modules', '.git', 'dist', 'coverage'])
const DEADLINE_MS = 240_000

interface Failed {
  readonly file: string
  readonly test: string
}

const copy = await mkdtemp(join(tmpdir(), 'sallyport-mutations-'))
try {
  await cp(ROOT, copy, { recursive: true, filter: path => !NOT_COPIED.has(path.slice(ROOT.length + 1)) })
  await symlink(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
  const { values, positionals: texts } = parseArgs({ options: { part: { type: 'string' } }, allowPositionals: true })
  const [part = 1, parts = 1] = values.part?.split('/').map(Number) ?? []
  const chosen = MUTATIONS.filter(({ defence }, n) => {
    return n % parts === part - 1 && (texts.length === 0 || texts.some(text => defence.includes(text)))
  })
  for (const { defence, edits } of chosen) {
    for (const [file, find] of edits) {
      const count = (await readFile(join(copy, file), 'utf8')).split(find).length - 1
      if (count !== 1) throw new Error(`${defence}: ${count} times in ${file}: ${find}`)
    }
  }
  let missed = 0
  for (const mutation of chosen) {
    const [first, ...more] = await tryWithout(mutation)
    if (first === undefined) missed++
    const others = more.length === 0 ? '' : ` (and ${more.length} more)`
    const caught = first === undefined ? '**nobody**' : `${first.file.replace(/^test\//, '')}: ${first.test}${others}`
    console.log(`| ${mutation.defence} | ${caught} |`)
  }
  console.log(`${chosen.length - missed} of ${chosen.length} caught`)
  process.exitCode = missed > 0 ? 1 : 0
} finally {
  await rm(copy, { recursive: true })
}

async function tryWithout({ edits, tests }: Mutation): Promise<Failed[]> {
  const before = new Map<string, string>()
  try {
    for (const [file, find, replace] of edits) {
      const path = join(copy, file)
      const text = await readFile(path, 'utf8')
      if (!before.has(path)) before.set(path, text)
      await writeFile(
        path,
        text.replace(find, () => replace),
      )
    }
    return await failures(tests)
  } finally {
    for (const [path, text] of before) await writeFile(path, text)
  }
}

/** The tests that fail, or at least the first of them; the file, if all of it hangs. */
async function failures(tests: readonly string[]): Promise<Failed[]> {
  const report = join(copy, 'report.json')
  await rm(report, { force: true })
  const vitest = join(copy, 'node_modules/vitest/vitest.mjs')
  const options = ['--bail', '1', '--testTimeout', '30000', '--reporter', 'json', '--outputFile', report]
  const child = spawn(process.execPath, [vitest, 'run', ...tests, ...options], { cwd: copy, stdio: 'ignore' })
  const timer = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS)
  await once(child, 'close')
  clearTimeout(timer)
  const text = await readFile(report, 'utf8').catch(() => undefined)
  if (text === undefined) return [{ file: tests[0]!, test: 'does not end' }]
  const { testResults } = JSON.parse(text) as {
    testResults: {
      name: string
      status: string
      message: string
      assertionResults: { fullName: string; status: string }[]
    }[]
  }
  return testResults.flatMap(({ name, status, message, assertionResults }) => {
    const file = name.slice(copy.length + 1)
    const failed = assertionResults.filter(one => one.status === 'failed').map(one => ({ file, test: one.fullName }))
    return failed.length === 0 && status === 'failed' ? [{ file, test: message.split('\n')[0]! }] : failed
  })
}
