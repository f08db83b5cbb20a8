/** Translates between flat header lists and the forms that `node:http2` uses. */
import type { OutgoingHttpHeaders } from 'node:http2'
import { BODY_UNKNOWN, type HeaderList } from '../../exchange.ts'
import { FIELD_KIND, kindOf } from '../field-names.ts'
import { badHead, hasHeader, isFieldValue, isToken, plainNumber, unsendable } from '../headers.ts'

/** Joins `pseudo` and `headers` into one flat block, without the fields of one hop. Throws SallyportError if a field cannot be sent. */
export function outgoingBlock(pseudo: string[], headers: HeaderList, keepTe = false): string[] {
  const block = pseudo
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    const value = headers[i + 1]!
    const kind = kindOf(name)
    if (kind === undefined ? !isToken(name) : !travels(kind, name, value, keepTe)) {
      if (kind === undefined) throw unsendable(name)
      continue
    }
    if (!isFieldValue(value)) throw unsendable(name)
    block.push(name, value)
  }
  return block
}

function travels(kind: number, name: string, value: string, keepTe: boolean): boolean {
  if (kind === FIELD_KIND.plain || kind === FIELD_KIND.expect) return true
  return keepTe && name === 'te' && value === 'trailers'
}

/** Fields that Node allows once, and whose values may be joined as a list (RFC 9110 section 5.3). */
const JOINED = new Set(['content-encoding', 'content-language', 'if-match', 'if-none-match'])
/** Fields that Node allows once, and of which the first counts, since a second has no meaning. */
const SINGLE = new Set(
  (
    'access-control-allow-credentials access-control-max-age access-control-request-method age authorization ' +
    'content-length content-location content-md5 content-range content-type date dnt etag expires from host ' +
    'if-modified-since if-range if-unmodified-since last-modified location max-forwards proxy-authorization range ' +
    'referer retry-after tk upgrade-insecure-requests user-agent x-content-type-options'
  ).split(' '),
)

/** A block as the object that some of Node's calls need. Names such as `__proto__` cannot harm it. */
export function asObject(block: readonly string[]): OutgoingHttpHeaders {
  const object: OutgoingHttpHeaders = Object.create(null)
  for (let i = 0; i < block.length; i += 2) {
    const name = block[i]!
    const value = block[i + 1]!
    const present = object[name]
    if (present === undefined) object[name] = value
    else if (JOINED.has(name)) object[name] = `${present}, ${value}`
    else if (SINGLE.has(name)) continue
    else if (Array.isArray(present)) present.push(value)
    else object[name] = [String(present), value]
  }
  return object
}

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
const TAKES_BLOCK = major > 24 || (major === 24 && minor >= 7)

/** A response's block for this Node's `respond`: flat from 24.7 on. Before that, duplicates move to the first. */
export function responseBlock(block: string[]): string[] | OutgoingHttpHeaders {
  return TAKES_BLOCK ? block : asObject(block)
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

/**
 * Sorts a flat block from Node. Cookies are joined (RFC 9113 section 8.2.3), `host` and the fields of one hop are set aside, and
 * `te` is kept only as `trailers`.
 */
export function receivedHead(raw: readonly string[]): ReceivedHead {
  const pseudo: Record<string, string | undefined> = Object.create(null)
  const headers: HeaderList = []
  const hosts: string[] = []
  let contentLength = BODY_UNKNOWN
  let cookieAt = -1
  let bytes = 0
  let count = raw.length / 2
  let webSocketVersion: string | undefined
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!
    const value = raw[i + 1]!
    bytes += name.length + value.length
    if (name.charCodeAt(0) === 0x3a) {
      if (pseudo[name] !== undefined) throw badHead('repeated pseudo field')
      pseudo[name] = value
      continue
    }
    if (!isFieldValue(value)) throw badHead('field value')
    const kind = kindOf(name) ?? FIELD_KIND.plain
    if (kind === FIELD_KIND.host) hosts.push(value)
    else if (kind === FIELD_KIND.contentLength) {
      const isFirst = contentLength === BODY_UNKNOWN
      contentLength = plainNumber(value)
      if (!isFirst || contentLength === -1) throw badHead('content-length')
      headers.push(name, value)
    } else if (kind === FIELD_KIND.webSocketVersion) {
      webSocketVersion = webSocketVersion === undefined ? value : 'several'
    } else if (name === 'te') {
      if (value === 'trailers') headers.push(name, value)
    } else if (name === 'cookie' && cookieAt >= 0) {
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

/** Trailers as a flat list, from the raw list that Node passes along with the object. */
export function receivedTrailers(raw: readonly string[]): HeaderList {
  const trailers: HeaderList = []
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]!.charCodeAt(0) !== 0x3a && isFieldValue(raw[i + 1]!)) trailers.push(raw[i]!, raw[i + 1]!)
  }
  return trailers
}
