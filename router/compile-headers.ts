/** Checks the header rules of a route. None may touch fields that frame a message or identify the caller. */
import { FIELD_KIND, kindOf } from '../protocol/http/field-names.ts'
import { dashed, isFieldValue, isForwardedName, isHopByHop, isMountName, isToken } from '../protocol/http/headers.ts'
import type { ReportProblem } from './compile.ts'
import type { CompiledHeaders } from './compiled.ts'
import type { HeaderRules, RouteProblem } from './table.ts'

/** Framing and connection fields, which each hop sets itself. */
const OURS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/**
 * Whether no request has this field (in lower case) when its route is chosen. Those of a delivery from the inbox begin with
 * `sallyport-`, and `te` may say `trailers`. Of what the codec reads itself, it keeps only the length.
 */
export function isAlwaysRemoved(name: string): boolean {
  if (name === 'te' || name === 'content-length') return false
  if (isForwardedName(name)) return !name.startsWith('sallyport-')
  return isMountName(name) || isHopByHop(name) || (kindOf(name) ?? FIELD_KIND.plain) !== FIELD_KIND.plain
}

/** Where `*` would be taken for any text, and means itself. */
export const NO_PATTERNS = 'has a "*", which stands for nothing here; list what is meant one by one'

export function compileHeaders(
  rules: HeaderRules | undefined,
  key: string,
  report: ReportProblem,
): CompiledHeaders | undefined {
  if (rules === undefined) return undefined
  const remove = new Set<string>()
  const set: string[] = []
  for (const [i, name] of (rules.remove ?? []).entries()) {
    if (mayChange(name, report, [key, 'remove', i])) remove.add(dashed(name.toLowerCase()))
  }
  for (const [name, value] of Object.entries(rules.set ?? {})) {
    if (!mayChange(name, report, [key, 'set', name])) continue
    if (!isFieldValue(value) || value !== value.trim()) report([key, 'set', name], 'is not a valid field value')
    remove.add(dashed(name.toLowerCase()))
    set.push(name.toLowerCase(), value)
  }
  return { remove, set }
}

function mayChange(name: string, report: ReportProblem, at: RouteProblem['path']): boolean {
  const lower = name.toLowerCase()
  if (!isToken(name)) report(at, 'is not a header name')
  else if (name.includes('*')) report(at, NO_PATTERNS)
  else if (OURS.has(dashed(lower))) report(at, `"${lower}" belongs to the connection and cannot be set or removed`)
  else if (isForwardedName(lower)) report(at, `"${lower}" identifies the caller and cannot be set or removed`)
  else return true
  return false
}
