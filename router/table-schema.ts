/**
 * Shape of a route table, whether it comes from a file or from JavaScript: which keys there are, and what type each value
 * has. Whatever a shape cannot express is checked by `compile.ts`. Loads no package, because clients use it, too.
 */
import { MAX_TIMER_MS } from '../protocol/base/durations.ts'
import { isRecord } from '../protocol/base/is-record.ts'
import { nearest } from '../protocol/base/nearest.ts'
import { readDuration } from '../protocol/base/units.ts'
import type { CorsPolicy } from '../protocol/http/problem.ts'
import { SCHEMES } from '../protocol/webhook/scheme.ts'
import type {
  HeaderRules,
  PrefixReplacement,
  Route,
  RouteInbox,
  RouteMatch,
  RouteProblem,
  RouteResign,
  RouteRetries,
  RouteTable,
  RouteTimeouts,
  RouteTls,
  RouteVerify,
  SecretFile,
  StaticAnswer,
} from './table.ts'

type Path = RouteProblem['path']

/** The shape of a value. */
export interface Shape {
  check(value: unknown, path: Path, problems: RouteProblem[]): void
  /** The keys of an object. */
  readonly keys?: Readonly<Record<string, Shape>>
  /** The items of a list. */
  readonly items?: Shape
  /** Whether an object must have this key. */
  readonly required?: boolean
}

function kind(expected: string, holds: (value: unknown) => boolean): Shape {
  return {
    check(value, path, problems) {
      if (!holds(value)) problems.push({ path, message: `must be ${expected}` })
    },
  }
}

const text = kind('a string', value => typeof value === 'string')
const flag = kind('a boolean', value => typeof value === 'boolean')

function whole(min: number, max = Number.MAX_SAFE_INTEGER): Shape {
  return {
    check(value, path, problems) {
      const report = (message: string) => {
        problems.push({ path, message })
      }
      if (typeof value !== 'number' || Number.isNaN(value)) report('must be a number')
      else if (value < min) report(`must be at least ${min}`)
      else if (value > max) report(`must be at most ${max}`)
      else if (!Number.isInteger(value)) report('must be a whole number')
    },
  }
}

function oneOf(...words: string[]): Shape {
  return kind(`one of ${words.join(', ')}`, value => words.includes(value as string))
}

function required(shape: Shape): Shape {
  return { ...shape, required: true }
}

function list(items: Shape, least = 0): Shape {
  return {
    items,
    check(value, path, problems) {
      if (!Array.isArray(value)) {
        problems.push({ path, message: 'must be a list' })
        return
      }
      if (value.length < least) problems.push({ path, message: `must have at least ${least}` })
      // By index: holes count as missing.
      for (let i = 0; i < value.length; i++) items.check(value[i], [...path, i], problems)
    },
  }
}

/** A map with any keys. `__proto__` is a key like any other. */
function mapOf(values: Shape): Shape {
  return {
    check(value, path, problems) {
      if (!isRecord(value)) problems.push({ path, message: 'must be a map' })
      else for (const [key, entry] of Object.entries(value)) values.check(entry, [...path, key], problems)
    },
  }
}

/** An object with exactly the keys of `T`. A mistyped key is reported once, not also as missing. */
function object<T>(keys: { readonly [K in keyof Required<T>]: Shape }): Shape {
  const shapes: Readonly<Record<string, Shape>> = keys
  const known = Object.keys(shapes)
  return {
    keys: shapes,
    check(value, path, problems) {
      if (!isRecord(value)) {
        problems.push({ path, message: 'must be a map' })
        return
      }
      const meant = new Set<string>()
      for (const key of Object.keys(value)) {
        if (Object.hasOwn(shapes, key)) continue
        const near = nearest(key, known)
        if (near !== undefined) meant.add(near)
        const hint = near === undefined ? `known are ${known.join(', ')}` : `did you mean "${near}"?`
        problems.push({ path: [...path, key], message: `unknown key "${key}"; ${hint}` })
      }
      for (const [key, shape] of Object.entries(shapes)) {
        const given = value[key]
        if (given !== undefined) shape.check(given, [...path, key], problems)
        else if (shape.required && !meant.has(key)) problems.push({ path: [...path, key], message: 'is missing' })
      }
    },
  }
}

/** An undefined entry of a map counts as absent. */
function optional(shape: Shape): Shape {
  return { check: (value, path, problems) => value === undefined || shape.check(value, path, problems) }
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/
const routeName: Shape = {
  check(value, path, problems) {
    text.check(value, path, problems)
    if (typeof value !== 'string' || NAME.test(value)) return
    problems.push({ path, message: 'must be letters, digits, ".", "_" or "-", at most 63' })
  },
}

const texts = list(text)
const headerRules = object<HeaderRules>({ set: mapOf(text), remove: texts })
/** Node's timers hold 31 bits. */
const durationMs = whole(1, MAX_TIMER_MS)

/** A duration as in the settings: `90s`, `30m`, `1h`. */
const duration: Shape = {
  check(value, path, problems) {
    try {
      readDuration(typeof value === 'string' ? value : '')
    } catch (error) {
      problems.push({ path, message: (error as TypeError).message })
    }
  },
}
const secretFile = object<SecretFile>({ file: required(text) })
const signature = {
  scheme: required(oneOf(...Object.keys(SCHEMES))),
  header: text,
  prefix: text,
  encoding: oneOf('hex', 'base64'),
  hash: oneOf('sha256', 'sha512'),
}
const verify = object<RouteVerify>({
  ...signature,
  secrets: required(list(secretFile, 1)),
  at: oneOf('router', 'edge'),
  tolerance: duration,
})

const route = object<Route>({
  name: required(routeName),
  match: required(object<RouteMatch>({ hosts: list(text, 1), path: text, methods: texts, headers: mapOf(text) })),
  target: text,
  answer: object<StaticAnswer>({ status: whole(200, 599), body: text, contentType: text }),
  rewrite: object<NonNullable<Route['rewrite']>>({
    stripPrefix: text,
    replacePrefix: object<PrefixReplacement>({ from: required(text), to: required(text) }),
  }),
  host: oneOf('keep', 'target'),
  headers: headerRules,
  responseHeaders: headerRules,
  timeouts: object<RouteTimeouts>({ connectMs: durationMs, headMs: durationMs }),
  limits: object<NonNullable<Route['limits']>>({ bodyBytes: whole(0) }),
  tls: object<RouteTls>({ ca: text, serverName: text, insecure: flag, http2: flag }),
  trustErrors: flag,
  retries: object<RouteRetries>({ attempts: whole(0, 5), idempotencyKey: flag }),
  cors: object<CorsPolicy>({
    origins: required(texts),
    methods: texts,
    headers: texts,
    credentials: flag,
    exposeHeaders: texts,
    maxAge: whole(0),
  }),
  allow: mapOf(optional(texts)),
  verify,
  inbox: object<RouteInbox>({
    mode: oneOf('fallback', 'always'),
    answerWithin: duration,
    maxAge: duration,
    lane: oneOf('path', 'route', 'none'),
    verify,
    resign: object<RouteResign>({ ...signature, secret: required(secretFile) }),
  }),
})

export const routeTableShape = object<RouteTable>({ routes: required(list(route)), resolve: mapOf(text) })

/** All differences between `table` and the shape of a table. */
export function shapeProblems(table: unknown): RouteProblem[] {
  const problems: RouteProblem[] = []
  routeTableShape.check(table, [], problems)
  return problems
}
