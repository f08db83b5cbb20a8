/**
 * The inbox rules of a table. A client announces them, and the server decides by them which requests it stores. Whatever `hello`
 * cannot carry is refused here, where file and line are known.
 */
import { Buffer } from 'node:buffer'
import { readPlainSync } from '../protocol/base/plain-file.ts'
import { readDuration } from '../protocol/base/units.ts'
import { schemeOf } from '../protocol/webhook/scheme.ts'
import { INBOX_LIMITS, type InboxRule, isText, isWord } from '../protocol/wire/control.ts'
import type { ReportProblem } from './compile.ts'
import { schemeOptions } from './compile-webhook.ts'
import type { CompiledRoute } from './compiled.ts'
import { isGuarded } from './match.ts'
import type { Route, RouteInbox } from './table.ts'

/** Methods whose requests usually have a body. */
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])
/** GitHub and GitLab give up after 10 s, and Slack after 3 s. The answer needs some of that time to reach them. */
const PATIENCE_MS = 9_000
const SLACK_PATIENCE_MS = 2_500
/** Most bytes of all rules as JSON, since the rest of `hello` needs room. */
const MAX_BYTES = 8 * 1024

export function checkInbox(route: Route, warnings: string[], report: ReportProblem): void {
  const { inbox } = route
  if (inbox === undefined) return
  const reportInbox: ReportProblem = (path, message) => report(['inbox', ...path], message)
  if (route.target === undefined) reportInbox([], 'only a route with a target can have an inbox')
  const bodiless = (route.match.methods ?? ['GET']).filter(method => !WITH_BODY.has(method))
  if (bodiless.length > 0) {
    reportInbox(
      [],
      `is for webhooks: match.methods must list methods that have a body (POST, PUT or PATCH), not ${bodiless.join(', ')}`,
    )
  }
  if (route.match.headers !== undefined)
    reportInbox([], 'the server cannot check match.headers: leave out one of the two')
  const { minAgeMs, maxAgeMs, answerWithinMs } = INBOX_LIMITS
  checkRange(inbox, 'maxAge', minAgeMs, maxAgeMs, 'from 1s to 30d', reportInbox)
  checkRange(inbox, 'answerWithin', 1, answerWithinMs, 'from 1ms to 60s', reportInbox)
  const isSlack = (inbox.verify ?? route.verify)?.scheme === 'slack'
  const patienceMs = isSlack ? SLACK_PATIENCE_MS : PATIENCE_MS
  if (inbox.answerWithin !== undefined && readDuration(inbox.answerWithin) > patienceMs) {
    const who = isSlack ? 'Slack gives up after 3 s' : 'GitHub and GitLab give up after 10 s'
    warnings.push(`route "${route.name}": inbox.answerWithin is ${inbox.answerWithin}, and ${who}`)
  }
}

/** Checks that `hello` can carry this route, which has an inbox or may take some requests of one that has. */
function checkWords({ name, match }: Route, report: ReportProblem): void {
  const words = [name, match.path ?? '/', ...(match.hosts ?? []), ...(match.methods ?? [])]
  if (!words.every(isWord)) report(['match'], 'with an inbox, at most 256 characters per word')
  if ((match.hosts?.length ?? 0) > INBOX_LIMITS.hosts)
    report(['match', 'hosts'], `with an inbox, at most ${INBOX_LIMITS.hosts}`)
  const fields = Object.entries(match.headers ?? {})
  if (fields.length > INBOX_LIMITS.headers)
    report(['match', 'headers'], `with an inbox, at most ${INBOX_LIMITS.headers}`)
  for (const [name, value] of fields) {
    if (!isText(name) || !isText(value))
      report(['match', 'headers', name], 'with an inbox, at most 256 printable characters')
  }
}

function checkRange(
  inbox: RouteInbox,
  name: 'maxAge' | 'answerWithin',
  least: number,
  most: number,
  range: string,
  report: ReportProblem,
): void {
  const text = inbox[name]
  if (text === undefined) return
  const ms = readDuration(text)
  if (ms < least || ms > most) report([name], `must be ${range}`)
}

function conditions({ name, match }: Route): Pick<InboxRule, 'route' | 'hosts' | 'path' | 'methods' | 'headers'> {
  return {
    route: name,
    path: match.path ?? '/',
    ...(match.hosts !== undefined && { hosts: match.hosts.map(host => host.toLowerCase()) }),
    ...(match.methods !== undefined && { methods: [...new Set(match.methods)] }),
    ...(match.headers !== undefined && { headers: fieldsOf(match.headers) }),
  }
}

