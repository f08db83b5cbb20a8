/**
 * Control messages: JSON text beside the yamux bytes (SPEC.md, "Control messages"). Unknown types and members are ignored
 * and counted. A known member that is missing or malformed ends the session.
 */
import { Buffer } from 'node:buffer'
import { isRecord } from '../base/is-record.ts'
import { isRuntimeName } from '../base/names.ts'
import { ProtocolError } from '../base/protocol-error.ts'
import type { AttributeValue, SpanKind } from '../trace/span.ts'
import type { AnnouncedWebhook } from '../webhook/verify.ts'

/** WebSocket subprotocol. It changes only if old peers could not work with the change. */
export const SUBPROTOCOL = 'sallyport.v1'
/** Path that a client dials. */
export const CONNECT_PATH = '/tunnel/v1/connect'
/** Counts additions within `sallyport.v1`. A peer with another minor version is served, too. */
export const MINOR_VERSION = 0
/** The longest control message, in bytes of UTF-8. A longer one ends the session. */
export const MAX_CONTROL_BYTES = 16_384
/**
 * Control messages that either end accepts in a burst, and per second in the long run. A peer normally sends a handful per hour.
 * Stream resets have their own limit.
 */
export const CONTROL_RATE = { burst: 300, perSecond: 20 } as const

/** Limits on the CORS rules in `hello`. Checked when a table is read, since a peer could only end the session. */
export const CORS_LIMITS = {
  rules: 64,
  origins: 64,
  methods: 32,
  /** Also of `exposeHeaders`. */
  headers: 64,
  /** Length of one path, origin, method or header, which are ASCII without spaces. */
  wordChars: 256,
  /** Seconds. */
  maxAge: 86_400,
  /** Size of all rules as JSON, since the rest of the message needs room. */
  bytes: 12 * 1024,
} as const

/** Features that both ends may offer. Each applies if both `hello` and `welcome` list it. */
export const FEATURE = {
  /** The client returns the spans of recorded requests to the server: `spans`. */
  spans: 'spans',
  /** The client checks which targets of its routes accept connections: `check` and `checked`. */
  checks: 'checks',
  /** The client can open stored webhooks whose keys come from one shared key agreement. */
  sharedSeals: 'shared-seals',
} as const

/** Limits of `spans`. */
export const SPANS_LIMITS = {
  requests: 64,
  /** Spans of one request. */
  ofRequest: 8,
  attributes: 16,
  /** Length of a name and of a text value. */
  chars: 256,
  /** A day. */
  micros: 86_400_000_000,
} as const

/** Limits of `checked`. */
export const CHECKED_LIMITS = {
  targets: 20,
  /** Targets that were not tried. */
  more: 1_000_000,
} as const

/** Whether a target accepted a connection. The client does not reveal its address. */
export interface CheckedRoute {
  /** The route with this target. */
  route: string
  /** How long the connection took, in ms. */
  ms: number
  /** Error code, as callers would get it. Absent if the target accepted the connection. */
  code?: string
}

/** A span of a request at the client. */
export interface ReturnedSpan {
  /** 16 hex digits, like those of its parent: another span of the request, or the one in the client's `traceparent`. */
  id: string
  parent: string
  name: string
  kind: SpanKind
  /** Start, in microseconds since the request arrived, and duration. */
  at: number
  took: number
  attributes?: Record<string, AttributeValue>
  failed?: boolean
}

/** The spans of one request at the client. */
export interface ReturnedRequest {
  /** Id of the span that the client was given in `traceparent`. */
  of: string
  spans: ReturnedSpan[]
}

/** Longest duration in a message: a day, in ms. */
export const MAX_DURATION_MS = 86_400_000

/** CORS policy for error answers of the edge, for paths below `path`. */
export interface CorsRule {
  path: string
  origins: string[]
  methods?: string[]
  headers?: string[]
  exposeHeaders?: string[]
  credentials?: boolean
  maxAge?: number
}

