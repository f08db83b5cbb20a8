/** Routes files: YAML to a checked {@link RouteTable}, with line, column and the nearest known key in every error. */
import { dirname, resolve } from 'node:path'
import { type Document, isScalar, LineCounter, parseDocument, visit } from 'yaml'
import { readPlain } from '../protocol/base/plain-file.ts'
import { yamlProblem } from '../protocol/base/yaml-problem.ts'
import { compileTable } from './compile.ts'
import { filesOf, MAX_TABLE_BYTES, placeFiles } from './files.ts'
import { formatPath, type RouteProblem, type RouteTable, RouteTableError } from './table.ts'
import { shapeProblems } from './table-schema.ts'

/** Reads and checks a routes file. Throws {@link RouteTableError}, even if the file cannot be read. */
export async function readRoutes(file: string): Promise<RouteTable> {
  return parseRoutes(await readTable(file), file)
}

/** The text of a routes file. Throws {@link RouteTableError}. */
export async function readTable(file: string): Promise<string> {
  try {
    return String(await readPlain(file, MAX_TABLE_BYTES))
  } catch (error) {
    throw new RouteTableError([{ path: [], message: `cannot read ${file} (${(error as NodeJS.ErrnoException).code})` }])
  }
}

/**
 * Parses the text of a routes file and checks it completely, with the files that it names (relative to its folder). Throws {@link RouteTableError} with one line `file:line:column: message` for each problem.
 */
export function parseRoutes(
  yamlText: string,
  fileName: string,
  check: (table: RouteTable) => void = compileTable,
): RouteTable {
  if (yamlText.length > MAX_TABLE_BYTES) throw new RouteTableError([{ path: [], message: `${fileName} is too large` }])
  const lines = new LineCounter()
  const document = parseDocument(yamlText, { lineCounter: lines, prettyErrors: false, merge: false })
  const at = (offset: number): string => {
    const { line, col } = lines.linePos(offset)
    return `${fileName}:${line}:${col}`
  }
  if (document.errors.length > 0) {
    const problems = document.errors.map(error => ({ path: [], message: yamlProblem(error) }))
    throw new RouteTableError(
      problems,
      document.errors.map(error => `${at(error.pos[0])}: ${yamlProblem(error)}`),
    )
  }
  const errorFor = (problems: readonly RouteProblem[], files?: readonly string[]): RouteTableError =>
    new RouteTableError(
      problems,
      problems.map(problem => `${at(offsetOf(document, problem.path))}: ${withPlace(problem)}`),
      files,
    )
  let given: unknown
  try {
    given = document.toJS({ maxAliasCount: 100 }) ?? {}
  } catch (error) {
    const message = yamlProblem(error as Error)
    throw new RouteTableError([{ path: [], message }], [`${at(badAliasOf(document))}: ${message}`])
  }
  const misshapen = shapeProblems(given)
  if (misshapen.length > 0) throw errorFor(misshapen)
  const table = given as RouteTable
  placeFiles(table, dirname(fileName))
  try {
    check(table)
  } catch (error) {
    throw error instanceof RouteTableError ? errorFor(error.problems, filesOf(table)) : error
  }
  return table
}

/** Offset of the first alias without an anchor, such as an unquoted `*.example.com`, or 0. */
function badAliasOf(document: Document): number {
  let offset = 0
  visit(document, {
    Alias(_, alias) {
      if (alias.resolve(document) !== undefined) return
      offset = alias.range![0]
      return visit.BREAK
    },
  })
  return offset
}

/** The secret files that a routes file names, even if its table is not valid. Empty if the file cannot be read. */
export async function secretFilesOf(file: string): Promise<string[]> {
  const found = new Set<string>()
  const text = await readTable(file).catch(() => '')
  visit(parseDocument(text, { prettyErrors: false }), {
    Pair(_, { key, value }) {
      if (isScalar(key) && key.value === 'file' && isScalar(value))
        found.add(resolve(dirname(file), String(value.value)))
    },
  })
  return [...found]
}

function withPlace(problem: RouteProblem): string {
  if (problem.message.startsWith('unknown key')) return problem.message
  const inRoute = problem.path[0] === 'routes' && problem.path.length > 1
  const place = inRoute ? problem.path.slice(2) : problem.path
  return place.length === 0 ? problem.message : `${formatPath(place)}: ${problem.message}`
}

/** Offset of the key, or else of the nearest enclosing one, in the text. */
function offsetOf(document: Document, path: RouteProblem['path']): number {
  let node: unknown = document.contents
  let offset = 0
  for (const part of path) {
    const items = (node as { items?: unknown[] } | null)?.items
    if (items === undefined) break
    if (typeof part === 'number') {
      node = items[part]
      offset = startOf(node) ?? offset
      continue
    }
    const pair = items.find(item => keyOf(item) === part) as { key: unknown; value: unknown } | undefined
    if (pair === undefined) break
    offset = startOf(pair.key) ?? offset
    node = pair.value
  }
  return offset
}

function startOf(node: unknown): number | undefined {
  return (node as { range?: [number, number, number] } | null)?.range?.[0]
}

function keyOf(item: unknown): unknown {
  return (item as { key?: { value?: unknown } }).key?.value
}