function fieldsOf(headers: Record<string, string>): string[] {
  return Object.entries(headers).flatMap(([name, value]) => [name.toLowerCase(), value])
}

/** Of its methods, only those matter that a route with an inbox can have. */
function offRule(route: Route): InboxRule {
  const { methods, ...others } = conditions(route)
  return { ...others, ...(methods && { methods: methods.filter(method => WITH_BODY.has(method)) }), mode: 'off' }
}

function inboxRule(route: Route, inbox: RouteInbox): InboxRule {
  const verify = inbox.verify ?? route.verify
  const { mode = 'fallback', lane, maxAge } = inbox
  // Slack waits less than the default of the server.
  const answerWithin = inbox.answerWithin ?? (verify?.scheme === 'slack' ? '2s' : undefined)
  return {
    ...conditions(route),
    mode,
    ...(answerWithin !== undefined && { answerWithinMs: readDuration(answerWithin) }),
    ...(maxAge !== undefined && { maxAgeMs: readDuration(maxAge) }),
    ...(lane !== undefined && { lane }),
    ...(verify !== undefined && schemeOf(verify.scheme).timestamped && { timestamps: true }),
    ...(verify?.header !== undefined && { signature: verify.header.toLowerCase() }),
    ...(inbox.verify?.at === 'edge' && {
      verify: {
        ...schemeOptions(inbox.verify),
        secrets: inbox.verify.secrets.map(({ file }) => readPlainSync(file).toString('base64')),
      },
    }),
  }
}

/** Whether `one` precedes `other` for some requests: by its host, a longer path, a literal instead of a capture, or header conditions. */
function precedes(one: CompiledRoute, other: CompiledRoute): boolean {
  const meets = one.segments.every((segment, i) => {
    const theirs = other.segments[i]
    return segment === undefined || theirs === undefined || segment === theirs
  })
  if (!meets) return false
  const [ours, theirs] = [hostsOf(one), hostsOf(other)]
  if (theirs.some(host => ours.some(name => isWithin(name, host)))) return true
  if (!theirs.some(host => ours.includes(host))) return false
  const longer = one.segments.length - other.segments.length
  if (longer !== 0) return longer > 0
  const at = one.segments.findIndex((segment, i) => (segment === undefined) !== (other.segments[i] === undefined))
  if (at >= 0) return one.segments[at] !== undefined
  return one.headers.length > other.headers.length || (one.slash && !other.slash)
}

function hostsOf({ route }: CompiledRoute): readonly string[] {
  return route.match.hosts?.map(host => host.toLowerCase()) ?? ['*']
}

/** Whether `name` is more specific than `host`, and matches it. */
function isWithin(name: string, host: string): boolean {
  if (host === '*') return name !== '*'
  return host.startsWith('*.') && !name.startsWith('*') && name.slice(name.indexOf('.')) === host.slice(1)
}

/**
 * The inbox rules that a client with these routes tells its server: the routes with an inbox, and routes without one that take
 * some of the same requests first. Reads the secrets that the edge checks.
 */
export function announceInbox(routes: readonly CompiledRoute[], report: ReportProblem): InboxRule[] {
  const kept = routes.filter(({ route }) => route.inbox !== undefined)
  const rules: InboxRule[] = []
  let bytes = 0
  for (const [i, one] of routes.entries()) {
    const { inbox } = one.route
    const isFirst = kept.some(other => precedes(one, other))
    if (inbox === undefined && !isFirst) continue
    checkWords(one.route, (path, message) => report(['routes', i, ...path], message))
    const rule = inbox === undefined ? offRule(one.route) : inboxRule(one.route, inbox)
    if (isFirst && one.segments.at(-1) === undefined && isGuarded(one)) rule.guarded = true
    rules.push(rule)
    bytes += Buffer.byteLength(JSON.stringify(rule)) + 1
    if (rules.length <= INBOX_LIMITS.rules && bytes <= MAX_BYTES) continue
    const most = bytes > MAX_BYTES ? `${MAX_BYTES} bytes as JSON` : `${INBOX_LIMITS.rules} routes`
    report(
      ['routes', i],
      `the server accepts at most ${most} for routes with an inbox, and for routes that take some of their requests`,
    )
    break
  }
  return rules
}
