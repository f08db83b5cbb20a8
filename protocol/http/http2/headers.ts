/** Header blocks of HTTP/2, and the rules for what they contain (RFC 9113 section 8). */
import { SallyportError } from '../../base/errors.ts'
import { BODY_UNKNOWN, type HeaderList } from '../../exchange.ts'
import { FIELD_KIND, kindOf } from '../field-names.ts'
import { hasHeader, isFieldValue, plainNumber, unsendable } from '../headers.ts'

/** Joins `pseudo` and `headers` into one flat block, without the fields of one hop. Throws SallyportError if a field cannot be sent. */
export function outgoingBlock(pseudo: string[], headers: HeaderList, keepTe = false): string[] {
  const block = pseudo
  for (let i = 0; i < headers.length; i += 2) {
    const name = lowerCase(headers[i]!)
    const value = headers[i + 1]!
    const kind = kindOf(name)
    if (kind === undefined && !NAME.test(name)) throw unsendable(name)
    if (kind !== undefined && !travels(kind, name, value, keepTe)) continue
    if (!isFieldValue(value)) throw unsendable(name)
    block.push(name, value)
  }
  return block
}

/** An embedder may have written it otherwise. */
function lowerCase(name: string): string {
  return UPPER.test(name) ? name.toLowerCase() : name
}

function travels(kind: number, name: string, value: string, keepTe: boolean): boolean {
  if (kind === FIELD_KIND.plain || kind === FIELD_KIND.expect) return true
  return keepTe && name === 'te' && value === 'trailers'
}

/** The contents of a received header block. */
export interface ReceivedHead {
  readonly pseudo: Record<string, string | undefined>
  readonly headers: HeaderList
  readonly hosts: string[]
  readonly contentLength: number
  /** Bytes of names and values. Each cookie is counted as it arrived. */
  readonly bytes: number
  /** All cookies count as one field. */
  readonly count: number
  readonly webSocketVersion: string | undefined
}

/** A message that breaks the rules (section 8.1.1). Its stream is reset with PROTOCOL_ERROR, since whoever sent it is no HTTP/2 program. */
export class MalformedError extends SallyportError {
  constructor(what: string) {
    super('bad-request', `malformed message: ${what}`)
  }
}

const REQUEST_FIELDS: ReadonlySet<string> = new Set([':method', ':scheme', ':authority', ':path', ':protocol'])
const RESPONSE_FIELDS: ReadonlySet<string> = new Set([':status'])
const UPPER = /[A-Z]/
/** A token without upper case (section 8.2.1). */
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/

/**
 * Sorts a flat block. Cookies are joined (RFC 9113 section 8.2.3), and `host` and the fields of one hop are set aside. Throws
 * {@link MalformedError}.
 */
export function receivedHead(block: readonly string[], isRequest: boolean): ReceivedHead {
  const pseudo: Record<string, string | undefined> = Object.create(null)
  const allowed = isRequest ? REQUEST_FIELDS : RESPONSE_FIELDS
  const headers: HeaderList = []
  const hosts: string[] = []
  let contentLength = BODY_UNKNOWN
  let cookieAt = -1
  let bytes = 0
  let count = block.length / 2
  let webSocketVersion: string | undefined
  let inPseudo = true
  for (let i = 0; i < block.length; i += 2) {
    const name = block[i]!
    const value = block[i + 1]!
    bytes += name.length + value.length
    if (name.charCodeAt(0) === 0x3a) {
      if (!inPseudo || pseudo[name] !== undefined || !allowed.has(name)) throw new MalformedError('pseudo-field')
      if (!isFieldValue(value)) throw new MalformedError('value of a pseudo-field')
      pseudo[name] = value
      continue
    }
    inPseudo = false
    const kind = checkedKind(name, value)
    if (kind === FIELD_KIND.host) hosts.push(value)
    else if (kind === FIELD_KIND.contentLength) {
      const isFirst = contentLength === BODY_UNKNOWN
      contentLength = plainNumber(value)
      if (!isFirst || contentLength === -1) throw new MalformedError('content-length')
      headers.push(name, value)
    } else if (kind === FIELD_KIND.webSocketVersion) {
      webSocketVersion = webSocketVersion === undefined ? value : 'several'
    } else if (name === 'te') headers.push(name, value)
    else if (name === 'cookie' && cookieAt >= 0) {
      count--
      const before = headers[cookieAt]!
      headers[cookieAt] = before === '' || value === '' ? before + value : `${before}; ${value}`
    } else if (kind === FIELD_KIND.plain) {
      headers.push(name, value)
      if (name === 'cookie') cookieAt = headers.length - 1
    } else if (kind === FIELD_KIND.expect && value.toLowerCase() === '100-continue') {
      if (!hasHeader(headers, name)) headers.push(name, '100-continue')
    }
  }
  return { pseudo, headers, hosts, contentLength, bytes, count, webSocketVersion }
}

/** Checks a field (sections 8.2.1 and 8.2.2). Returns how it is treated. */
function checkedKind(name: string, value: string): number {
  const kind = kindOf(name)
  if (kind === undefined && !NAME.test(name)) throw new MalformedError('field name')
  if (!isFieldValue(value) || isPadded(value)) throw new MalformedError('field value')
  if (kind !== undefined && OF_ONE_CONNECTION.has(kind)) throw new MalformedError(name)
  if (name === 'te' && value !== 'trailers') throw new MalformedError(name)
  if (name === 'proxy-connection') throw new MalformedError(name)
  return kind ?? FIELD_KIND.plain
}

const OF_ONE_CONNECTION: ReadonlySet<number> = new Set([
  FIELD_KIND.connection,
  FIELD_KIND.transferEncoding,
  FIELD_KIND.upgrade,
  FIELD_KIND.keepAlive,
])

function isPadded(value: string): boolean {
  return value.length > 0 && (isBlank(value.charCodeAt(0)) || isBlank(value.charCodeAt(value.length - 1)))
}

function isBlank(char: number): boolean {
  return char === 0x20 || char === 0x09
}

/** Trailers as a flat list, with all that was sent. Throws {@link MalformedError}. */
export function receivedTrailers(block: readonly string[]): HeaderList {
  for (let i = 0; i < block.length; i += 2) {
    if (block[i]!.charCodeAt(0) === 0x3a) throw new MalformedError('pseudo-field in trailers')
    checkedKind(block[i]!, block[i + 1]!)
  }
  return [...block]
}
