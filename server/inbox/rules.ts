/** What the clients announced: which requests of a runtime the inbox takes, and on what terms. */
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { getAllHeaders } from '../../protocol/http/headers.ts'
import { isTimestamped } from '../../protocol/webhook/scheme.ts'
import { announcedVerifier } from '../../protocol/webhook/verify.ts'
import type { InboxRule } from '../../protocol/wire/control.ts'

/** A rule with every default in its place. */
export interface Rule {
  readonly route: string
  readonly mode: 'fallback' | 'always'
  readonly answerWithinMs: number
  readonly maxAgeMs: number
  readonly lane: 'path' | 'route' | 'none'
  /** Checks signatures here, before anything is stored. */
  readonly verifier: ReturnType<typeof announcedVerifier> | undefined
  /** What was signed with its time may come late: whoever gets it checks that against its arrival, or signs it anew. */
  readonly timestamps: boolean
}

/** A sender waits for ten seconds, and some of them are on the way. */
const ANSWER_WITHIN_MS = 8000
const MAX_AGE_MS = 72 * 3_600_000

interface Entry {
  readonly hosts: readonly string[] | undefined
  readonly segments: readonly string[]
  /** Names and values of fields in turn. */
  readonly headers: readonly string[]
  /** The path ends with a slash: the bare name does not match. */
  readonly open: boolean
  /** Equal where path, slash and fields are: among these, the method decides. */
  readonly group: string
  readonly methods: ReadonlySet<string> | undefined
  /** Undefined: the route has no inbox. */
  readonly rule: Rule | undefined
}

/** Requests that have no body say nothing that is worth keeping. */
const NEVER: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE'])

/** The rules of one runtime. They are asked in the order in which the client's router asks its routes. */
export class Rules {
  readonly #entries: readonly Entry[]

  constructor(rules: readonly InboxRule[], mostAgeMs: number) {
    this.#entries = rules.map(rule => entryOf(rule, mostAgeMs)).sort(inOrder)
  }

  find(request: HttpRequest): Rule | undefined {
    if (request.upgrade || NEVER.has(request.method)) return undefined
    const segments = segmentsOf(pathOf(request))
    const host = hostOf(request.authority)
    let fitting: Entry | undefined
    let rank = -1
    for (const entry of this.#entries) {
      if (rankOf(entry, host) <= rank || !fits(entry, segments, request.headers)) continue
      fitting = entry
      rank = rankOf(entry, host)
    }
    const takes = ({ methods }: Entry) => methods === undefined || methods.has(request.method)
    const rule = this.#entries.find(
      entry => entry.group === fitting?.group && rankOf(entry, host) === rank && takes(entry),
    )?.rule
    // Late it would be refused, and nobody would know: its sender had better try again.
    return rule?.timestamps === true || !isTimestamped(request.headers) ? rule : undefined
  }
}

/**
 * The longest path first; of equal ones the one whose name stands where the other takes any, then the one with most conditions on fields;
 * and who takes every method last.
 */
function inOrder(one: Entry, other: Entry): number {
  const longer = other.segments.length - one.segments.length
  if (longer !== 0) return longer
  const at = one.segments.findIndex((segment, i) => isCapture(segment) !== isCapture(other.segments[i]!))
  if (at >= 0) return isCapture(one.segments[at]!) ? 1 : -1
  const fields = other.headers.length - one.headers.length
  if (fields !== 0) return fields
  const slash = Number(other.open) - Number(one.open)
  return slash || Number(one.methods === undefined) - Number(other.methods === undefined)
}

function entryOf(given: InboxRule, mostAgeMs: number): Entry {
  const { route, hosts, path, methods, headers = [], mode, lane = 'path' } = given
  const segments = segmentsOf(path)
  const open = segments.at(-1) === ''
  if (open) segments.pop()
  const { answerWithinMs = ANSWER_WITHIN_MS, maxAgeMs = MAX_AGE_MS } = given
  const rule =
    mode === 'off'
      ? undefined
      : {
          ...{ route, mode, answerWithinMs, maxAgeMs: Math.min(maxAgeMs, mostAgeMs), lane },
          verifier: given.verify && announcedVerifier(given.verify),
          timestamps: given.timestamps === true,
        }
  const group = JSON.stringify([segments.map(segment => (isCapture(segment) ? '{}' : segment)), open, headers])
  return { hosts, segments, headers, open, group, methods: methods && new Set(methods), rule }
}

/** Without the query. */
export function pathOf({ path }: HttpRequest): string {
  const query = path.indexOf('?')
  return query < 0 ? path : path.slice(0, query)
}

function segmentsOf(path: string): string[] {
  return path.split('/').slice(1)
}

function isCapture(segment: string): boolean {
  return segment.startsWith('{')
}

function fits({ segments, headers, open }: Entry, asked: readonly string[], fields: HeaderList): boolean {
  if (asked.length < segments.length + (open ? 1 : 0) || !hasAll(fields, headers)) return false
  return segments.every((segment, i) => (isCapture(segment) ? asked[i] !== '' : segment === asked[i]))
}

function hasAll(fields: HeaderList, wanted: readonly string[]): boolean {
  for (let i = 0; i < wanted.length; i += 2) {
    const values = getAllHeaders(fields, wanted[i]!)
    if (values.length === 0 || (wanted[i + 1] !== '*' && !values.includes(wanted[i + 1]!))) return false
  }
  return true
}

function hostOf(authority: string): string {
  return authority.toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '')
}

/** How specific the rule is for this host: 2 names it, 1 as `*.example.com`, 0 takes any; -1: it is for others. */
function rankOf({ hosts }: Entry, asked: string): number {
  if (hosts === undefined) return 0
  if (hosts.includes(asked)) return 2
  const dot = asked.indexOf('.')
  return dot > 0 && hosts.includes(`*${asked.slice(dot)}`) ? 1 : -1
}
