/**
 * Finds the route of a request: first the most specific host that has a route for the path, then the longest path, then the
 * most header conditions, and then the method, which never leads to a shorter path.
 */
import type { HeaderList } from '../protocol/exchange.ts'
import type { CompiledRoute, CompiledTable, PathNode } from './compiled.ts'
import { decodeSegment, isPlainPath, NO_NAME, pathEnd, readPath } from './path.ts'

type Match =
  | { readonly kind: 'route'; readonly route: CompiledRoute }
  | { readonly kind: 'none' }
  | { readonly kind: 'method'; readonly route: CompiledRoute; readonly allow: string }
  | { readonly kind: 'ambiguous'; readonly reason: string }

const NONE: Match = { kind: 'none' }
const REFUSED: Match = {
  kind: 'ambiguous',
  reason: 'the path has a dot segment, a backslash, a control character or the like',
}
const TOO_MANY_WAYS: Match = { kind: 'ambiguous', reason: 'the path can be read in too many ways' }
const MANY_WAYS: Match = { kind: 'ambiguous', reason: 'the path can be read in ways that lead to different routes' }
const NO_LAST_NAME: Match = {
  kind: 'ambiguous',
  reason: 'nothing behind the last slash can be a name, whose route demands more',
}
const MANY_NAMES: Match = { kind: 'ambiguous', reason: 'a name that must be on a list can be read in several ways' }

/** The parts of a request that matter for matching. */
interface MatchInput {
  readonly method: string
  readonly authority: string
  readonly path: string
  readonly headers: HeaderList
}

export function matchRequest(table: CompiledTable, request: MatchInput): Match {
  const path = request.path
  const end = pathEnd(path)
  if (isPlainPath(path, end)) return withoutName(table, request, plainSegments(path, end))
  const readings = readPath(path, end)
  if (readings === undefined) return REFUSED
  const [strict, ...others] = readings
  if (strict === undefined) return TOO_MANY_WAYS
  const match = withoutName(table, request, strict)
  const route = routeOf(match)
  if (others.some(other => routeOf(withoutName(table, request, other)) !== route)) return MANY_WAYS
  return others.every(other => readAlike(route, strict, other)) ? match : MANY_NAMES
}

/**
 * Some servers take an empty last segment for a name (Fastify). If the route of such a name demands something, a final slash must not
 * get around it, unless the table has that path with its slash.
 */
function withoutName(table: CompiledTable, request: MatchInput, segments: readonly string[]): Match {
  const match = matchHosts(table, request, segments)
  const last = segments.length - 1
  if (!table.isGuarded || last === 0 || segments[last] !== '') return match
  const route = routeOf(match)
  if (route?.slash && route.segments.length === last) return match
  const names = segments.map(segment => (segment === '' ? NO_NAME : segment))
  const named = routeOf(matchHosts(table, request, names))
  return named === undefined || named === route || !isGuarded(named) ? match : NO_LAST_NAME
}

/** Whether it demands something, or answers by itself. */
export function isGuarded({ verifier, callers, allowed, answer }: CompiledRoute): boolean {
  return verifier !== undefined || callers !== undefined || allowed.size > 0 || answer !== undefined
}

function routeOf(match: Match): CompiledRoute | undefined {
  return match.kind === 'route' || match.kind === 'method' ? match.route : undefined
}

/** Whether each captured name that has a list of values is the same in both readings. */
function readAlike(route: CompiledRoute | undefined, one: readonly string[], other: readonly string[]): boolean {
  if (route === undefined || route.allowed.size === 0) return true
  for (let i = 0; i < route.captures.length; i += 2) {
    const at = route.captures[i + 1] as number
    if (route.allowed.has(route.captures[i] as string) && !isSameName(one[at], other[at])) return false
  }
  return true
}

/** A server that compares segments as they came decodes names all the same. */
function isSameName(one = '', other = ''): boolean {
  return one === other || one === decodeSegment(other)
}

function plainSegments(path: string, end: number): string[] {
  const segments: string[] = []
  let at = 1
  for (let slash = path.indexOf('/', at); slash >= 0 && slash < end; slash = path.indexOf('/', at)) {
    segments.push(path.slice(at, slash))
    at = slash + 1
  }
  segments.push(path.slice(at, end))
  return segments
}

