/** Compiles a route table into a {@link CompiledTable}. It checks everything, and reports all problems at once. */
import { parseCidrs } from '../protocol/base/address.ts'
import { isAuthority, isFieldValue, isToken } from '../protocol/http/headers.ts'
import { isMethod } from '../protocol/http/methods.ts'
import { checkPublished, compileCors } from './compile-cors.ts'
import { compileHeaders, isAlwaysRemoved, NO_PATTERNS } from './compile-headers.ts'
import { announceInbox, checkInbox } from './compile-inbox.ts'
import { compileTls, TableAuthorities } from './compile-tls.ts'
import { compileWebhook } from './compile-webhook.ts'
import type { CompiledAnswer, CompiledRoute, CompiledTable } from './compiled.ts'
import { isGuarded } from './match.ts'
import { decodeSegment } from './path.ts'
import { guardedInPart } from './second-path.ts'
import { type Route, type RouteProblem, type RouteTable, RouteTableError } from './table.ts'
import { shapeProblems } from './table-schema.ts'
import {
  captureNames,
  fillTarget,
  isResolveAddress,
  isResolveName,
  parseTarget,
  type TargetTemplate,
} from './target.ts'
import { findDuplicates, growTrie } from './tries.ts'

const CONNECT_MS = 5_000
const HEAD_MS = 60_000
/** More than anyone would write. The whole table is held in memory. */
const MAX_ROUTES = 10_000

/** Records a problem and its place in the table. */
export type ReportProblem = (path: RouteProblem['path'], message: string) => void

/** Throws {@link RouteTableError} with all problems. Reads the CA and secret files that routes name. */
export function compileTable(table: RouteTable): CompiledTable {
  const problems: RouteProblem[] = []
  const warnings: string[] = []
  const report: ReportProblem = (path, message) => problems.push({ path, message })
  const misshapen = shapeProblems(table)
  if (misshapen.length > 0) throw new RouteTableError(misshapen)
  if (table.routes.length > MAX_ROUTES) report(['routes'], `at most ${MAX_ROUTES} routes`)
  const resolve = compileResolve(table.resolve, report)
  const names = new Map<string, number>()
  const authorities = new TableAuthorities()
  const routes = table.routes.map((route, i) => {
    const before = names.get(route.name)
    if (before === undefined) names.set(route.name, i)
    else report(['routes', i], `two routes are called "${route.name}"`)
    return compileRoute(route, resolve, authorities, warnings, (path, message) =>
      report(['routes', i, ...path], message),
    )
  })
  findDuplicates(routes, report)
  checkPublished(table.routes, report)
  const inbox = problems.length > 0 ? [] : announceInbox(routes, report)
  if (problems.length > 0) throw new RouteTableError(problems)
  return {
    routes,
    isGuarded: routes.some(isGuarded),
    guardedInPart: guardedInPart(routes, resolve),
    ...growTrie(routes),
    resolve,
    inbox,
    warnings,
  }
}

function compileResolve(given: RouteTable['resolve'], report: ReportProblem): Map<string, string> {
  const resolve = new Map<string, string>()
  for (const [name, address] of Object.entries(given ?? {})) {
    if (!isResolveName(name.toLowerCase())) report(['resolve', name], 'the key must be name:port')
    else if (!isResolveAddress(address)) report(['resolve', name], 'must be address:port, with an IP address')
    else resolve.set(name.toLowerCase(), address)
  }
  return resolve
}

