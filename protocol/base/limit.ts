/**
 * A limit is declared once, beside the code that enforces it. Everything else is derived from the declaration: type, check
 * and default of the library's option, the API reference, and the command's setting with its flag, variable, YAML path and
 * help.
 */
import { unknownMember } from './members.ts'
import { readBytes, readDuration } from './units.ts'

export interface Limit {
  /** Durations are options in milliseconds. A count is a whole number, and so are bytes; a share is from 0 to 1. */
  readonly kind: 'duration' | 'bytes' | 'count' | 'share'
  /** Written as people write it, here and below: `10s`, `64KiB`. */
  readonly default: string
  /** Default: 0 if `zero` is given, otherwise the smallest value of the kind, such as 1 or `1ms`. */
  readonly least?: string
  /** Default, by kind: 24 days, 65536 GiB, a million, or 1. */
  readonly most?: string
  /** What 0 means, as a clause: `no limit`. Without it, 0 is refused. */
  readonly zero?: string
  /** One or two sentences, for `--help` and the documentation. */
  readonly about: string
  /** Name of the command's setting. Absent if only embedders can set the limit. */
  readonly flag?: string
}

export type Limits = Readonly<Record<string, Limit>>

/** The limits that a user of the library may give. */
export type LimitOptions<S extends Limits> = { readonly [K in keyof S]?: number | undefined }

/** The same, with defaults filled in. */
export type LimitValues<S extends Limits> = { readonly [K in keyof S]: number }

const READERS = { duration: readDuration, bytes: readBytes, count: Number, share: Number }
// A timer holds at most 24 days; 65536 GiB is more than any machine has.
const LEAST = { duration: '1ms', bytes: '1', count: '1', share: '0.01' }
const ZERO = { duration: '0s', bytes: '0', count: '0', share: '0' }
const MOST = { duration: '24d', bytes: '65536GiB', count: '1000000', share: '1' }

/** The valid range, as people write it. */
export function rangeOf({ kind, least, most, zero }: Limit): { readonly least: string; readonly most: string } {
  return { least: least ?? (zero === undefined ? LEAST : ZERO)[kind], most: most ?? MOST[kind] }
}

/** What the limit is, and what 0 means. */
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
 * `given`, completed with the defaults. Throws a TypeError that names the option if a value is out of range. `group` is
 * the name of an option object that holds only limits; an unknown name in it is a TypeError, too.
 */
export function resolveLimits<S extends Limits>(
  schema: S,
  given: LimitOptions<S> = {},
  group?: string,
): LimitValues<S> {
  const prefix = group === undefined ? '' : `${group}.`
  const unknown = Object.keys(given).find(name => !Object.hasOwn(schema, name))
  if (group !== undefined && unknown !== undefined) throw unknownMember(prefix, unknown, schema)
  const checked = (name: string, limit: Limit) => [name, checkLimit(prefix + name, limit, given[name])] as const
  // The hot path reads these. V8 keeps an object from `fromEntries` fast; assigning this many names one by one would turn it
  // into a dictionary.
  return Object.fromEntries(Object.entries(schema).map(([name, limit]) => checked(name, limit))) as LimitValues<S>
}

const WORDING = { duration: ['', ' ms'], bytes: ['', ' bytes'], count: ['a whole number ', ''], share: ['', ''] }

/** Returns `value`, or the default if it is absent. Throws a TypeError with `name` if it is out of range. */
export function checkLimit(name: string, limit: Limit, value = readLimit(limit, limit.default)): number {
  const range = rangeOf(limit)
  const [least, most] = [readLimit(limit, range.least), readLimit(limit, range.most)]
  const isWhole = limit.kind === 'duration' || limit.kind === 'share' || Number.isInteger(value)
  if (typeof value === 'number' && value >= least && value <= most && isWhole) return value
  const [noun, unit] = WORDING[limit.kind]
  throw new TypeError(`${name} must be ${noun}from ${least} to ${most}${unit}, not ${value}`)
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

/** Checks where a listener listens. Throws TypeError. */
export function checkSocket(place: { port?: number | undefined; fd?: number | undefined }, prefix = ''): void {
  checkLimit(`${prefix}port`, PORT, place.port)
  checkLimit(`${prefix}fd`, DESCRIPTOR, place.fd)
}

/** Throws a TypeError with this message unless the condition holds. */
export function demand(condition: boolean, message: string): asserts condition {
  if (!condition) throw new TypeError(message)
}
