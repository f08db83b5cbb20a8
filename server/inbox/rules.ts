/** What the clients announced: which requests of a runtime the inbox takes, and on what terms. */
import type { HttpRequest } from '../../protocol/exchange.ts'
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
  /** The path ends with a slash: the bare name does not match. */
  readonly open: boolean
  readonly methods: ReadonlySet<string> | undefined
  /** Undefined: the route has no inbox. */
  readonly rule: Rule | undefined
}

/** Requests that have no body say nothing that is worth keeping. */
const NEVER: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE'])

/** The rules of one runtime. */
export class Rules {
  /** The longest path first. */
  readonly #entries: readonly Entry[]

  constructor(rules: readonly InboxRule[], mostAgeMs: number) {
    this.#entries = rules.map(rule => entryOf(rule, mostAgeMs)).sort((a, b) => b.segments.length - a.segments.length)
  }

  find(request: HttpRequest): Rule | undefined {
    if (request.upgrade || NEVER.has(request.method)) return undefined
    const segments = segmentsOf(pathOf(request))
    const entry = this.#entries.find(each => fits(each, segments, request))
    if (entry?.rule === undefined || entry.methods?.has(request.method) === false) return undefined
    // Late it would be refused, and nobody would know: its sender had better try again.
    return entry.rule.timestamps || !isTimestamped(request.headers) ? entry.rule : undefined
  }
}

function entryOf(given: InboxRule, mostAgeMs: number): Entry {
  const { route, hosts, path, methods, mode, lane = 'path' } = given
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
  return { hosts, segments, open, methods: methods && new Set(methods), rule }
}

/** Without the query. */
export function pathOf({ path }: HttpRequest): string {
  const query = path.indexOf('?')
  return query < 0 ? path : path.slice(0, query)
}

function segmentsOf(path: string): string[] {
  return path.split('/').slice(1)
}

function fits({ hosts, segments, open }: Entry, asked: readonly string[], request: HttpRequest): boolean {
  if (asked.length < segments.length + (open ? 1 : 0)) return false
  const isSame = (segment: string, i: number) => (segment.startsWith('{') ? asked[i] !== '' : segment === asked[i])
  return segments.every(isSame) && (hosts === undefined || hosts.some(host => isHost(host, request.authority)))
}

function isHost(host: string, authority: string): boolean {
  const asked = authority.toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '')
  return host.startsWith('*.') ? asked.slice(asked.indexOf('.')) === host.slice(1) : asked === host
}