/** Limits on the inbox rules in `hello`. Checked when a table is read, like {@link CORS_LIMITS}. */
export const INBOX_LIMITS = {
  rules: 64,
  hosts: 16,
  methods: 32,
  /** Header conditions. */
  headers: 16,
  /** Longest wait for an answer, in ms. */
  answerWithinMs: 60_000,
  /** Shortest and longest time for which a webhook is retried, in ms: 1 s to 30 days. */
  minAgeMs: 1000,
  maxAgeMs: 30 * 86_400_000,
  /** Secrets of one rule. */
  secrets: 4,
  /** Length of one secret as base64. */
  secretChars: 6000,
} as const

/** Which requests of a runtime the edge may store when they cannot be delivered at once, and how. */
export interface InboxRule {
  /** Name of the route. */
  route: string
  /** Exact names, or `*.example.com` for exactly one more label. Absent: any host. */
  hosts?: string[]
  /**
   * Prefix of whole segments; `{name}` matches any one segment. Precedence: the most specific host, then the longest path, then
   * a literal before `{name}`, then the most header conditions, then the method.
   */
  path: string
  /** Header fields that a request must have: name, value, name, value ...; `*` is any value. Only for `off`. */
  headers?: string[]
  /** Absent: every method. */
  methods?: string[]
  /** `off`: a route without an inbox that takes some requests before one with an inbox. */
  mode: 'fallback' | 'always' | 'off'
  answerWithinMs?: number
  maxAgeMs?: number
  lane?: 'path' | 'route' | 'none'
  /** Its last `{name}` is guarded: a path that ends with a slash there, where some servers take nothing for a name, is not stored. */
  guarded?: boolean
  /** The signature covers the time of sending, but late deliveries are fine: the client checks it or signs again. */
  timestamps?: boolean
  /** The field of its own in which webhooks are signed (`hmac`), in lower case. With another value there, a webhook is no duplicate. */
  signature?: string
  /** How the edge checks signatures. Absent: it does not. */
  verify?: AnnouncedWebhook
}

/** Limits that `hello` asks for and `welcome` grants. */
export interface PeerLimits {
  /**
   * Initial yamux window of every stream, in both directions. The client asks for it, and the value in `welcome` applies. If
   * that has none, it is yamux's 262,144.
   */
  windowBytes?: number
  /** How many streams the sender accepts at once. Absent: 1,000. */
  streams?: number
}

/** First message, from the client. */
export interface Hello {
  type: 'hello'
  minor: number
  /** Name and version, for logs: `sallyport/0.1.0`. */
  software: string
  /** The same for every session of one running client, and for no other: 1 to 64 of `A-Z a-z 0-9 . _ -`. */
  instance: string
  /** When the instance started, ms since 1970. */
  startedMs: number
  /** Last epoch of the instance; 0 for none. */
  lastEpoch: number
  /** Which of the instance's connections this is, from 0. */
  connection: number
  limits?: PeerLimits
  features?: string[]
  cors?: CorsRule[]
  /** CIDRs that may call the runtime. Absent: all. Empty: none. */
  allowCallers?: string[]
  /** Which webhooks may be stored for the runtime. Absent: none. */
  inbox?: InboxRule[]
  /** X25519 public key that stored webhooks are sealed for, 32 bytes as base64url. Absent: the client cannot open any. */
  inboxKey?: string
}

/** The server's answer to `hello`. */
export interface Welcome {
  type: 'welcome'
  minor: number
  software: string
  /** Id of this session, for the logs of both ends. */
  session: string
  /** Id of the replica that serves the session. */
  replica: string
  /** The runtime that the token names. */
  runtime: string
  /** Epoch of the instance; 0 if it has none yet. */
  epoch: number
  limits?: PeerLimits
  /** The features of `hello` that the server also has. */
  features?: string[]
  /** URL at which callers reach the runtime, if the server knows it. */
  url?: string
}

/**
 * From the client: it can serve (routes are loaded, a ping was answered). From the server, as the answer and on every change:
 * whether the instance is active, and its epoch.
 */
export interface Ready {
  type: 'ready'
  epoch?: number
  active?: boolean
}

/** A fresh token for the live session, from the client. */
export interface Reauth {
  type: 'reauth'
  token: string
}

