/**
 * Control messages: JSON text beside the yamux bytes (SPEC.md, "Control messages"). Unknown types and members are
 * ignored and counted; a known member that is missing or malformed breaks the session.
 */
import { Buffer } from 'node:buffer'
import { isRuntimeName } from '../base/names.ts'
import { ProtocolError } from '../base/protocol-error.ts'
import type { AttributeValue, SpanKind } from '../trace/span.ts'
import type { AnnouncedWebhook } from '../webhook/verify.ts'

/** WebSocket subprotocol; it changes only when an old peer could not go on. */
export const SUBPROTOCOL = 'sallyport.v1'
/** Where a client dials. */
export const CONNECT_PATH = '/tunnel/v1/connect'
/** Counts additions within `sallyport.v1`. A peer with another minor version is served too. */
export const MINOR_VERSION = 0
/** The longest control message, in bytes of UTF-8. A longer one ends the session. */
export const MAX_CONTROL_BYTES = 16_384

/** What `hello` can carry of CORS. Checked where a table is read, since a peer can only end the session. */
export const CORS_LIMITS = {
  rules: 64,
  origins: 64,
  methods: 32,
  /** The same holds for `exposeHeaders`. */
  headers: 64,
  /** Of one path, origin, method or header, which are ASCII without spaces. */
  wordChars: 256,
  /** Seconds. */
  maxAge: 86_400,
  /** Of all rules as JSON: the rest of the message needs room. */
  bytes: 12 * 1024,
} as const

/** What both ends may offer. Each holds where `hello` and `welcome` have it. */
export const FEATURE = {
  /** The server takes what the client tells of recorded requests: `spans`. */
  spans: 'spans',
  /** The client tells which targets of its routes take connections: `check` and `checked`. */
  checks: 'checks',
  /** The client opens kept webhooks whose keys come of one agreement. */
  sharedSeals: 'shared-seals',
} as const

/** What `spans` can carry. */
export const SPANS_LIMITS = {
  requests: 64,
  /** Spans of one request. */
  ofRequest: 8,
  attributes: 16,
  /** Of a name and of a text. */
  chars: 256,
  /** A day. */
  micros: 86_400_000_000,
} as const

/** What `checked` can carry. */
export const CHECKED_LIMITS = {
  targets: 20,
  /** Those besides. */
  more: 1_000_000,
} as const

/** Whether a target took a connection; where it is, the client keeps for itself. */
export interface CheckedRoute {
  /** The route that leads there. */
  route: string
  /** How long it took. */
  ms: number
  /** Absent: it took the connection; else why not, as callers are told. */
  code?: string
}

/** A part of what became of a request at the client. */
export interface ReturnedSpan {
  /** 16 hex digits, as its parent's: another one of the request, or the one that the client was given in `traceparent`. */
  id: string
  parent: string
  name: string
  kind: SpanKind
  /** Microseconds since the request came, and how many it took. */
  at: number
  took: number
  attributes?: Record<string, AttributeValue>
  failed?: boolean
}

/** What the client tells of one request. */
export interface ReturnedRequest {
  /** Id of the span that the client was given in `traceparent`. */
  of: string
  spans: ReturnedSpan[]
}

/** Longest time that a message can name: a day, in ms. */
export const MAX_DURATION_MS = 86_400_000

/** How errors made at the edge are shown to browsers, for paths under `path`. */
export interface CorsRule {
  path: string
  origins: string[]
  methods?: string[]
  headers?: string[]
  exposeHeaders?: string[]
  credentials?: boolean
  maxAge?: number
}

/** What `hello` can carry of the inbox. Checked where a table is read, like {@link CORS_LIMITS}. */
export const INBOX_LIMITS = {
  rules: 64,
  hosts: 16,
  methods: 32,
  /** Conditions on fields. */
  headers: 16,
  /** Longest patience with an answer, in ms. */
  answerWithinMs: 60_000,
  /** Shortest and longest time that a webhook is tried, in ms: 1 s to 30 days. */
  minAgeMs: 1000,
  maxAgeMs: 30 * 86_400_000,
  /** Of one rule. */
  secrets: 4,
  /** Of one secret as base64. */
  secretChars: 6000,
} as const

/** Which requests of a runtime the edge may keep when they cannot be delivered at once, and on what terms. */
export interface InboxRule {
  /** Name of the route. */
  route: string
  /** Exact names, or `*.example.com` for exactly one label more; absent: any. */
  hosts?: string[]
  /**
   * Prefix of whole segments, of which `{name}` stands for any one. The most specific host decides, then the longest path, then
   * a name before `{name}`, then the most conditions on fields, then the method.
   */
  path: string
  /** Names and values of fields that a request must have, in turn; `*` is any value. Only of `off`. */
  headers?: string[]
  /** Absent: every method. */
  methods?: string[]
  /** `off`: a route without an inbox that takes some requests before one that has it. */
  mode: 'fallback' | 'always' | 'off'
  answerWithinMs?: number
  maxAgeMs?: number
  lane?: 'path' | 'route' | 'none'
  /** Late deliveries may carry a signature that covers the time of sending: the client checks or renews it. */
  timestamps?: boolean
  /** How the edge checks signatures; absent: it does not. */
  verify?: AnnouncedWebhook
}

/** What `hello` asks for and `welcome` grants: window and number of streams. */
export interface PeerLimits {
  /**
   * Initial yamux window of every stream, in both directions. The client asks for it; what `welcome` says holds, and
   * where that names none, yamux's 262,144.
   */
  windowBytes?: number
  /** How many streams at once its sender takes; absent: 1,000. */
  streams?: number
}

