/** The rules that clients announce: which requests of a runtime the inbox keeps, and how. */
import { withoutQuery } from '../../protocol/base/path.ts'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { getAllHeaders } from '../../protocol/http/headers.ts'
import { isTimestamped } from '../../protocol/webhook/scheme.ts'
import { announcedVerifier } from '../../protocol/webhook/verify.ts'
import type { InboxRule } from '../../protocol/wire/control.ts'

/** A rule with its defaults filled in. */
export interface Rule {
  readonly route: string
  readonly mode: 'fallback' | 'always'
  readonly answerWithinMs: number
  readonly maxAgeMs: number
  readonly lane: 'path' | 'route' | 'none'
  /** Checks signatures at the edge, before anything is stored. */
  readonly verifier: ReturnType<typeof announcedVerifier> | undefined
  /** Signatures that cover a time may be delivered late: the receiving end checks them against the arrival, or signs again. */
  readonly timestamps: boolean
  /** The field of the route's own in which webhooks are signed. */
  readonly signature: string | undefined
}

/** Senders wait ten seconds, and the network takes some of that. */
const ANSWER_WITHIN_MS = 8000
const MAX_AGE_MS = 72 * 3_600_000

interface Entry {
  readonly hosts: readonly string[] | undefined
  readonly segments: readonly string[]
  /** Names and values alternate. */
  readonly headers: readonly string[]
  /** The path ends with a slash, so it matches only below it. */
  readonly open: boolean
  /** Equal for rules with the same path, slash and header conditions. Among these, the method decides. */
  readonly group: string
  readonly methods: ReadonlySet<string> | undefined
  readonly guarded: boolean
  /** `undefined` if the route has no inbox. */
  readonly rule: Rule | undefined
}

/** Methods without a body are never kept. */
const NEVER: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE'])

/** Only a `{name}` takes it. */
const NO_NAME = ' '

/** The rules of one runtime, matched in the same order as routes in the client's router. */
export class Rules {
  readonly #entries: readonly Entry[]

  constructor(rules: readonly InboxRule[], ageLimitMs: number) {
    this.#entries = rules.map(rule => entryOf(rule, ageLimitMs)).sort(inOrder)
  }

  find(request: HttpRequest): Rule | undefined {
    if (request.upgrade || NEVER.has(request.method)) return undefined
    const segments = segmentsOf(withoutQuery(request.path))
    const entry = this.#find(request, segments)
    const isTaken = takes(entry, request.method) && !this.#refuses(request, segments, entry)
    const rule = isTaken ? entry?.rule : undefined
    // Delivered late, its signature would be refused and nobody would notice. So it is not kept, and the sender can retry.
    return rule?.timestamps === true || !isTimestamped(request.headers) ? rule : undefined
  }

  /** Whether the client's router refuses a path that ends with a slash, since some servers take nothing for a name. */
  #refuses(request: HttpRequest, segments: readonly string[], entry: Entry | undefined): boolean {
    const last = segments.length - 1
    if (last === 0 || segments[last] !== '' || (entry?.open === true && entry.segments.length === last)) return false
    const named = this.#find(request, [...segments.slice(0, -1), NO_NAME])
    return named !== entry && named?.guarded === true
  }

  /** Among those that fit, one that takes the method, if there is one. */
  #find(request: HttpRequest, segments: readonly string[]): Entry | undefined {
    const host = hostOf(request.authority)
    let fitting: Entry | undefined
    let rank = -1
    for (const entry of this.#entries) {
      if (rankOf(entry, host) <= rank || !fits(entry, segments, request.headers)) continue
      fitting = entry
      rank = rankOf(entry, host)
    }
    const isLike = (entry: Entry) => entry.group === fitting?.group && rankOf(entry, host) === rank
    return this.#entries.find(entry => isLike(entry) && takes(entry, request.method)) ?? fitting
  }
}

/**
 * The longest path comes first; among equally long ones, literal segments before captures, then more header conditions before
 * fewer. A rule for all methods comes last.
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

function entryOf(given: InboxRule, ageLimitMs: number): Entry {
  const { route, hosts, path, methods, headers = [], mode, lane = 'path', guarded = false } = given
  const segments = segmentsOf(path)
  const open = segments.at(-1) === ''
  if (open) segments.pop()
  const { answerWithinMs = ANSWER_WITHIN_MS, maxAgeMs = MAX_AGE_MS } = given
  const rule =
    mode === 'off'
      ? undefined
      : {
          ...{ route, mode, answerWithinMs, maxAgeMs: Math.min(maxAgeMs, ageLimitMs), lane },
          verifier: given.verify && announcedVerifier(given.verify),
          timestamps: given.timestamps === true,
          // Earlier versions name it for the edge alone.
          signature: given.signature ?? given.verify?.header?.toLowerCase(),
        }
  const group = JSON.stringify([segments.map(segment => (isCapture(segment) ? '{}' : segment)), open, headers])
  return { hosts, segments, headers, open, group, methods: methods && new Set(methods), guarded, rule }
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

function takes(entry: Entry | undefined, method: string): boolean {
  return entry?.methods?.has(method) ?? true
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

/** How specific the rule is for this host: 2 by name, 1 by wildcard (`*.example.com`), 0 for any host, -1 for other hosts. */
function rankOf({ hosts }: Entry, asked: string): number {
  if (hosts === undefined) return 0
  if (hosts.includes(asked)) return 2
  const dot = asked.indexOf('.')
  return dot > 0 && hosts.includes(`*${asked.slice(dot)}`) ? 1 : -1
}
