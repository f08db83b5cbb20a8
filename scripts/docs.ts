/**
 * `npm run docs`: generates documents from code: the tables of docs/configuration.md and docs/errors.md, the index of
 * docs/decisions/, docs/api/, docs/metrics.md, the dashboards of deploy/monitoring/, and the chart's values. `npm run docs -- --check`
 * (part of `npm run lint`) writes nothing. It fails if one of these is out of date, an export has no docstring, or a document refers
 * to something that does not exist.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { apiReference } from './docs/api.ts'
import { chartFiles } from './docs/chart.ts'
import { dashboardFiles } from './docs/dashboards.ts'
import { decisionMistakes, withDecisionIndex } from './docs/decisions.ts'
import { readEntryPoints } from './docs/declarations.ts'
import { metricsPage } from './docs/metrics.ts'
import { brokenReferences } from './docs/references.ts'
import { withErrorTable, withSettingTables } from './docs/tables.ts'

const ROOT = join(import.meta.dirname, '..')
/** Tests of this script, which contain broken references on purpose. */
const FIXTURES = 'test/docs/'
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

if (process.argv[1] === import.meta.filename) process.exitCode = main(process.argv.includes('--check'))

function main(check: boolean): number {
  const { pages, missing } = generatedPages()
  const stale = [...pages].filter(([path, text]) => !existsSync(join(ROOT, path)) || read(path) !== text)
  for (const [path, text] of check ? [] : stale) {
    mkdirSync(dirname(join(ROOT, path)), { recursive: true })
    writeFileSync(join(ROOT, path), text)
  }
  const mistakes = [...missing, ...decisionMistakes(decisions()), ...brokenReferencesOf(checkout())]
  if (check) mistakes.push(...stale.map(([path]) => `${path} is out of date: npm run docs`))
  for (const mistake of mistakes) console.error(mistake)
  return mistakes.length === 0 ? 0 : 1
}

/** All generated documents, path to text, and what the docstrings lack. */
export function generatedPages(): { pages: Map<string, string>; missing: string[] } {
  const { pages, missing } = apiReference(readEntryPoints())
  pages.set('docs/configuration.md', withSettingTables(read('docs/configuration.md')))
  pages.set('docs/errors.md', withErrorTable(read('docs/errors.md')))
  pages.set('docs/decisions/README.md', withDecisionIndex(read('docs/decisions/README.md'), decisions()))
  pages.set('docs/metrics.md', metricsPage())
  for (const [path, text] of dashboardFiles()) pages.set(path, text)
  for (const [path, text] of chartFiles(path => pages.get(path) ?? read(path))) pages.set(path, text)
  return { pages, missing }
}

/** The files in docs/decisions, name to text. */
export function decisions(): Map<string, string> {
  const files = globSync('docs/decisions/*.md', { cwd: ROOT }).filter(file => basename(file) !== 'README.md')
  return new Map(files.sort().map(file => [basename(file), read(file)]))
}

export function brokenReferencesOf(tree: ReadonlyMap<string, string>): string[] {
  const checked = [...tree].filter(
    ([file]) => /\.(md|ts|js|yaml|yml|conf|cfg)$/.test(file) && !file.startsWith(FIXTURES),
  )
  return checked.flatMap(([file, text]) => brokenReferences(file, text, tree))
}

/** All files of the checkout that git knows or would add, path to text. Without git, all files except generated ones. */
export function checkout(root: string = ROOT): Map<string, string> {
  const options = ['ls-files', '--cached', '--others', '--exclude-standard']
  const { status, stdout } = spawnSync('git', options, { cwd: root, encoding: 'utf8' })
  const files = status === 0 ? stdout.split('\n').filter(file => file !== '') : walk(root)
  return new Map(
    files.filter(file => existsSync(join(root, file))).map(file => [file, readFileSync(join(root, file), 'utf8')]),
  )
}

function walk(root: string): string[] {
  const exclude = ['**/node_modules/**', 'dist/**', 'coverage/**', 'load-tests/out/**']
  return globSync('**/*.*', { cwd: root, exclude }).map(file => file.replaceAll('\\', '/'))
}