/** Client to server, first. */
export interface Hello {
  type: 'hello'
  minor: number
  /** Name and version, for logs: `sallyport/0.1.0`. */
  software: string
  /** The same for every session of one running client: 1 to 64 of `A-Z a-z 0-9 . _ -`. */
  instance: string
  /** When the instance started, ms since 1970; a later one is the newer instance. */
  startedMs: number
  /** Epoch that the instance held last; 0 for none. */
  lastEpoch: number
  /** Which of the instance's connections this is, from 0. */
  connection: number
  limits?: PeerLimits
  features?: string[]
  cors?: CorsRule[]
  /** CIDRs that may call the runtime; absent: all, empty: none. */
  allowCallers?: string[]
  /** What may be kept for the runtime while it cannot be reached; absent: nothing. */
  inbox?: InboxRule[]
  /** X25519 key, 32 bytes as base64url, that what is kept is sealed for; absent: the client cannot open anything. */
  inboxKey?: string
}

/** Server to client, the answer. */
export interface Welcome {
  type: 'welcome'
  minor: number
  software: string
  /** Id of this session, for the logs of both ends. */
  session: string
  /** Id of the replica that serves it. */
  replica: string
  /** The runtime that the token names. */
  runtime: string
  /** Epoch of the instance, if it has one already; else 0. */
  epoch: number
  limits?: PeerLimits
  /** Those of `hello` that the server has too. */
  features?: string[]
  /** Where callers reach the runtime, as far as the server knows. */
  url?: string
}

/**
 * Client to server: it can serve (routes loaded, an echo has crossed). Server to client, as the answer and whenever it
 * changes: whether the instance is active, and its epoch.
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

/** The server took the fresh token. */
export interface ReauthOk {
  type: 'reauth-ok'
  /** When the new token ends, ms since 1970. */
  expiresMs: number
}

/** The old token stays in force. Only the server's log has the reason, under `requestId`. */
export interface ReauthRefused {
  type: 'reauth-refused'
  requestId?: string
}

/** Either side: open no new streams from `afterMs` from now on; what is open has until `deadlineMs` from now. */
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

/** Precedes a yamux RST and says why. Unknown codes count as `cancelled`. */
export interface Reset {
  type: 'reset'
  stream: number
  code: string
}

/** A notice for the peer's log, for a person to read. */
export interface Notice {
  type: 'notice'
  message: string
  code?: string
}

/** Client to server, where both offer the feature `spans`: what became of requests whose trace is recorded. */
export interface SpansReturned {
  type: 'spans'
  requests: ReturnedRequest[]
}

/** Server to client, where both offer the feature `checks`: which targets of the routes take connections? */
export interface CheckAsked {
  type: 'check'
  id: number
}

/** The answer to `check`. */
export interface CheckAnswered {
  type: 'checked'
  /** That of the question. */
  id: number
  targets: CheckedRoute[]
  /** Targets that were not tried, besides these. */
  more: number
}

/** The last message of a session that ends on purpose. */
export interface Bye {
  type: 'bye'
  reason?: string
}

/** Any message that either end may send beside the streams, told apart by `type`. */
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

/** Counts what was ignored, for the metrics. */
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

/** Text that `hello` can carry: ASCII without spaces, 1 to 256 characters. */
export function isWord(value: unknown): value is string {
  return typeof value === 'string' && value.length <= CORS_LIMITS.wordChars && /^[\x21-\x7e]+$/.test(value)
}

/** Text of a field that `hello` can carry: at most 256 characters, without control characters. */
export function isText(value: string): boolean {
  return text(value)
}

/** Whether a `reauth`, and a header, can carry this as a token. */
export function isTokenText(text: string): boolean {
  return TOKEN.test(text)
}

/** Whether `name` can name an instance or a replica: 1 to 64 of `A-Z a-z 0-9 . _ -`. */
export function isId(name: unknown): name is string {
  return typeof name === 'string' && ID.test(name)
}

/** Checks an object member by member; unknown ones pass. */
function shape(members: Record<string, Member>): Check {
  const entries = Object.entries(members)
  return value => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
    const object = value as Record<string, unknown>
    return entries.every(([name, member]) =>
      Object.hasOwn(object, name) ? member.check(object[name]) : member.optional,
    )
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
/** The server knows which schemes there are: of one that it does not know, it keeps nothing. */
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
  timestamps: may(flag),
  verify: may(announcedWebhook),
})

const spanId = matching(/^(?!0{16})[0-9a-f]{16}$/)
const micros = int(SPANS_LIMITS.micros)
const attributes: Check = value => {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
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

/** @internal The members of each type, for the test that holds SPEC.md to them; optional ones end with `?`. */
export function controlMembers(): Record<string, string[]> {
  return Object.fromEntries(
    Object.entries(TABLE).map(([type, members]) => [
      type,
      Object.entries<Member>(members).map(([name, member]) => (member.optional ? `${name}?` : name)),
    ]),
  )
}

/**
 * Parses one control message; `undefined` for a type that we do not know.
 *
 * @throws ProtocolError if it is no JSON object with a `type`, is longer than {@link MAX_CONTROL_BYTES} or a member that
 * we know is missing or malformed.
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
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ProtocolError('control message is not an object')
  }
  return value as Record<string, unknown>
}

/**
 * What both ends can do: those of `offered` that `ours` has, each once.
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
