/** Turns a parsed request head into an {@link HttpRequest}: framing, target forms, Host, upgrade, expectation. */
import type { Buffer } from 'node:buffer'
import { SallyportError } from '../../base/errors.ts'
import { ownText } from '../../base/latin1.ts'
import { BODY_UNKNOWN, type HttpRequest } from '../../exchange.ts'
import { badHead, isAuthority, listTokens, remembering, withoutEmptyPort } from '../headers.ts'
import { isMethod, staysHere } from '../methods.ts'
import type { Head, HeadLimits } from './head-parser.ts'
import { HeadReader } from './head-reader.ts'
import { isWebSocketKey } from './websocket.ts'

/** What the connection needs to know in addition to the request. */
export interface RequestHead {
  readonly request: HttpRequest
  readonly http10: boolean
  /** The caller allows another request on this connection. */
  readonly keepAlive: boolean
  /** The caller waits for a 100 before it sends the body. */
  readonly expectsContinue: boolean
  readonly webSocketKey: string | undefined
}

/** Throws SallyportError for what must not be forwarded. */
export function requestHead(head: Head, peerAddress: string, encrypted: boolean): RequestHead {
  const bodyBytes = requestBody(head)
  const http10 = head.minor === 0
  const { authority, path } = target(head, http10)
  const upgrade = isWebSocket(head, bodyBytes)
  const expectsContinue = !http10 && bodyBytes !== 0 && head.expect === '100-continue'
  if (expectsContinue) head.headers.push('expect', '100-continue')
  return {
    request: {
      method: head.method,
      authority,
      path,
      headers: head.headers,
      bodyBytes,
      upgrade,
      peerAddress,
      encrypted,
      caller: undefined,
      requestId: '',
      exchangeId: undefined,
    },
    http10,
    keepAlive: !head.close && (!http10 || head.keepAlive),
    expectsContinue,
    webSocketKey: upgrade ? head.webSocketKey : undefined,
  }
}

/** Parses a complete head, including the empty line. Throws like {@link requestHead}, and if the head is too large. */
export function parseRequest(bytes: Buffer, limits: HeadLimits, peerAddress: string, encrypted: boolean): RequestHead {
  const reader = new HeadReader(limits, false)
  const head = reader.read(bytes, 0)
  if (head === undefined || reader.end !== bytes.length) throw badHead('not one head')
  return requestHead(head, peerAddress, encrypted)
}

/** RFC 9112 section 6.3, without its leniencies. */
function requestBody(head: Head): number {
  if (head.transferEncoding === undefined) return head.contentLength === -1 ? 0 : head.contentLength
  if (head.minor === 0) throw badHead('transfer-encoding on HTTP/1.0')
  if (head.contentLength !== -1) throw badHead('transfer-encoding and content-length')
  if (head.transferEncoding !== 'chunked') throw otherCoding(head.transferEncoding)
  return BODY_UNKNOWN
}

/** Any codings, with `chunked` exactly once and last. */
const UNKNOWN_CODING = /^(?:(?!chunked[ \t]*,)[!#$%&'*+\-.^_`|~0-9a-z]+[ \t]*,[ \t]*)+chunked$/

/**
 * With `chunked` alone the body is readable. With other codings before it, only its end is known (RFC 9112 section 6.1). Otherwise not
 * even the end is known.
 */
function otherCoding(value: string): SallyportError {
  return UNKNOWN_CODING.test(value)
    ? new SallyportError('not-implemented', 'transfer coding')
    : badHead('transfer-encoding')
}

const isHost = remembering(isAuthority)

let lastAuthority = ''

/** Runtimes are named after it, and their names are kept. */
function authorityOf(host: string): string {
  const authority = withoutEmptyPort(host)
  if (authority !== lastAuthority) lastAuthority = ownText(authority)
  return lastAuthority
}

/** RFC 9112 section 3.2: origin form, absolute form, and asterisk form for OPTIONS. The other forms are refused. */
function target(head: Head, http10: boolean): { authority: string; path: string } {
  if (staysHere(head.method)) throw new SallyportError('method-not-allowed')
  if (!isMethod(head.method)) throw badHead('method')
  if (head.hosts > 1 || (head.hosts === 0 && !http10)) throw badHead('not exactly one host')
  const host = head.host ?? ''
  if (host === '' ? !http10 : !isHost(host)) throw badHead('host')
  if (head.target.charCodeAt(0) === 0x2f) return { authority: authorityOf(host), path: head.target }
  if (head.target === '*' && head.method === 'OPTIONS') return { authority: authorityOf(host), path: '*' }
  return absoluteForm(head)
}

const ABSOLUTE = /^https?:\/\/([^/?]*)(.*)$/i

/** The authority of the target takes precedence over Host (RFC 9112 section 3.2.2). */
function absoluteForm(head: Head): { authority: string; path: string } {
  const parts = ABSOLUTE.exec(head.target)
  if (parts === null) throw badHead('request target')
  const [, authority = '', rest = ''] = parts
  if (!isAuthority(authority)) throw badHead('authority')
  const path = rest === '' && head.method === 'OPTIONS' ? '*' : rest.startsWith('/') ? rest : `/${rest}`
  return { authority: authorityOf(authority), path }
}

/** A request for any other protocol, or with a malformed offer, is an ordinary request. */
function isWebSocket(head: Head, bodyBytes: number): boolean {
  return (
    head.upgrade !== undefined &&
    head.connectionUpgrade &&
    head.method === 'GET' &&
    head.minor === 1 &&
    bodyBytes === 0 &&
    head.webSocketVersion === '13' &&
    isWebSocketKey(head.webSocketKey) &&
    listTokens(head.upgrade).includes('websocket')
  )
}
