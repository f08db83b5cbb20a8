/**
 * `npm test`: installs what suites need and this machine lacks, if it may, and runs vitest. At the end it lists what did not run, and
 * prints one line of counts.
 *
 *     npm test                     a few minutes: all but the tests tagged slow, and a part of the load and fault suites
 *     npm test -- --all            everything; what this machine cannot run is a failure (also with CI=true)
 *     npm run test:long            full sizes and counts, with coverage
 *     npm test -- test/protocol    everything in files whose path contains that text; nothing is installed
 */
import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { startVitest, type Vitest } from 'vitest/node'
import { lookAgain, NEEDS, type Need, whyMissing } from '../test/support/needs.ts'
import { installPackages } from './packages.ts'

const root = resolve(import.meta.dirname, '..')

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    all: { type: 'boolean', default: false },
    long: { type: 'boolean', default: false },
    coverage: { type: 'boolean', default: false },
    'test-name-pattern': { type: 'string', short: 't' },
  },
})

process.exit(await main())

async function main(): Promise<number> {
  const mustRunAll = values.all || process.env.CI === 'true'
  process.env.NODE_ENV = 'test'
  if (values.long) process.env.TEST_LONG = '1'
  const isShort = !values.long && !mustRunAll && positionals.length === 0
  if (isShort) process.env.TEST_SHORT = '1'
  const wanted = neededBy(positionals)
  if (positionals.length === 0) installFor(wanted)
  const vitest = await runVitest(isShort)
  await vitest.close()
  if (isShort) reportSlow(vitest)
  const missing = wanted.filter(name => whyMissing(name) !== undefined)
  const failures = report(missing, mustRunAll)
  const counts = count(vitest)
  const failed = counts.failed + failures
  console.log(`${counts.passed} passed, ${failed} failed, ${counts.skipped} skipped`)
  return failed > 0 || counts.passed === 0 ? 1 : 0
}

async function runVitest(isShort: boolean): Promise<Vitest> {
  return startVitest('test', positionals, {
    root,
    watch: false,
    run: true,
    reporters: ['default'],
    ...(values['test-name-pattern'] === undefined ? {} : { testNamePattern: values['test-name-pattern'] }),
    ...(isShort ? { tagsFilter: ['!slow'] } : {}),
    ...(values.long ? { testTimeout: 600_000 } : {}),
    coverage: { enabled: values.long || values.coverage },
  })
}

/** What the chosen files need, from their calls of `needs(...)`. Without filters, all files count, helpers included. */
function neededBy(filters: string[]): Need[] {
  const files = globSync('test/**/*.ts', { cwd: root }).filter(file => !file.endsWith('support/needs.ts'))
  const chosen = files.filter(file => filters.length === 0 || filters.some(filter => file.includes(filter)))
  const names = new Set<string>()
  for (const file of chosen) {
    for (const [, list] of readFileSync(resolve(root, file), 'utf8').matchAll(/\bneeds\(([^)]*)\)/g)) {
      for (const [, name] of (list ?? '').matchAll(/'([^']+)'/g)) names.add(name ?? '')
    }
  }
  return (Object.keys(NEEDS) as Need[]).filter(name => names.has(name))
}

function installFor(wanted: Need[]): void {
  const missing = wanted.filter(name => whyMissing(name) !== undefined)
  const packages = missing.flatMap(name => [...NEEDS[name].packages])
  if (packages.length === 0) return
  installPackages([...new Set(packages)])
  lookAgain()
}

/** Prints what a short run leaves out, and how to run it. */
function reportSlow(vitest: Vitest): void {
  const left = new Map<string, number>()
  for (const file of vitest.state.getTestModules()) {
    for (const { tags } of file.children.allTests()) {
      if (tags.includes('slow')) left.set(file.relativeModuleId, (left.get(file.relativeModuleId) ?? 0) + 1)
    }
  }
  for (const [file, tests] of left) console.log(`left out: ${file}, ${tests} slow`)
  console.log('left out: most of the load, fuzz and fault suites')
  console.log('To run everything: npm test -- --all. To run all of one file: npm test -- <its path>.')
}

/** Prints what did not run. Returns how many of these count as failures. */
function report(missing: Need[], mustRunAll: boolean): number {
  for (const name of missing) {
    console.log(`not run: suites that need ${name} (${whyMissing(name)}). Remedy: ${NEEDS[name].remedy}.`)
  }
  if (!mustRunAll) return 0
  const failures = missing.filter(name => !('optional' in NEEDS[name]))
  if (failures.length > 0) console.log('With CI=true or --all, each of these is a failure.')
  return failures.length
}

interface Counts {
  passed: number
  failed: number
  skipped: number
}

function count(vitest: Vitest): Counts {
  const counts: Counts = { passed: 0, failed: vitest.state.getUnhandledErrors().length, skipped: 0 }
  for (const file of vitest.state.getTestModules()) {
    if (file.errors().length > 0) counts.failed++
    for (const suite of file.children.allSuites()) if (suite.errors().length > 0) counts.failed++
    for (const test of file.children.allTests()) {
      const { state } = test.result()
      if (state === 'passed' || state === 'skipped') counts[state]++
      else counts.failed++
    }
  }
  return counts
}