function matchHosts(table: CompiledTable, request: MatchInput, segments: readonly string[]): Match {
  if (table.hosts.size > 0 || table.wildcards.size > 0) {
    const host = hostWithoutPort(request.authority)
    const exact = table.hosts.get(host)
    const found = exact === undefined ? NONE : matchPath(exact, request, segments)
    if (found !== NONE) return found
    const dot = host.indexOf('.')
    const wildcard = dot <= 0 ? undefined : table.wildcards.get(host.slice(dot))
    const second = wildcard === undefined ? NONE : matchPath(wildcard, request, segments)
    if (second !== NONE) return second
  }
  return table.anyHost === undefined ? NONE : matchPath(table.anyHost, request, segments)
}

/** Host of an authority: lower case, without port and final dot. */
function hostWithoutPort(authority: string): string {
  const lower = authority.toLowerCase()
  const colon = lower.startsWith('[') ? lower.indexOf(':', lower.indexOf(']')) : lower.indexOf(':')
  const host = colon < 0 ? lower : lower.slice(0, colon)
  return host.endsWith('.') ? host.slice(0, -1) : host
}

/** The deepest node whose routes take the request. Each node of the trie is visited at most once. */
function matchPath(node: PathNode, request: MatchInput, segments: readonly string[], depth = 0): Match {
  if (depth < segments.length) {
    const segment = segments[depth]!
    const literal = node.literals?.get(segment)
    if (node.capture !== undefined && segment !== '') return longer(node, literal, request, segments, depth)
    if (literal !== undefined) {
      const found = matchPath(literal, request, segments, depth + 1)
      if (found !== NONE) return found
    }
  }
  return node.routes.length === 0 ? NONE : matchHere(node, request, segments, depth)
}

/** A literal and a capture both match. The longer path wins; at equal length, the literal. */
function longer(
  node: PathNode,
  literal: PathNode | undefined,
  request: MatchInput,
  segments: readonly string[],
  depth: number,
): Match {
  const first = literal === undefined ? NONE : matchPath(literal, request, segments, depth + 1)
  const second = matchPath(node.capture!, request, segments, depth + 1)
  if (second !== NONE && (first === NONE || lengthOf(second) > lengthOf(first))) return second
  if (first !== NONE) return first
  return node.routes.length === 0 ? NONE : matchHere(node, request, segments, depth)
}

function lengthOf(match: Match): number {
  return routeOf(match)?.segments.length ?? 0
}

function matchHere(node: PathNode, request: MatchInput, segments: readonly string[], depth: number): Match {
  let refused: CompiledRoute | undefined
  let allow = ''
  for (const route of node.routes) {
    if (refused !== undefined && refused.group !== route.group) continue
    if (route.slash && depth === segments.length) continue
    if (route.headers.length > 0 && !hasAll(request.headers, route.headers)) continue
    if (route.methods === undefined || route.methods.has(request.method) || isAnsweredPreflight(route, request)) {
      return { kind: 'route', route }
    }
    refused ??= route
    for (const method of route.methods) allow += allow === '' ? method : `, ${method}`
  }
  return refused === undefined ? NONE : { kind: 'method', route: refused, allow }
}

/** A preflight asks about another method. A route with CORS takes the preflight if it takes that method. */
function isAnsweredPreflight(route: CompiledRoute, request: MatchInput): boolean {
  if (route.cors === undefined || request.method !== 'OPTIONS' || route.methods === undefined) return false
  for (let i = 0; i < request.headers.length; i += 2) {
    if (request.headers[i] === 'access-control-request-method') return route.methods.has(request.headers[i + 1]!)
  }
  return false
}

function hasAll(headers: HeaderList, wanted: readonly string[]): boolean {
  for (let i = 0; i < wanted.length; i += 2) if (!hasOne(headers, wanted[i]!, wanted[i + 1]!)) return false
  return true
}

function hasOne(headers: HeaderList, name: string, value: string): boolean {
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] === name && (value === '*' || headers[i + 1] === value)) return true
  }
  return false
}

export type Captures = Readonly<Record<string, string>>

const NO_CAPTURES: Captures = {}

/** Captured names of a request that matched. */
export function capturesOf(route: CompiledRoute, path: string): Captures {
  if (route.captures.length === 0) return NO_CAPTURES
  const captures: Record<string, string> = {}
  const segments = path.slice(1, pathEnd(path)).split('/')
  for (let i = 0; i < route.captures.length; i += 2) {
    captures[route.captures[i] as string] = decodeSegment(segments[route.captures[i + 1] as number] ?? '')
  }
  return captures
}