/** The server accepted the fresh token. */
export interface ReauthOk {
  type: 'reauth-ok'
  /** When the new token expires, ms since 1970. */
  expiresMs: number
}

/** The server did not accept the fresh token. The old one stays in force. Only the server's log has the reason, under `requestId`. */
export interface ReauthRefused {
  type: 'reauth-refused'
  requestId?: string
}

/** From either side: after `afterMs`, open no new streams. Open ones may continue until `deadlineMs` from now. */
export interface Drain {
  type: 'drain'
  reason: string
  afterMs: number
  deadlineMs: number
}

/** The answer to `drain`: no stream with a higher id will be opened; 0 if none was. */
export interface Drained {
  type: 'drained'
  lastStream: number
}

/** Precedes a yamux RST and gives the reason. Unknown codes count as `cancelled`. */
export interface Reset {
  type: 'reset'
  stream: number
  code: string
}

/** A notice for a person, written to the peer's log. */
export interface Notice {
  type: 'notice'
  message: string
  code?: string
}

/** From the client, with the feature `spans`: the spans of requests whose trace is recorded. */
export interface SpansReturned {
  type: 'spans'
  requests: ReturnedRequest[]
}

/** From the server, with the feature `checks`: asks which targets of the routes accept connections. */
export interface CheckAsked {
  type: 'check'
  id: number
}

/** The answer to `check`. */
export interface CheckAnswered {
  type: 'checked'
  /** Id of the `check` that it answers. */
  id: number
  targets: CheckedRoute[]
  /** Number of targets that were not tried. */
  more: number
}

/** The last message of a session that ends on purpose. */
export interface Bye {
  type: 'bye'
  reason?: string
}

/** Any control message. `type` tells them apart. */
export type ControlMessage =
  | Hello
  | Welcome
  | Ready
  | Reauth
  | ReauthOk
  | ReauthRefused
  | Drain
  | Drained
  | Reset
  | Notice
  | SpansReturned
  | CheckAsked
  | CheckAnswered
  | Bye

/** Counts of ignored types and members, for the metrics. */
export interface UnknownCount {
  types: number
  members: number
}

type Check = (value: unknown) => boolean
interface Member {
  readonly check: Check
  readonly optional: boolean
}

const must = (check: Check): Member => ({ check, optional: false })
const may = (check: Check): Member => ({ check, optional: true })

const int =
  (max: number, min = 0): Check =>
  value =>
    Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max
const matching =
  (pattern: RegExp): Check =>
  value =>
    typeof value === 'string' && pattern.test(value)
const list =
  (check: Check, max: number): Check =>
  value =>
    Array.isArray(value) && value.length <= max && value.every(check)
const flag: Check = value => typeof value === 'boolean'

const time = int(Number.MAX_SAFE_INTEGER)
const epoch = int(Number.MAX_SAFE_INTEGER)
const duration = int(MAX_DURATION_MS)
/** Printable text for logs, at most 256 characters. */
const text = matching(/^[^\p{Cc}\p{Cs}]{0,256}$/u)
const ID = /^[A-Za-z0-9._-]{1,64}$/
const id = matching(ID)
const runtimeName: Check = value => typeof value === 'string' && isRuntimeName(value)
const TOKEN = /^[\x21-\x7e]{1,8192}$/
const token = matching(TOKEN)
const word: Check = isWord

/** Whether `hello` can carry this as a word: ASCII without spaces, 1 to 256 characters. */
export function isWord(value: unknown): value is string {
  return typeof value === 'string' && value.length <= CORS_LIMITS.wordChars && /^[\x21-\x7e]+$/.test(value)
}

/** Whether `hello` can carry this as a field value: at most 256 characters, without control characters. */
export function isText(value: string): boolean {
  return text(value)
}

/** Whether both `reauth` and a header can carry this as a token. */
export function isTokenText(text: string): boolean {
  return TOKEN.test(text)
}

/** Whether `name` can name an instance or a replica: 1 to 64 of `A-Z a-z 0-9 . _ -`. */
export function isId(name: unknown): name is string {
  return typeof name === 'string' && ID.test(name)
}

