import { isNetwork } from '../../protocol/base/address.ts'
import { maskSecrets } from '../../protocol/base/held-text.ts'
import type { HostPort } from '../../protocol/base/host-port.ts'
import { type Limit, rangeOf } from '../../protocol/base/limit.ts'
import { isDnsLabel } from '../../protocol/base/names.ts'
import { readBytes, readDuration } from '../../protocol/base/units.ts'

/**
 * The kinds of values that settings can have. Each reads the value of a flag or environment variable (text) or of a YAML file
 * (text, number, boolean, list), or throws a `TypeError` that says "expected ...". It also describes itself for JSON Schema.
 * They are plain functions, because `--help` must not load a schema library.
 */
export interface Kind<T> {
  /** Placeholder for the value in `--help`; empty for a switch. */
  readonly placeholder: string
  /** Whether the flag may repeat, and its text is a comma-separated list. */
  readonly list: boolean
  readonly read: (value: unknown) => T
  readonly schema: Readonly<Record<string, unknown>>
}

export type ValueOf<K> = K extends Kind<infer T> ? T : never

function kind<T>(placeholder: string, schema: Kind<T>['schema'], read: (text: string) => T): Kind<T> {
  return { placeholder, list: false, schema, read: value => read(asText(value)) }
}

function asText(value: unknown): string {
  if (typeof value === 'string') return value.trim()
  if (typeof value === 'number') return String(value)
  throw new TypeError('expected text')
}

function matching(pattern: RegExp, expected: string): (text: string) => string {
  return text => {
    if (pattern.test(text)) return text
    throw new TypeError(`expected ${expected}`)
  }
}

const ADDRESS = /^(?:\[([0-9a-f:.]+)\]|([^:\s[\]]*)):(\d{1,5})$/i

/** `127.0.0.1:8080`, `[::1]:0`; `:8080` is every address. */
function readAddress(text: string): HostPort {
  const match = ADDRESS.exec(text)
  const port = Number(match?.[3])
  if (!match || port > 65_535) throw new TypeError('expected HOST:PORT, such as 127.0.0.1:8080 or [::1]:0')
  return { host: match[1] ?? (match[2] || '0.0.0.0'), port }
}

const addressSchema = { type: 'string', pattern: ':[0-9]{1,5}$' }

export const address = kind<HostPort>('HOST:PORT', addressSchema, readAddress)

/** An address, or `off`, which YAML 1.1 parsers turn into a boolean. */
export const addressOrOff: Kind<HostPort | 'off'> = {
  placeholder: 'HOST:PORT|off',
  list: false,
  schema: { anyOf: [addressSchema, { const: 'off' }, { const: false }] },
  read: value => (value === false || value === 'off' ? 'off' : readAddress(asText(value))),
}

/** Where an inbox keeps its webhooks, or `off`. */
export const inboxOrOff: Kind<string> = {
  placeholder: 'sqlite:PATH|postgres://USER@HOST/DATABASE|off',
  list: false,
  schema: { anyOf: [{ type: 'string', pattern: '^(sqlite:.+|postgres(ql)?://.+|off)$' }, { const: false }] },
  read: value => {
    if (value === false) return 'off'
    const text = asText(value)
    if (/^(sqlite:.+|postgres(ql)?:\/\/.+|off)$/s.test(text)) return text
    throw new TypeError(
      'expected sqlite:PATH, such as sqlite:/var/lib/sallyport/inbox.db, postgres://USER@HOST/DATABASE, or off',
    )
  },
}

/** Refuses a token or key that was given instead of its file, since the value could end up in a log. */
function readPath(text: string): string {
  if (maskSecrets(text) !== text) throw new TypeError('expected the path of a file, not its contents')
  return matching(/./s, 'a path')(text)
}

export const file = kind<string>('FILE', { type: 'string', minLength: 1 }, readPath)
export const folder = kind<string>('FOLDER', { type: 'string', minLength: 1 }, readPath)
export const text = (placeholder: string) =>
  kind<string>(placeholder, { type: 'string', minLength: 1 }, matching(/./s, 'text'))

export const pattern = (placeholder: string, form: RegExp, expected: string) =>
  kind<string>(placeholder, { type: 'string', pattern: form.source }, matching(form, expected))

export const path = kind<string>('/PATH', { type: 'string', pattern: '^/' }, matching(/^\/[!-~]*$/, 'a path from "/"'))

export const hostName = kind<string>('NAME', { type: 'string', format: 'hostname' }, value => {
  const name = value.toLowerCase().replace(/\.$/, '')
  const label = '[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?'
  if (name.length <= 253 && new RegExp(`^${label}(\\.${label})*$`).test(name)) return name
  throw new TypeError('expected a DNS name')
})

/** A Kubernetes name: `argo-events`. A wildcard such as `*` is refused, since it would match nothing. */
export const label = kind<string>('NAME', { type: 'string', format: 'hostname' }, value => {
  if (isDnsLabel(value)) return value
  throw new TypeError('expected a name of a-z, 0-9 and "-"')
})

/**
 * A URL with one of the schemes; given as `http:`, `https:`. Credentials in it are refused unless allowed, and so is an empty text,
 * which means none.
 */
export function url(
  schemes: readonly string[],
  options: { credentials?: boolean; empty?: boolean } = {},
): Kind<string> {
  const names = schemes.map(scheme => `${scheme}//`).join(' or ')
  return kind<string>('URL', { type: 'string', format: 'uri' }, value => {
    if (value === '' && options.empty) return value
    const parsed = URL.canParse(value) ? new URL(value) : undefined
    if (!parsed || !schemes.includes(parsed.protocol) || parsed.hostname === '') {
      throw new TypeError(`expected a URL with ${names}`)
    }
    if (!options.credentials && (parsed.username || parsed.password)) {
      throw new TypeError('expected a URL without credentials')
    }
    return value
  })
}