function compileRoute(
  route: Route,
  resolve: ReadonlyMap<string, string>,
  authorities: TableAuthorities,
  warnings: string[],
  report: ReportProblem,
): CompiledRoute {
  const path = compilePath(route, report)
  const tls = compileTls(route, authorities, warnings, report)
  const template = compileTarget(route, report)
  const names = path.captures.filter((_, i) => i % 2 === 0) as string[]
  for (const name of template === undefined ? [] : captureNames(template)) {
    if (!names.includes(name)) report(['target'], `{${name}} is not a capture of match.path`)
  }
  const fixed = template !== undefined && template.parts.length === 1
  const methods = compileMethods(route, report)
  checkInbox(route, warnings, report)
  const headers = compileMatchHeaders(route, warnings, report)
  const hosts = (route.match.hosts ?? []).map(host => host.toLowerCase())
  hosts.forEach((host, i) => {
    if (!HOST.test(host)) report(['match', 'hosts', i], 'must be a host name or *.name, without a port')
    else if (!isAuthority(host.replace('*.', ''))) report(['match', 'hosts', i], 'must be an address as URLs spell it')
  })
  return {
    name: route.name,
    route,
    ...path,
    methods,
    headers,
    group: JSON.stringify([path.segments, path.slash, headers]),
    target: fixed ? fillTarget(template, {}, resolve, tls) : undefined,
    template,
    answer: compileAnswer(route, report),
    ...compileRewrite(route, path.segments, report),
    keepHost: route.host !== 'target',
    requestRules: compileHeaders(route.headers, 'headers', report),
    responseRules: compileHeaders(route.responseHeaders, 'responseHeaders', report),
    connectMs: route.timeouts?.connectMs ?? CONNECT_MS,
    headMs: route.timeouts?.headMs ?? HEAD_MS,
    bodyBytes: route.limits?.bodyBytes ?? -1,
    tls,
    trustErrors: route.trustErrors ?? false,
    attempts: route.retries?.attempts ?? 0,
    idempotencyKey: route.retries?.idempotencyKey ?? false,
    cors: compileCors(route, report),
    ...compileWebhook(route, warnings, report),
    ...compileAllow(route, names, report),
  }
}