/** Checks an object member by member. Unknown members pass. */
function shape(members: Record<string, Member>): Check {
  const entries = Object.entries(members)
  return value => {
    if (!isRecord(value)) return false
    return entries.every(([name, member]) => (Object.hasOwn(value, name) ? member.check(value[name]) : member.optional))
  }
}

const limits = shape({ windowBytes: may(int(16_777_216, 1_024)), streams: may(int(1_000_000, 1)) })
const corsRule = shape({
  path: must(path => isWord(path) && path.startsWith('/')),
  origins: must(list(word, CORS_LIMITS.origins)),
  methods: may(list(word, CORS_LIMITS.methods)),
  headers: may(list(word, CORS_LIMITS.headers)),
  exposeHeaders: may(list(word, CORS_LIMITS.headers)),
  credentials: may(flag),
  maxAge: may(int(CORS_LIMITS.maxAge)),
})
const oneOf =
  (...words: string[]): Check =>
  value =>
    words.includes(value as string)
const secret = matching(new RegExp(`^[A-Za-z0-9+/]{1,${INBOX_LIMITS.secretChars}}={0,2}$`))
/** Any scheme passes here. The server stores nothing for a scheme that it does not know. */
const announcedWebhook = shape({
  scheme: must(word),
  secrets: must(list(secret, INBOX_LIMITS.secrets)),
  toleranceMs: may(duration),
  header: may(word),
  prefix: may(value => value === '' || isWord(value)),
  encoding: may(oneOf('hex', 'base64')),
  hash: may(oneOf('sha256', 'sha512')),
})
const inboxRule = shape({
  route: must(word),
  hosts: may(list(word, INBOX_LIMITS.hosts)),
  path: must(path => isWord(path) && path.startsWith('/')),
  headers: may(list(text, 2 * INBOX_LIMITS.headers)),
  methods: may(list(word, INBOX_LIMITS.methods)),
  mode: must(oneOf('fallback', 'always', 'off')),
  answerWithinMs: may(int(INBOX_LIMITS.answerWithinMs, 1)),
  maxAgeMs: may(int(INBOX_LIMITS.maxAgeMs, INBOX_LIMITS.minAgeMs)),
  lane: may(oneOf('path', 'route', 'none')),
  guarded: may(flag),
  timestamps: may(flag),
  signature: may(word),
  verify: may(announcedWebhook),
})

const spanId = matching(/^(?!0{16})[0-9a-f]{16}$/)
const micros = int(SPANS_LIMITS.micros)
const attributes: Check = value => {
  if (!isRecord(value)) return false
  const entries = Object.entries(value)
  return (
    entries.length <= SPANS_LIMITS.attributes &&
    entries.every(([name, said]) => isWord(name) && (text(said) || flag(said) || Number.isFinite(said)))
  )
}
const returnedSpan = shape({
  id: must(spanId),
  parent: must(spanId),
  name: must(value => text(value) && value !== ''),
  kind: must(oneOf('internal', 'server', 'client')),
  at: must(micros),
  took: must(micros),
  attributes: may(attributes),
  failed: may(flag),
})
const returnedRequest = shape({
  of: must(spanId),
  spans: must(list(returnedSpan, SPANS_LIMITS.ofRequest)),
})

const returned = list(returnedRequest, SPANS_LIMITS.requests)

/** Whether `spans` can carry this. */
export function areReturned(value: unknown): value is ReturnedRequest[] {
  return returned(value)
}

const question = int(0xffffffff)
const checkedRoute = shape({ route: must(id), ms: must(duration), code: may(id) })

type Members<Message> = { readonly [Name in Exclude<keyof Message, 'type'>]-?: Member }
type Table = { readonly [Type in ControlMessage['type']]: Members<Extract<ControlMessage, { type: Type }>> }

