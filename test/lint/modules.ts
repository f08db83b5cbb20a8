/** Our modules, with their import and export statements. */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const STATEMENT =
  /^(import|export)\s+(type\s+)?(?:(\w+)\s*,?\s*)?(?:\*(?:\s+as\s+(\w+))?|\{([^}]*)\})?\s*from\s+'(\.[^']*)'/gm
const DYNAMIC = /\bimport\(\s*'(\.[^']*)'/g
const BARE = /^import\s+'(\.[^']*)'/gm
const DECLARED = /^export\s+(?:abstract\s+)?(?:async\s+)?(?:function\*?|class|const|let|interface|type)\s+(\w+)/gm
const LISTED = /^export\s+(?:type\s+)?\{([^}]*)\}(?!\s*from)/gm

export interface Import {
  readonly from: string
  /** Names in that module; undefined: all of them. */
  readonly names: readonly string[] | undefined
  /** Gone once it runs. */
  readonly isType: boolean
}

export interface Module {
  readonly imports: readonly Import[]
  /** Declared here, not passed on. */
  readonly exports: readonly string[]
}

export function readModule(file: string, text = readFileSync(file, 'utf8')): Module {
  const code = text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/^\s*\/\/.*$/gm, '')
  const at = (path: string) => join(dirname(file), path)
  const imports: Import[] = []
  for (const [, , type, , , list, path] of code.matchAll(STATEMENT)) {
    const items = list === undefined ? undefined : split(list)
    const isType = type !== undefined || (items?.every(item => item.startsWith('type ')) ?? false)
    imports.push({ from: at(path!), names: items?.map(item => item.replace(/^type /, '').split(' as ')[0]!), isType })
  }
  for (const pattern of [DYNAMIC, BARE]) {
    for (const [, path] of code.matchAll(pattern)) imports.push({ from: at(path!), names: undefined, isType: false })
  }
  const listed = [...code.matchAll(LISTED)].flatMap(([, list]) => split(list!))
  return {
    imports,
    exports: [
      ...[...code.matchAll(DECLARED)].map(([, name]) => name!),
      ...listed.map(
        item =>
          item
            .replace(/^type /, '')
            .split(' as ')
            .at(-1)!,
      ),
    ],
  }
}

function split(list: string): string[] {
  return list
    .split(',')
    .map(item => item.trim())
    .filter(item => item !== '')
}

/** Exports of `modules` that no other module imports. Modules in `open` are imported by others. */
export function unusedExports(modules: ReadonlyMap<string, Module>, open: ReadonlySet<string>): string[] {
  const used = new Set<string>()
  for (const { imports } of modules.values()) {
    for (const { from, names } of imports) {
      for (const name of names ?? modules.get(from)?.exports ?? []) used.add(`${from} ${name}`)
    }
  }
  return [...modules]
    .filter(([file]) => !open.has(file))
    .flatMap(([file, { exports }]) => exports.map(name => `${file} ${name}`))
    .filter(name => !used.has(name))
}

/** Names that more than one module declares and exports. */
export function namesOfSeveral(modules: ReadonlyMap<string, Module>): string[] {
  const declared = [...modules.values()].flatMap(({ exports }) => [...new Set(exports)])
  return [...new Set(declared.filter((name, at) => declared.indexOf(name) !== at))]
}

/** The first cycle for each module, of imports that run, and of types if they leave their folder. */
export function importCircles(modules: ReadonlyMap<string, Module>): string[] {
  const circles: string[] = []
  const done = new Set<string>()
  const visit = (file: string, way: readonly string[]): void => {
    const start = way.indexOf(file)
    if (start >= 0) circles.push([...way.slice(start), file].join(' > '))
    if (start >= 0 || done.has(file)) return
    for (const { from, isType } of modules.get(file)?.imports ?? []) {
      if (modules.has(from) && !(isType && dirname(from) === dirname(file))) visit(from, [...way, file])
    }
    done.add(file)
  }
  for (const file of modules.keys()) visit(file, [])
  return circles
}
