/** Routes files: YAML to a checked {@link RouteTable}, with line, column and the nearest known key in every complaint. */
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { type Document, LineCounter, parseDocument } from 'yaml'
import { z } from 'zod'
import { compileTable } from './compile.ts'
import { nearest } from '../protocol/base/nearest.ts'
import { formatPath, type RouteProblem, type RouteTable, RouteTableError } from './table.ts'
import { routeTableSchema } from './table-schema.ts'

/** A file larger than this is none that a person wrote. */
const MAX_FILE_BYTES = 4 * 1024 * 1024
const MISSING = 'is missing'

/** Reads and checks a routes file. Throws {@link RouteTableError}, also if it cannot be read. */
export async function readRoutes(file: string): Promise<RouteTable> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    throw new RouteTableError([{ path: [], message: `cannot read ${file} (${(error as NodeJS.ErrnoException).code})` }])
  }
  return parseRoutes(text, file)
}

/**
 * Parses the text of a routes file and checks it wholly, CA files included (their paths count from the file's folder).
 * Throws {@link RouteTableError} with one line `file:line:column: message` for each problem.
 */
export function parseRoutes(yamlText: string, fileName: string): RouteTable {
  if (yamlText.length > MAX_FILE_BYTES) throw new RouteTableError([{ path: [], message: `${fileName} is too large` }])
  const lines = new LineCounter()
  const document = parseDocument(yamlText, { lineCounter: lines, prettyErrors: false, merge: false })
  const at = (offset: number): string => {
    const { line, col } = lines.linePos(offset)
    return `${fileName}:${line}:${col}`
  }
  if (document.errors.length > 0) {
    const problems = document.errors.map(error => ({ path: [], message: error.message }))
    throw new RouteTableError(
      problems,
      document.errors.map(error => `${at(error.pos[0])}: ${error.message}`),
    )
  }
  const tell = (problems: readonly RouteProblem[]): RouteTableError =>
    new RouteTableError(
      problems,
      problems.map(problem => `${at(offsetOf(document, problem.path))}: ${withPlace(problem)}`),
    )
  const parsed = routeTableSchema.safeParse(document.toJS({ maxAliasCount: 100 }) ?? {}, { reportInput: true })
  if (!parsed.success) throw tell(withoutEchoes(parsed.error.issues.flatMap(describeIssue)))
  const table = withAbsoluteCa(parsed.data, dirname(fileName))
  try {
    compileTable(table)
  } catch (error) {
    throw error instanceof RouteTableError ? tell(error.problems) : error
  }
  return table
}

/** A mistyped key is told once: not also as the missing one that was meant. */
function withoutEchoes(problems: RouteProblem[]): RouteProblem[] {
  const meant = problems.map(({ path, message }) => {
    const near = /did you mean "(.*)"\?$/.exec(message)?.[1]
    return near === undefined ? undefined : formatPath([...path.slice(0, -1), near])
  })
  return problems.filter(({ path, message }) => message !== MISSING || !meant.includes(formatPath(path)))
}

function withPlace(problem: RouteProblem): string {
  if (problem.message.startsWith('unknown key')) return problem.message
  const inRoute = problem.path[0] === 'routes' && problem.path.length > 1
  const place = inRoute ? problem.path.slice(2) : problem.path
  return place.length === 0 ? problem.message : `${formatPath(place)}: ${problem.message}`
}

function withAbsoluteCa(table: RouteTable, folder: string): RouteTable {
  for (const route of table.routes) {
    if (route.tls?.ca !== undefined && !route.tls.ca.includes('-----BEGIN')) {
      route.tls.ca = resolve(folder, route.tls.ca)
    }
  }
  return table
}

/** Where the key (or, failing that, the nearest enclosing one) stands in the text. */
function offsetOf(document: Document, path: readonly (string | number)[]): number {
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

function describeIssue(issue: z.core.$ZodIssue): RouteProblem[] {
  const path = issue.path as (string | number)[]
  if (issue.code === 'unrecognized_keys') {
    const known = knownKeys(path)
    return issue.keys.map(key => {
      const near = nearest(key, known)
      const hint = near === undefined ? `known are ${known.join(', ')}` : `did you mean "${near}"?`
      return { path: [...path, key], message: `unknown key "${key}"; ${hint}` }
    })
  }
  return [{ path, message: describeValue(issue) }]
}

function describeValue(issue: z.core.$ZodIssue): string {
  if (issue.code === 'invalid_type') {
    return issue.input === undefined ? MISSING : `must be ${article(issue.expected)}`
  }
  if (issue.code === 'invalid_value') return `must be one of ${issue.values.join(', ')}`
  if (issue.code === 'too_small') return `must be at least ${issue.minimum}`
  if (issue.code === 'too_big') return `must be at most ${issue.maximum}`
  return issue.message
}

function article(type: string): string {
  return /^[aeiou]/.test(type) ? `an ${type}` : `a ${type}`
}

/** Keys that the schema knows at a place. */
function knownKeys(path: readonly (string | number)[]): string[] {
  let schema: unknown = routeTableSchema
  for (const part of path) {
    schema = inner(schema)
    if (schema instanceof z.ZodArray && typeof part === 'number') schema = schema.element
    else if (schema instanceof z.ZodObject) schema = schema.shape[part as string]
  }
  schema = inner(schema)
  return schema instanceof z.ZodObject ? Object.keys(schema.shape) : []
}

function inner(schema: unknown): unknown {
  return schema instanceof z.ZodOptional ? schema.unwrap() : schema
}
