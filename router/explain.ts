/** Explains which route a request takes, and why, for `sallyport route test URL`. Forwards nothing. */
import { SallyportError } from '../protocol/base/errors.ts'
import { formatAddress } from '../protocol/base/host-port.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import type { HeaderList, HttpRequest } from '../protocol/exchange.ts'
import { isPath } from '../protocol/http/headers.ts'
import { isAlwaysRemoved } from './compile-headers.ts'
import type { CompiledRoute, CompiledTable } from './compiled.ts'
import { type Decision, decide } from './handler/decide.ts'
import { capturesOf, matchRequest } from './match.ts'

/** A request to ask `router.match` about. */
export interface MatchQuestion {
  /** `http(s)://host/path?query`, or only a path. */
  url: string
  /** Default `GET`. */
  method?: string | undefined
  headers?: Record<string, string> | undefined
  /** The caller's address, to check against `allow.callers`. Absent: that list is ignored. */
  caller?: string | undefined
}

const MEMBERS: Members<MatchQuestion> = { url: 'string', method: 'string', headers: 'object', caller: 'string' }

/** What a router would do with a request, and why. */
export interface MatchResult {
  /** Whether the request is forwarded, answered by the route itself, or refused. */
  outcome: 'forward' | 'answer' | 'refuse'
  route: string | undefined
  captures: Record<string, string>
  /** Path and query that the upstream sees. */
  path: string | undefined
  /** `protocol://host:port` of the upstream, and the address dialled if `resolve` names one. */
  target: string | undefined
  dial: string | undefined
  /** `Host` that the upstream sees. */
  host: string | undefined
  /** Code of the error for a refusal, and the status of an answer or refusal. */
  code: string | undefined
  status: number | undefined
  /** One sentence for a person. */
  explanation: string
}

/** Each of our listeners refuses it, whatever the table. */
const NO_REQUEST = {
  kind: 'refuse',
  route: undefined,
  error: new SallyportError('bad-request', 'a path or query has no `#`, white space or characters beyond ASCII'),
  allow: undefined,
} as const satisfies Decision

export function explainMatch(table: CompiledTable, question: MatchQuestion): MatchResult {
  checkMembers('', question, MEMBERS)
  const request = asRequest(question)
  const decision = isPath(request.path) ? decide(table, request, question.caller !== undefined) : NO_REQUEST
  const route = decision.route
  const result: MatchResult = {
    outcome: decision.kind,
    route: route?.name,
    captures: route === undefined ? {} : { ...capturesOf(route, request.path) },
    path: undefined,
    target: undefined,
    dial: undefined,
    host: undefined,
    code: undefined,
    status: undefined,
    explanation: '',
  }
  if (decision.kind === 'forward') {
    const { target, path } = decision
    const address = formatAddress(target)
    const dialled = formatAddress({ host: target.dialHost, port: target.dialPort })
    result.path = path
    result.target = `${target.protocol}://${address}`
    result.dial = dialled === address ? undefined : dialled
    result.host = decision.route.keepHost ? request.authority : target.authority
    result.explanation = `route "${decision.route.name}" sends it to ${result.target} as ${request.method} ${path}`
  } else if (decision.kind === 'answer') {
    result.status = decision.answer.status
    result.explanation = `route "${decision.route.name}" answers ${decision.answer.status} itself`
  } else {
    result.code = decision.error.reason
    result.status = decision.error.status
    result.explanation = whyRefused(table, request, route, decision.error)
  }
  return result
}

function whyRefused(
  table: CompiledTable,
  request: HttpRequest,
  route: CompiledRoute | undefined,
  error: SallyportError,
): string {
  if (error === NO_REQUEST.error) return `refused (400): ${error.message}`
  const match = matchRequest(table, request)
  if (match.kind === 'ambiguous') return `refused (400): ${match.reason}`
  if (match.kind === 'method') {
    return `route "${match.route.name}" has this path, but allows only ${match.allow}, not ${request.method}`
  }
  if (route === undefined) return noRoute(table, request)
  if (error.reason === 'caller-not-allowed') return `route "${route.name}" matches, but its allow.callers does not`
  if (error.reason === 'no-route') return badCapture(route, request)
  return `route "${route.name}" matches, but: ${error.message}`
}

function noRoute(table: CompiledTable, request: HttpRequest): string {
  const paths = [...new Set(table.routes.map(route => route.route.match.path ?? '/'))].slice(0, 20)
  return `no route for ${request.authority}${request.path}; the table's paths are ${paths.join(', ')}`
}

function badCapture(route: CompiledRoute, request: HttpRequest): string {
  for (const [name, value] of Object.entries(capturesOf(route, request.path))) {
    const allowed = route.allowed.get(name)
    if (allowed !== undefined && !allowed.has(value)) {
      const list = allowed.size === 0 ? 'is empty' : `is ${[...allowed].join(', ')}`
      return `route "${route.name}" matches, but allow.${name} ${list}, and not "${value}"`
    }
  }
  return `route "${route.name}" matches, but the captured names do not make a host name`
}

function asRequest(question: MatchQuestion): HttpRequest {
  const [, authority = 'localhost', path = question.url] = /^[a-z]+:\/\/([^/?#]*)(.*)$/i.exec(question.url) ?? []
  const headers: HeaderList = []
  for (const [name, value] of Object.entries(question.headers ?? {})) {
    const lower = name.toLowerCase()
    if (!isAlwaysRemoved(lower)) headers.push(lower, value)
  }
  const address = question.caller ?? ''
  return {
    method: question.method ?? 'GET',
    authority,
    path: path.startsWith('/') ? path : `/${path}`,
    headers,
    bodyBytes: 0,
    upgrade: false,
    peerAddress: address,
    encrypted: false,
    caller: { address, scheme: 'https', host: authority },
    requestId: '',
    exchangeId: undefined,
  }
}
