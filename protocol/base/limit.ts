/**
 * A limit is declared once, beside what enforces it. From its declaration come the type, the check and the default of the
 * library's option, the API reference, and the command's setting with its flag, variable, YAML path and help.
 */
import { readBytes, readDuration } from './units.ts'

export interface Limit {
  /** Durations are options in milliseconds. A count is a whole number, and so are bytes; a share is from 0 to 1. */
  readonly kind: 'duration' | 'bytes' | 'count' | 'share'
  /** Here and below as people write it: `10s`, `64KiB`. */
  readonly default: string
  /** If absent: 0 if `zero` says what that means, else 1. */
  readonly least?: string
  /** If absent: 24 days, 65536 GiB, a million, or 1. */
  readonly most?: string
  /** What 0 means, as a clause: `no limit`. Without it, 0 is refused. */
  readonly zero?: string
  /** One sentence or two, for `--help` and the documentation. */
  readonly about: string
  /** Name of the command's setting. Absent: for embedders alone. */
  readonly flag?: string
}

export type Limits = Readonly<Record<string, Limit>>

/** What the caller of the library gives. */
export type LimitOptions<S extends Limits> = { readonly [K in keyof S]?: number | undefined }

/** The same with every default in its place. */
export type LimitValues<S extends Limits> = { readonly [K in keyof S]: number }

const READERS = { duration: readDuration, bytes: readBytes, count: Number, share: Number }
// 24 days are the most that a timer holds; 65536 GiB are more than a machine has.
const LEAST = { duration: '1ms', bytes: '1', count: '1', share: '0.01' }
const ZERO = { duration: '0s', bytes: '0', count: '0', share: '0' }
const MOST = { duration: '24d', bytes: '65536GiB', count: '1000000', share: '1' }

/** The range, as people write it. */
export function rangeOf({ kind, least, most, zero }: Limit): { readonly least: string; readonly most: string } {
  return { least: least ?? (zero === undefined ? LEAST : ZERO)[kind], most: most ?? MOST[kind] }
}

/** Both sentences: what the limit is, and what 0 does. */
export function aboutOf({ kind, about, zero }: Limit): string {
  return zero === undefined ? about : `${about} \`${ZERO[kind]}\`: ${zero}.`
}

export function readLimit({ kind }: Limit, text: string): number {
  return READERS[kind](text)
}

export function defaultsOf<S extends Limits>(schema: S): LimitValues<S> {
  return resolveLimits(schema, {})
}

/**
 * `given` with the defaults for what is absent. What is out of its range is a TypeError that names it; so is, in a `group`
 * of options that has nothing but limits, a name that is unknown.
 */
export function resolveLimits<S extends Limits>(
  schema: S,
  given: LimitOptions<S> = {},
  group?: string,
): LimitValues<S> {
  const prefix = group === undefined ? '' : `${group}.`
  const unknown = Object.keys(given).find(name => !Object.hasOwn(schema, name))
  if (group !== undefined && unknown !== undefined) throw new TypeError(`${prefix}${unknown} is unknown`)
  const checked = (name: string, limit: Limit) => [name, checkLimit(prefix + name, limit, given[name])] as const
  // The hot path reads these. V8 keeps what `fromEntries` makes fast; assigned one by one, so many names make a dictionary.
  return Object.fromEntries(Object.entries(schema).map(([name, limit]) => checked(name, limit))) as LimitValues<S>
}

const WORDS = { duration: ['', ' ms'], bytes: ['', ' bytes'], count: ['a whole number ', ''], share: ['', ''] }

/** Gives the value back, or the default in its place; a TypeError names it. */
export function checkLimit(name: string, limit: Limit, value = readLimit(limit, limit.default)): number {
  const range = rangeOf(limit)
  const [least, most] = [readLimit(limit, range.least), readLimit(limit, range.most)]
  const isWhole = limit.kind === 'duration' || limit.kind === 'share' || Number.isInteger(value)
  if (typeof value === 'number' && value >= least && value <= most && isWhole) return value
  const [what, unit] = WORDS[limit.kind]
  throw new TypeError(`${name} must be ${what}from ${least} to ${most}${unit}, not ${value}`)
}

export const PORT = {
  kind: 'count',
  default: '0',
  most: '65535',
  zero: 'a free one',
  about: 'A port.',
} as const satisfies Limit
export const DESCRIPTOR = {
  kind: 'count',
  default: '0',
  most: '2147483647',
  zero: 'standard input',
  about: 'A listening socket that this process was given.',
} as const satisfies Limit

/** Where something listens. Throws TypeError. */
export function checkSocket(place: { port?: number | undefined; fd?: number | undefined }, prefix = ''): void {
  checkLimit(`${prefix}port`, PORT, place.port)
  checkLimit(`${prefix}fd`, DESCRIPTOR, place.fd)
}

/** Throws a TypeError with this message unless the condition holds. */
export function demand(condition: boolean, message: string): asserts condition {
  if (!condition) throw new TypeError(message)
}