const TABLE: Table = {
  hello: {
    minor: must(int(65_535)),
    software: must(text),
    instance: must(id),
    startedMs: must(time),
    lastEpoch: must(epoch),
    connection: must(int(255)),
    limits: may(limits),
    features: may(list(word, 64)),
    cors: may(list(corsRule, CORS_LIMITS.rules)),
    allowCallers: may(list(word, 256)),
    inbox: may(list(inboxRule, INBOX_LIMITS.rules)),
    inboxKey: may(matching(/^[A-Za-z0-9_-]{43}$/)),
  },
  welcome: {
    minor: must(int(65_535)),
    software: must(text),
    session: must(id),
    replica: must(id),
    runtime: must(runtimeName),
    epoch: must(epoch),
    limits: may(limits),
    features: may(list(word, 64)),
    url: may(word),
  },
  ready: { epoch: may(epoch), active: may(flag) },
  reauth: { token: must(token) },
  'reauth-ok': { expiresMs: must(time) },
  'reauth-refused': { requestId: may(id) },
  drain: { reason: must(text), afterMs: must(duration), deadlineMs: must(duration) },
  drained: { lastStream: must(int(0xffffffff)) },
  reset: { stream: must(int(0xffffffff, 1)), code: must(id) },
  notice: { message: must(text), code: may(id) },
  spans: { requests: must(returned) },
  check: { id: must(question) },
  checked: {
    id: must(question),
    targets: must(list(checkedRoute, CHECKED_LIMITS.targets)),
    more: must(int(CHECKED_LIMITS.more)),
  },
  bye: { reason: may(text) },
}

/** @internal The members of each type, for the test that compares them with SPEC.md. Optional ones end with `?`. */
export function controlMembers(): Record<string, string[]> {
  return Object.fromEntries(
    Object.entries(TABLE).map(([type, members]) => [
      type,
      Object.entries<Member>(members).map(([name, member]) => (member.optional ? `${name}?` : name)),
    ]),
  )
}

/**
 * Parses one control message. Returns `undefined` for an unknown type.
 *
 * @throws ProtocolError if it is not a JSON object with a `type`, is longer than {@link MAX_CONTROL_BYTES}, or a known member
 * is missing or malformed.
 *
 * @example
 * ```ts
 * import { parseControl } from 'sallyport/protocol'
 *
 * const message = parseControl('{"type":"bye","reason":"drained"}')
 * if (message?.type === 'bye') console.log(message.reason)
 * ```
 */
export function parseControl(message: string, unknown?: UnknownCount): ControlMessage | undefined {
  const object = parseObject(message)
  const type = object.type
  if (typeof type !== 'string') throw new ProtocolError('control message without a type')
  if (!Object.hasOwn(TABLE, type)) {
    if (unknown) unknown.types++
    return undefined
  }
  const members: Record<string, Member> = TABLE[type as ControlMessage['type']]
  const known: Record<string, unknown> = { type }
  for (const name of Object.keys(members)) {
    const { check, optional } = members[name]!
    if (!Object.hasOwn(object, name)) {
      if (optional) continue
      throw new ProtocolError(`control message ${type} without ${name}`)
    }
    if (!check(object[name])) throw new ProtocolError(`control message ${type}: malformed ${name}`)
    known[name] = object[name]
  }
  if (unknown) for (const name of Object.keys(object)) if (!Object.hasOwn(known, name)) unknown.members++
  return known as unknown as ControlMessage
}

function parseObject(message: string): Record<string, unknown> {
  if (Buffer.byteLength(message) > MAX_CONTROL_BYTES) throw new ProtocolError('control message too long')
  let value: unknown
  try {
    value = JSON.parse(message)
  } catch {
    throw new ProtocolError('control message is not JSON')
  }
  if (!isRecord(value)) throw new ProtocolError('control message is not an object')
  return value
}

/**
 * The features of `offered` that `ours` also has, each once.
 *
 * @example
 * ```ts
 * import { commonFeatures } from 'sallyport/protocol'
 *
 * commonFeatures(['a', 'b', 'b'], ['b', 'c']) // ['b']
 * ```
 */
export function commonFeatures(offered: readonly string[] | undefined, ours: readonly string[]): string[] {
  return ours.filter(feature => offered?.includes(feature) === true)
}
