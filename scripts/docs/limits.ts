/** All schemas of limits, by the name in the types that are made from them: `LimitOptions<typeof SERVER_LIMITS>`. */
import { BACKOFF_LIMITS } from '../../client/dial/backoff.ts'
import { CLIENT_SESSION_LIMITS, CONNECT_LIMITS } from '../../client/limits.ts'
import { aboutOf, type Limit, type Limits, rangeOf } from '../../protocol/base/limit.ts'
import { HTTP_LIMITS, LISTENER_LIMITS } from '../../protocol/http/limits.ts'
import { TRACING } from '../../protocol/trace/sampling.ts'
import { SESSION_LIMITS } from '../../protocol/wire/yamux/limits.ts'
import { UPSTREAM_LIMITS } from '../../router/upstream/upstreams.ts'
import { DRAIN_TIMES, HOLD_LIMITS, INBOX, LEASE, SERVER_LIMITS } from '../../server/limits.ts'
import { EXPORT_LIMITS } from '../../tracing/exporter.ts'

export const LIMITS: Readonly<Record<string, Limits>> = {
  SERVER_LIMITS,
  DRAIN_TIMES,
  LEASE,
  HOLD_LIMITS,
  INBOX,
  HTTP_LIMITS,
  LISTENER_LIMITS,
  SESSION_LIMITS,
  CLIENT_SESSION_LIMITS,
  CONNECT_LIMITS,
  BACKOFF_LIMITS,
  UPSTREAM_LIMITS,
  TRACING,
  EXPORT_LIMITS,
}

const SCHEMA = /LimitOptions<typeof (\w+)>/

/** A declaration with the options of its schemas written out. */
export function withLimits(code: string): string {
  const alias = /^(type \w+) = LimitOptions<typeof (\w+)>;$/.exec(code)
  if (alias !== null) return `${alias[1]} = {\n${membersOf(alias[2]!)}};`
  const [head = '', ...body] = code.split('\n')
  const name = /^interface /.test(head) ? SCHEMA.exec(head)?.[1] : undefined
  if (name === undefined) return code
  const rest = head
    .replace(SCHEMA, '')
    .replace(/, (?=\{)|(?<=extends ), /, '')
    .replace(/ extends +\{/, ' {')
  if (body.length === 0) return `${rest.replace(/\{\s*\}$/, '{')}\n${membersOf(name)}}`
  return [rest, membersOf(name).trimEnd(), ...body].join('\n')
}

function membersOf(name: string): string {
  const entries = Object.entries(LIMITS[name]!)
  return entries
    .map(([each, limit]) => `    /** ${describe(limit)} */\n    readonly ${each}?: number | undefined;\n`)
    .join('')
}

function describe(limit: Limit): string {
  const { least, most } = rangeOf(limit)
  const unit = limit.kind === 'duration' ? ', in ms' : ''
  return `${aboutOf(limit)} From ${least} to ${most}${unit}; default ${limit.default}.`
}
