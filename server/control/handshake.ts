/** The request with which a client opens a session: the checks before its token is verified, and the refusals. */
import { type IncomingMessage, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { CONNECT_PATH, SUBPROTOCOL } from '../../protocol/wire/control.ts'

/** Why a handshake was refused, for logs and metrics. The client sees only the status. */
export type RefusalReason =
  | 'not-found'
  | 'not-upgrade'
  | 'token-in-url'
  | 'origin'
  | 'subprotocol'
  | 'body'
  | 'token'
  | 'certificate'
  | 'keys-unavailable'
  | 'too-many-sessions'
  | 'shutting-down'
  | 'queue-full'
  | 'internal'

/** A client that was refused. */
export interface HandshakeRefusal {
  readonly reason: RefusalReason
  /** For logs only. */
  readonly detail: string
  readonly requestId: string
  readonly address: string
}

/** The version of the WebSocket protocol, in exactly this spelling. */
const VERSION = '13'

const STATUS: Record<RefusalReason, number> = {
  'not-found': 404,
  'not-upgrade': 426,
  'token-in-url': 401,
  origin: 403,
  subprotocol: 400,
  body: 400,
  token: 401,
  certificate: 401,
  'keys-unavailable': 503,
  'too-many-sessions': 503,
  'shutting-down': 503,
  'queue-full': 503,
  internal: 500,
}

/** The bearer token of a well-formed request, or why the request is refused. */
type HandshakeCheck = { readonly token: string } | { readonly refusal: RefusalReason; readonly detail: string }

export function checkHandshake(request: IncomingMessage): HandshakeCheck {
  const url = request.url ?? ''
  if (url !== CONNECT_PATH) {
    const query = url.startsWith(`${CONNECT_PATH}?`)
    return query
      ? { refusal: 'token-in-url', detail: 'the URL has a query; a token belongs in the Authorization header' }
      : { refusal: 'not-found', detail: 'another path' }
  }
  if (request.method !== 'GET') return { refusal: 'not-found', detail: 'another method' }
  if (request.headers.origin !== undefined) return { refusal: 'origin', detail: 'a browser may not connect' }
  // RFC 6455, section 4.2.1. `ws` would also accept version 8, and other spellings of 13.
  if (request.httpVersion !== '1.1') return { refusal: 'not-upgrade', detail: `HTTP/${request.httpVersion}` }
  if (request.headers['sec-websocket-version'] !== VERSION) {
    return { refusal: 'not-upgrade', detail: 'another version of the WebSocket protocol' }
  }
  // Node would give us its bytes as those of the WebSocket.
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers
  if (length !== '0' || coding !== undefined) {
    return { refusal: 'body', detail: 'the request has a body' }
  }
  const protocols = request.headers['sec-websocket-protocol']?.split(',').map(one => one.trim()) ?? []
  if (!protocols.includes(SUBPROTOCOL)) {
    return { refusal: 'subprotocol', detail: `the client does not offer the subprotocol ${SUBPROTOCOL}` }
  }
  return bearerOf(request)
}

/** There must be exactly one Authorization header. Of several, Node would keep the first. */
function bearerOf(request: IncomingMessage): HandshakeCheck {
  let value: string | undefined
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    if (request.rawHeaders[i]!.toLowerCase() !== 'authorization') continue
    if (value !== undefined) return { refusal: 'token', detail: 'several Authorization headers' }
    value = request.rawHeaders[i + 1]!
  }
  const token = value === undefined ? undefined : /^Bearer +([^\s,]+) *$/i.exec(value)?.[1]
  return token === undefined ? { refusal: 'token', detail: 'no bearer token' } : { token }
}

/** Head and body of a refusal. They are the same for every token that was refused. */
export function refusalText(
  reason: RefusalReason,
  requestId: string,
): { head: string[]; body: string; status: number } {
  const status = STATUS[reason]
  const body = JSON.stringify({ type: 'about:blank', title: STATUS_CODES[status], status, requestId })
  const head = [
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(body)}`,
    `date: ${new Date().toUTCString()}`,
    `x-request-id: ${requestId}`,
    'cache-control: no-store',
    'connection: close',
  ]
  if (status === 401) head.push('www-authenticate: Bearer')
  if (status === 503) head.push('retry-after: 5')
  if (status === 426) head.push('upgrade: websocket', `sec-websocket-version: ${VERSION}`)
  if (reason === 'subprotocol') head.push(`sec-websocket-protocol: ${SUBPROTOCOL}`)
  return { head, body, status }
}

/** Answers on a socket that `node:http` has handed over, and closes it. What still comes is discarded. */
export function refuseUpgrade(socket: Duplex, reason: RefusalReason, requestId: string): void {
  const { head, body, status } = refusalText(reason, requestId)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${head.join('\r\n')}\r\n\r\n${body}`)
  socket.resume()
}
