/**
 * The exports of the package's entry points, from the declarations of `tsc`. TypeDoc and API Extractor need TypeScript's JavaScript
 * API, which TypeScript 7 does not have. Its declaration files are regular enough to be parsed line by line.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'

const ROOT = resolve(import.meta.dirname, '../..')
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc')

export interface Declaration {
  readonly name: string
  /** Path of the source from the root, such as `server/options.ts`. */
  readonly file: string
  /** The docstring without its stars. Empty if there is none. */
  readonly doc: string
  readonly code: string
}

/** One entry of `exports` in package.json. */
export interface EntryPoint {
  /** The name to import, such as `sallyport/server`. */
  readonly name: string
  readonly about: string
  readonly exports: readonly Declaration[]
}

/** The entry points, in the order of package.json. */
export function readEntryPoints(): EntryPoint[] {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-declarations-'))
  try {
    const options = ['--project', 'tsconfig.build.json', '--emitDeclarationOnly', '--stripInternal', '--outDir', folder]
    const { status, stdout } = spawnSync(process.execPath, [TSC, ...options], { cwd: ROOT, encoding: 'utf8' })
    if (status !== 0) throw new Error(`tsc could not generate declarations:\n${stdout}`)
    return entryFiles().map(({ name, file }) => readEntryPoint(name, join(folder, file), folder))
  } finally {
    rmSync(folder, { recursive: true })
  }
}

function entryFiles(): { name: string; file: string }[] {
  const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    exports: Record<string, unknown>
  }
  return Object.entries(exports).flatMap(([path, target]) => {
    const { types } = target as { types?: string }
    return types === undefined ? [] : [{ name: join('sallyport', path), file: relative('dist', types) }]
  })
}

function readEntryPoint(name: string, path: string, folder: string): EntryPoint {
  const { declarations, sources } = readDeclarations(path, folder)
  // Not from the declarations, since tsc drops a comment before an import that only the code needs.
  const source = readFileSync(join(ROOT, sourceOf(path, folder)), 'utf8')
  const about = source.startsWith('/**') ? withoutStars(source.slice(0, source.indexOf('*/') + 2)) : ''
  const exported = [...sources].map(([each, from]) => findDeclaration(each, from, folder))
  return { name, about, exports: [...declarations.values(), ...exported].sort(byKindAndName) }
}

/** Functions and classes before types. */
function byKindAndName(a: Declaration, b: Declaration): number {
  const rank = ({ code }: Declaration) => (/^export declare /.test(code) ? 0 : 1)
  return rank(a) - rank(b) || a.name.localeCompare(b.name, 'en')
}

function findDeclaration(name: string, path: string, folder: string): Declaration {
  const { declarations, sources } = readDeclarations(path, folder)
  const found = declarations.get(name)
  if (found !== undefined) return found
  const source = sources.get(name)
  if (source === undefined) throw new Error(`${relative(folder, path)} does not export ${name}`)
  return findDeclaration(name, source, folder)
}

interface DeclarationFile {
  /** Declarations in this file, by name. */
  readonly declarations: Map<string, Declaration>
  /** Re-exports from other files, name to path. */
  readonly sources: Map<string, string>
}

function readDeclarations(path: string, folder: string): DeclarationFile {
  const declarations = new Map<string, Declaration>()
  const sources = new Map<string, string>()
  const file = sourceOf(path, folder)
  let doc = ''
  for (const statement of statementsOf(readFileSync(path, 'utf8'))) {
    if (statement.startsWith('/**')) {
      doc = withoutStars(statement)
      continue
    }
    const from = /^export (?:type )?\{([^}]*)\} from '(.*)';/.exec(statement)
    const name = /^export (?:declare )?(?:abstract )?(?:async )?(?:function|class|interface|type|const) (\w+)/.exec(
      statement,
    )?.[1]
    for (const each of from?.[1]?.split(',') ?? []) {
      const exported = each.trim().replace(/^type /, '')
      if (exported !== '') sources.set(exported, join(dirname(path), from![2]!.replace(/\.ts$/, '.d.ts')))
    }
    if (name !== undefined) declarations.set(name, { name, file, doc, code: withoutPrivate(statement) })
    doc = ''
  }
  return { declarations, sources }
}

function sourceOf(path: string, folder: string): string {
  return relative(folder, path)
    .replace(/\.d\.ts$/, '.ts')
    .replaceAll('\\', '/')
}

/** Splits into statements and comments, which begin in the first column. */
function statementsOf(text: string): string[] {
  return text.split(/\n(?=export |import |declare |type |interface |\/\*\*)/).map(each => each.trimEnd())
}

function withoutStars(comment: string): string {
  return comment
    .replace(/^\/\*\*\s?/, '')
    .replace(/\s*\*\/$/, '')
    .replaceAll(/^ \* ?/gm, '')
    .trim()
}

function withoutPrivate(code: string): string {
  return code.replaceAll(/^ {4}(?:#private|private .*);\n/gm, '')
}