const HOST = /^(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$|^\[[0-9a-f:.]+\]$/
const CAPTURE = /^\{([A-Za-z][A-Za-z0-9]*)\}$/

type CompiledPath = Pick<CompiledRoute, 'segments' | 'captures' | 'slash'>

function compilePath(route: Route, report: ReportProblem): CompiledPath {
  const text = route.match.path ?? '/'
  const at = ['match', 'path'] as const
  if (!text.startsWith('/')) report(at, 'must begin with a slash')
  if (/[?#\\\s]/.test(text)) report(at, 'must be only a path, without query or white space')
  else if (/[^!-~]/.test(text)) report(at, `must be ASCII, as callers send it: ${encodeURI(text.toWellFormed())}`)
  const slash = text.length > 1 && text.endsWith('/')
  const parts = text === '/' ? [] : text.slice(1, slash ? -1 : undefined).split('/')
  const captures: (string | number)[] = []
  const segments = parts.map((part, i) => {
    const name = CAPTURE.exec(part)?.[1]
    const decoded = decodeSegment(part)
    if (name === undefined && /[{}]/.test(part)) report(at, 'a capture is a whole segment, written {name}')
    if (/\*|^[:<]/.test(part))
      report(at, 'has no patterns: write {name} for any segment; %2A, %3A and %3C are *, : and <')
    if (part === '') report(at, 'must not have an empty segment')
    if (decoded === '.' || decoded === '..') report(at, 'must not have a dot segment')
    if (name === undefined) return decoded
    if (captures.includes(name)) report(at, `{${name}} is captured twice`)
    captures.push(name, i)
    return undefined
  })
  return { segments, captures, slash }
}

function compileTarget(route: Route, report: ReportProblem): TargetTemplate | undefined {
  if ((route.target === undefined) === (route.answer === undefined)) {
    report([], `route "${route.name}" needs either a target or an answer`)
  }
  if (route.target === undefined) return undefined
  try {
    return parseTarget(route.target)
  } catch (error) {
    report(['target'], (error as TypeError).message)
    return undefined
  }
}

function compileMethods(route: Route, report: ReportProblem): Set<string> | undefined {
  const methods = route.match.methods
  if (methods === undefined) return undefined
  if (methods.length === 0) report(['match', 'methods'], 'an empty list allows no method; leave it out to allow all')
  methods.forEach((method, i) => {
    if (!isMethod(method)) report(['match', 'methods', i], 'is not an HTTP method')
  })
  return new Set(methods)
}

function compileMatchHeaders(route: Route, warnings: string[], report: ReportProblem): string[] {
  return Object.entries(route.match.headers ?? {})
    .map(([name, value]): [string, string] => {
      if (!isToken(name)) report(['match', 'headers', name], 'is not a header name')
      if (name.includes('*')) report(['match', 'headers', name], NO_PATTERNS)
      const lower = name.toLowerCase()
      if (isAlwaysRemoved(lower)) {
        warnings.push(
          `route "${route.name}": no request matches, since "${lower}" in match.headers is always removed before`,
        )
      }
      return [lower, value]
    })
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .flat()
}

function compileRewrite(
  route: Route,
  segments: readonly (string | undefined)[],
  report: ReportProblem,
): { cutSegments: number; prefix: string } {
  const { stripPrefix, replacePrefix } = route.rewrite ?? {}
  if (stripPrefix !== undefined && replacePrefix !== undefined) {
    report(['rewrite'], 'stripPrefix and replacePrefix cannot be used together')
  }
  const key = stripPrefix === undefined ? ['replacePrefix', 'from'] : ['stripPrefix']
  const cut = stripPrefix ?? replacePrefix?.from
  if (cut === undefined) return { cutSegments: 0, prefix: '' }
  const parts = cut.replace(/\/$/, '').split('/').slice(1)
  const fits = cut.startsWith('/') && parts.every((part, i) => segments[i] === decodeSegment(part))
  if (!fits) report(['rewrite', ...key], `must be a prefix of match.path, in whole segments`)
  const to = replacePrefix?.to ?? ''
  if (replacePrefix !== undefined && !/^\/(?!\/)[!-~]*$/.test(to)) {
    report(['rewrite', 'replacePrefix', 'to'], 'must be a path that begins with one slash')
  }
  return { cutSegments: parts.length, prefix: to.replace(/\/$/, '') }
}

function compileAnswer(route: Route, report: ReportProblem): CompiledAnswer | undefined {
  const answer = route.answer
  if (answer === undefined) return undefined
  const status = answer.status ?? 200
  const body = Buffer.from(answer.body ?? '')
  const empty = status === 204 || status === 304
  if (empty && body.length > 0) report(['answer', 'body'], `a ${status} has no body`)
  const type = answer.contentType ?? 'text/plain; charset=utf-8'
  if (!isFieldValue(type) || type !== type.trim()) report(['answer', 'contentType'], 'is not a valid field value')
  const headers = empty ? [] : ['content-type', type, 'content-length', String(body.length)]
  return { status, headers, body }
}

function compileAllow(
  route: Route,
  names: readonly string[],
  report: ReportProblem,
): Pick<CompiledRoute, 'callers' | 'allowed'> {
  const allowed = new Map<string, ReadonlySet<string>>()
  let callers: CompiledRoute['callers']
  if (names.includes('callers')) report(['match', 'path'], '{callers} cannot be a capture: allow.callers are addresses')
  if (route.allow && Object.keys(route.allow).length === 0) report(['allow'], 'is empty: it would allow all')
  for (const [name, values] of Object.entries(route.allow ?? {})) {
    if (values === undefined) report(['allow', name], 'must be a list: undefined would allow all')
    else if (values.some(value => value.includes('*'))) report(['allow', name], NO_PATTERNS)
    else if (name === 'callers') {
      try {
        callers = parseCidrs(values)
      } catch (error) {
        report(['allow', 'callers'], (error as TypeError).message)
      }
    } else if (names.includes(name)) allowed.set(name, new Set(values))
    else report(['allow', name], `{${name}} is not a capture of match.path`)
  }
  return { callers, allowed }
}