/** A URL with one or more hosts and without credentials: `redis://a:6379,b:6379/0`. */
export function hostsUrl(schemes: readonly string[]): Kind<string> {
  const names = schemes.map(scheme => `${scheme}://`).join(', ')
  const any = schemes.map(scheme => scheme.replaceAll('+', '\\+')).join('|')
  const form = new RegExp(`^(?:${any})://[^/@?#\\s]+(?:/[^@?#\\s]*)?$`)
  return kind<string>('URL', { type: 'string', pattern: `^(${any})://` }, value => {
    if (form.test(value)) return value
    throw new TypeError(`expected a URL with ${names}, without credentials`)
  })
}

/** `https://ui.example.com`, as browsers send it in `Origin`. */
export const origin = kind<string>('ORIGIN', { type: 'string', format: 'uri' }, value => {
  const parsed = URL.canParse(value) ? new URL(value) : undefined
  if (value !== '*' && parsed?.origin !== value.replace(/\/$/, '')) {
    throw new TypeError('expected an origin, such as https://ui.example.com')
  }
  return value.replace(/\/$/, '')
})

/** `10.0.0.0/8`, `::1`, `192.0.2.7`. */
export const cidr = kind<string>('CIDR', { type: 'string' }, value => {
  if (isNetwork(value)) return value
  throw new TypeError('expected an address or CIDR, such as 10.0.0.0/8')
})

/** A whole number from `least` to `most`. */
export function integer(least: number, most: number): Kind<number> {
  return kind<number>('N', { type: 'integer', minimum: least, maximum: most }, value => {
    const number = Number(value)
    if (/^\d+$/.test(value) && number >= least && number <= most) return number
    throw new TypeError(`expected a whole number from ${least} to ${most}`)
  })
}

/** A number from 0 to 1. */
export const share = kind<number>('SHARE', { type: 'number', minimum: 0, maximum: 1 }, value => {
  const number = Number(value)
  if (/^[\d.]+(e-?\d+)?$/i.test(value) && number >= 0 && number <= 1) return number
  throw new TypeError('expected a number from 0 to 1')
})

const anySize = kind<number>('SIZE', { type: ['integer', 'string'], pattern: '^[0-9]+ ?([KMG]iB)?$' }, readBytes)

/** A size from `least` to `most`, both as written by people: `65536`, `64KiB`, `4MiB`. */
export function bytesFrom(least: string, most: string): Kind<number> {
  const [leastBytes, mostBytes] = [anySize.read(least), anySize.read(most)]
  return kind<number>('SIZE', anySize.schema, value => {
    const size = anySize.read(value)
    if (size >= leastBytes && size <= mostBytes) return size
    throw new TypeError(`expected a size from ${least} to ${most}`)
  })
}

const anyDuration = kind<number>('TIME', { type: 'string', pattern: '^[0-9]+(ms|s|m|h|d)$' }, readDuration)

/** A duration from `least` to `most`, both as written by people. */
export function durationFrom(least: string, most: string): Kind<number> {
  const [leastMs, mostMs] = [anyDuration.read(least), anyDuration.read(most)]
  return kind<number>('TIME', anyDuration.schema, value => {
    const ms = anyDuration.read(value)
    if (ms >= leastMs && ms <= mostMs) return ms
    throw new TypeError(`expected a duration from ${least} to ${most}`)
  })
}

/** A duration up to the longest that a timer can hold. */
export const duration = durationFrom('0s', '24d')

/** A duration up to the longest that a message to a client can hold: a day. */
export const grace = durationFrom('0s', '24h')

/** The kind of a declared limit. */
export function limit(declared: Limit): Kind<number> {
  const { least, most } = rangeOf(declared)
  if (declared.kind === 'duration') return durationFrom(least, most)
  if (declared.kind === 'bytes') return bytesFrom(least, most)
  return declared.kind === 'share' ? share : integer(Number(least), Number(most))
}

/** Name of a replica, which clients see, too. */
export const id = kind<string>(
  'NAME',
  { type: 'string', pattern: '^[A-Za-z0-9._-]{1,64}$' },
  matching(/^[A-Za-z0-9._-]{1,64}$/, 'a name of 1 to 64 letters, digits, ".", "_" or "-"'),
)

export function oneOf<const T extends string>(...values: readonly T[]): Kind<T> {
  return kind<T>(values.join('|'), { enum: values }, value => {
    const found = values.find(candidate => candidate === value)
    if (found !== undefined) return found
    throw new TypeError(`expected one of ${values.join(', ')}`)
  })
}

/** A flag without a value. In the environment and in files: `true` or `false`. */
export const toggle: Kind<boolean> = {
  placeholder: '',
  list: false,
  schema: { type: 'boolean' },
  read: value => {
    if (value === true || value === 'true' || value === '1') return true
    if (value === false || value === 'false' || value === '0') return false
    throw new TypeError('expected true or false')
  },
}

/** A list of values: a repeated flag, comma-separated text, or a YAML list. Empty text is the empty list. */
export function list<T>(item: Kind<T>): Kind<readonly T[]> {
  return {
    placeholder: item.placeholder,
    list: true,
    schema: { anyOf: [{ type: 'array', items: item.schema }, item.schema] },
    read: value => {
      const parts = Array.isArray(value) ? value : asText(value).split(',')
      return parts.filter(part => typeof part !== 'string' || part.trim() !== '').map(item.read)
    },
  }
}
