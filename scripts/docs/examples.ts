/** Compiles every example in the documentation as strictly as the sources. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'

const ROOT = resolve(import.meta.dirname, '../..')
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc')

/** The examples by their place: code fenced as `ts` in a document or a docstring. */
export function examplesIn(tree: ReadonlyMap<string, string>): Map<string, string> {
  const examples = new Map<string, string>()
  for (const [file, text] of tree) {
    // Generated from docstrings, which are in the tree themselves.
    if (file.startsWith('docs/api/')) continue
    const prose = file.endsWith('.ts') ? text.replaceAll(/^ *\* ?/gm, '') : text
    let number = 0
    for (const [, code] of prose.matchAll(/^```ts\n([\s\S]*?)^```$/gm)) examples.set(`${file}#${++number}`, code!)
  }
  return examples
}

/** The compiler's errors in `examples`, one per line, with the example's name instead of a path. */
export function compileExamples(examples: ReadonlyMap<string, string>): string[] {
  // Inside the checkout, so that packages resolve as in the sources.
  const folder = mkdtempSync(join(ROOT, 'examples-'))
  try {
    const names = [...examples.keys()]
    for (const [at, code] of [...examples.values()].entries()) {
      writeFileSync(join(folder, `${at}.ts`), `${code}\nexport {}\n`)
    }
    const paths = { sallyport: ['../index.ts'], 'sallyport/*': ['../*/index.ts'] }
    const options = { extends: '../tsconfig.json', compilerOptions: { paths }, include: ['*.ts'], exclude: [] }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(options))
    const { stdout } = spawnSync(process.execPath, [TSC, '--project', folder], { cwd: ROOT, encoding: 'utf8' })
    const path = new RegExp(`^${relative(ROOT, folder)}/(\\d+)\\.ts`)
    return stdout.split('\n').flatMap(line => (line === '' ? [] : [line.replace(path, (_, at) => names[at] ?? at)]))
  } finally {
    rmSync(folder, { recursive: true })
  }
}
