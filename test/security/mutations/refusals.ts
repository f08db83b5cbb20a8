/**
 * Removes every refusal in the sources, one at a time, and shows which of them no test misses:
 *
 *     npm run mutants                      all of them; takes about an hour
 *     npm run mutants -- --reach           only which refusals no test reaches: one run of the tests
 *     npm run mutants -- protocol/yamux    those in files whose path contains that text, or at FILE:LINE
 *     npm run mutants -- --part 2/6        every sixth, starting with the second
 *     npm run mutants -- --tests test/cli  with only these tests; repeat --tests for more
 *     npm run mutants -- --known FILE      reads what reaches what from FILE, or writes it there for the next run
 *
 * A refusal is a `throw` of something created there, or a call of `violated`, `refuse`, `fail` and the like. It works
 * in a copy of the checkout, where each refusal first asks whether it is the removed one. One run of the tests records
 * which tests reach which refusals, so that only those run for each refusal, the nearest and quickest first. If it is
 * also reached outside tests, the whole files follow. Exits 1 if no test misses one of them.
 */
import { createHash } from 'node:crypto'
import { appendFileSync, existsSync, globSync, readFileSync, writeFileSync } from 'node:fs'
import { cp, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { Writable } from 'node:stream'
import { parseArgs } from 'node:util'
import { parseAst } from 'rolldown/parseAst'
import { createVitest, type TestModule } from 'vitest/node'
import { EQUIVALENT } from './equivalent.ts'

const ROOT = resolve(import.meta.dirname, '../../..')
const SOURCES = ['protocol', 'server', 'client', 'router']
/** A test's processes report what they reach just as the test does. Suites for load and chaos would take too long. */
const TESTS = ['certs', 'client', 'protocol', 'router', 'security', 'server'].map(folder => `test/${folder}/`)
const NOT_COPIED = new Set(['node_modules', '.git', 'dist', 'coverage'])
const CALLED = /^#?(?:violated|refuse|refused|fail|failed|reject|protocolError|malformed|fault)$/
const DEADLINE_MS = 300_000
const TEST_MS = 30_000

/** Loaded into every process of a test: reports once which refusals are reached, and removes the chosen one. */
const RUNTIME = `
import { appendFileSync } from 'node:fs'
const told = new Set()
const { REFUSALS_OUT, REFUSALS_TO } = process.env
globalThis.refuses = id => {
  const line = '[' + id + ',' + process.env.REFUSALS_BY + ']'
  if (REFUSALS_TO && !told.has(line)) {
    told.add(line)
    appendFileSync(REFUSALS_TO, line + '\\n')
  }
  return String(id) !== REFUSALS_OUT
}
`

/** Runs before every test file: reports which test is running. Between tests it is none. Ends what hangs. */
const SETUP = `
import { appendFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach } from 'vitest'
const file = expect.getState().testPath.replace(/^.*?\\/test\\//, 'test/')
const { REFUSALS_TO } = process.env
const running = name => (process.env.REFUSALS_BY = JSON.stringify([file, name]).slice(1, -1))
const now = performance.now.bind(performance)
let began = 0
running('')
beforeEach(({ task }) => {
  running(task.fullTestName)
  began = now()
})
afterEach(({ task }) => {
  if (REFUSALS_TO) appendFileSync(REFUSALS_TO, JSON.stringify(['ms', file, task.fullTestName, Math.ceil(now() - began)]) + '\\n')
  running('')
})
if (!REFUSALS_TO) new Worker('setTimeout(() => process.kill(process.pid, "SIGKILL"), ${DEADLINE_MS})', { eval: true }).unref()
`

interface Refusal {
  readonly id: number
  readonly file: string
  readonly line: number
  readonly text: string
}

/** The tests of one file that reach a refusal. */
interface Reaching {
  readonly file: string
  readonly names: readonly string[]
  /** Whether it is also reached outside a test, for instance by a process that many tests share. */
  readonly isOutside: boolean
  readonly ms: number
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

const { values, positionals } = parseArgs({
  options: {
    part: { type: 'string' },
    known: { type: 'string' },
    tests: { type: 'string', multiple: true, default: TESTS },
    reach: { type: 'boolean', default: false },
  },
  allowPositionals: true,
})
/** Stands for the whole file, where no single test fails but the file does, or does not end. */
const WHOLE = 'as a whole'
/** Whether each test that failed without a refusal passes with it. */
const passing = new Map<string, Promise<boolean>>()

const copy = await mkdtemp(join(tmpdir(), 'sallyport-refusals-'))
const reachedFile = resolve(values.known ?? join(copy, 'reached.txt'))
await cp(ROOT, copy, { recursive: true, filter: path => !NOT_COPIED.has(path.slice(ROOT.length + 1)) })
await symlink(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
const refusals = prepare()
process.env.NODE_OPTIONS = `--import ${join(copy, 'refuses.mjs')}`
process.chdir(copy)
const silent = new Writable({ write: (_chunk, _encoding, done) => done() })
const vitest = await createVitest(
  'test',
  { root: copy, watch: false, testTimeout: TEST_MS, hookTimeout: TEST_MS, reporters: [{}] },
  {},
  { stdout: silent, stderr: silent },
)
try {
  const reached = await reach(refusals)
  const [part = 1, parts = 1] = values.part?.split('/').map(Number) ?? []
  const chosen = refusals.filter(({ file, line }, n) => {
    const place = `${file}:${line}`
    return n % parts === part - 1 && (positionals.length === 0 || positionals.some(text => place.includes(text)))
  })
  let missed = 0
  for (const refusal of chosen) {
    if (EQUIVALENT.some(({ file, text }) => file === refusal.file && refusal.text.startsWith(text))) {
      console.log(`${refusal.file}:${refusal.line} no loss: ${refusal.text}`)
      continue
    }
    const reaching = nearest(reached.get(refusal.id) ?? [], refusal)
    const catcher = values.reach ? reaching[0]?.file : await tryWithout(refusal, reaching)
    if (catcher === undefined) missed++
    const nobody = reaching.length === 0 ? 'REACHED BY NOBODY' : `MISSED BY ${reaching.length} FILES`
    console.log(`${refusal.file}:${refusal.line} ${catcher ?? nobody}: ${refusal.text}`)
  }
  console.log(`${chosen.length - missed} of ${chosen.length} ${values.reach ? 'reached' : 'caught'}`)
  process.exitCode = missed > 0 ? 1 : 0
} finally {
  await vitest.close()
  await rm(copy, { recursive: true })
}

/** Makes every refusal of the copy ask first. */
function prepare(): Refusal[] {
  const refusals: Refusal[] = []
  for (const file of globSync(
    SOURCES.map(folder => `${folder}/**/*.ts`),
    { cwd: copy },
  ).sort()) {
    const path = join(copy, file)
    let text = readFileSync(path, 'utf8')
    const found: Node[] = []
    collect(parseAst(text, { lang: 'ts' }, file) as unknown as Node, found)
    const first = refusals.length
    found.forEach((node, n) => {
      const line = text.slice(0, node.start).split('\n').length
      const [words = ''] = text.slice(node.start, node.end).split('\n')
      refusals.push({ id: first + n, file, line, text: words })
    })
    const inserted = found.flatMap((node, n) => {
      const asked = `(globalThis.refuses?.(${first + n}) ?? true)`
      const isStatement = node.type.endsWith('Statement')
      return [
        { at: node.start, what: isStatement ? `{if ${asked} ` : `(${asked} ? ` },
        { at: node.end, what: isStatement ? '}' : ' : undefined)' },
      ]
    })
    // From the end, so that positions stay valid.
    for (const { at, what } of inserted.sort((a, b) => b.at - a.at)) text = text.slice(0, at) + what + text.slice(at)
    writeFileSync(path, text)
  }
  writeFileSync(join(copy, 'refuses.mjs'), RUNTIME)
  appendFileSync(join(copy, 'test/support/strict-subset.ts'), SETUP)
  return refusals
}

function collect(node: Node, found: Node[]): void {
  // What it calls within is part of it.
  if (isRefusal(node)) return void found.push(node)
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (typeof child === 'object' && child !== null && typeof (child as Node).type === 'string') {
        collect(child as Node, found)
      }
    }
  }
}

/** Statements are removed as a whole: what follows a `return` runs without it, and no line may begin with a parenthesis. */
function isRefusal(node: Node): boolean {
  const argument = node.argument as Node | null
  switch (node.type) {
    case 'ThrowStatement':
      return argument?.type === 'NewExpression' || argument?.type === 'CallExpression'
    case 'ReturnStatement':
      return argument !== null && isRefusal(argument)
    case 'ExpressionStatement':
    case 'ChainExpression':
      return isRefusal(node.expression as Node)
    case 'CallExpression': {
      const callee = node.callee as Node
      const name = (callee.type === 'MemberExpression' ? callee.property : callee) as Node
      return CALLED.test(`${name.type === 'PrivateIdentifier' ? '#' : ''}${name.name}`)
    }
    default:
      return false
  }
}

/** Which tests reach which refusals. */
async function reach(refusals: readonly Refusal[]): Promise<Map<number, Reaching[]>> {
  const texts = refusals.map(({ file, text }) => `${file} ${text}`).join('\n')
  const sources = `${JSON.stringify(createHash('sha256').update(texts).digest('hex'))}\n`
  if (!existsSync(reachedFile)) writeFileSync(reachedFile, sources)
  if (!readFileSync(reachedFile, 'utf8').startsWith(sources)) throw new Error(`${reachedFile} is of other sources`)
  if (readFileSync(reachedFile, 'utf8') === sources)
    await runTests(values.tests, undefined, { REFUSALS_TO: reachedFile })
  const [, ...lines] = (await readFile(reachedFile, 'utf8')).trim().split('\n')
  const rows = lines.map(line => JSON.parse(line) as [what: number | 'ms', file: string, name: string, ms?: number])
  const ms = new Map<string, number>()
  for (const [what, file, name, took] of rows) if (what === 'ms') ms.set(`${file} ${name}`, took ?? 0)
  const reached = new Map<number, Map<string, Set<string>>>()
  for (const [what, file, name] of rows) {
    if (what === 'ms') continue
    const files = reached.get(what) ?? new Map<string, Set<string>>()
    reached.set(what, files.set(file, (files.get(file) ?? new Set()).add(name)))
  }
  const reachings = (files: Map<string, Set<string>>) =>
    [...files].map(([file, all]): Reaching => {
      const names = [...all].filter(name => name !== '')
      const sum = names.reduce((sum, name) => sum + (ms.get(`${file} ${name}`) ?? 0), 0)
      return { file, names, isOutside: all.has(''), ms: names.length > 0 ? sum : 10_000 }
    })
  return new Map([...reached].map(([id, files]) => [id, reachings(files)]))
}

/** Tests of the same folder first, since they are meant to miss it; among them, the quickest first. */
function nearest(reaching: readonly Reaching[], { file }: Refusal): Reaching[] {
  const folders = [`test/${dirname(file)}/`, `test/${file.split('/')[0]}/`, 'test/security/', '']
  const distance = (test: string) => folders.findIndex(folder => test.startsWith(folder))
  return reaching.toSorted((a, b) => distance(a.file) - distance(b.file) || a.ms - b.ms)
}

/**
 * What misses the refusal; undefined if nothing does. A test that also fails with the refusal in place proves nothing.
 */
async function tryWithout({ id }: Refusal, reaching: readonly Reaching[]): Promise<string | undefined> {
  const few = reaching.filter(({ names }) => names.length > 0)
  const whole = reaching.filter(({ isOutside }) => isOutside).map(({ file }) => ({ file, names: undefined }))
  for (const { file, names } of [...few, ...whole]) {
    const failed = await failure(file, names, { REFUSALS_OUT: String(id) })
    if (failed === undefined) continue
    // In a whole file, any test may have failed for its own reason, so all of it must pass.
    const isOne = names !== undefined && failed !== WHOLE
    if (await passes(file, isOne ? [failed] : names)) return `${file} (${failed})`
  }
  return undefined
}

/** Whether these pass with nothing removed. */
function passes(file: string, names: readonly string[] | undefined): Promise<boolean> {
  const key = `${file} ${names?.join(' ')}`
  const known = passing.get(key) ?? failure(file, names, {}).then(failed => failed === undefined)
  passing.set(key, known)
  return known
}

/** The first test that fails, of those with these names or of all. */
async function failure(
  file: string,
  names: readonly string[] | undefined,
  env: Record<string, string>,
): Promise<string | undefined> {
  const { testModules, unhandledErrors } = await runTests([file], names, env)
  for (const module of testModules) for (const test of module.children.allTests('failed')) return test.fullName
  return unhandledErrors.length > 0 || !testModules.every(module => module.ok()) ? WHOLE : undefined
}

/** Runs tests in a vitest that stays open, since it knows the sources by then: that saves most of the time. */
async function runTests(
  filters: readonly string[],
  names: readonly string[] | undefined,
  { REFUSALS_OUT = '', REFUSALS_TO = '' }: Record<string, string>,
): Promise<{ testModules: TestModule[]; unhandledErrors: unknown[] }> {
  Object.assign(process.env, { REFUSALS_OUT, REFUSALS_TO })
  for (const project of vitest.projects) project.config.bail = REFUSALS_TO === '' ? 1 : 0
  const found = await vitest.globTestSpecifications([...filters])
  const specifications = found.map(({ project, moduleId }) =>
    project.createSpecification(moduleId, names && { testNames: [...names] }),
  )
  const { unhandledErrors } = await vitest.runTestSpecifications(specifications)
  const testModules = specifications.flatMap(({ testModule }) => testModule ?? [])
  return { testModules, unhandledErrors }
}
