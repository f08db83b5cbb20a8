/** Turns a received HTTP/2 header block into an {@link HttpRequest} (RFC 9113 section 8.3, RFC 8441). */
import { SallyportError } from '../../base/errors.ts'
import type { HttpRequest } from '../../exchange.ts'
import { badHead, hasHeader, isAuthority, isPath, removeHeader, withoutEmptyPort } from '../headers.ts'
import type { HttpLimits } from '../limits.ts'
import { isMethod, staysHere } from '../methods.ts'
import { MalformedError, type ReceivedHead, receivedHead } from './headers.ts'

interface Http2Peer {
  readonly address: string
  readonly encrypted: boolean
}

/** `ended`: the block ended the stream. Throws SallyportError for what must not be forwarded, and {@link MalformedError}. */
export function http2Request(
  block: readonly string[],
  ended: boolean,
  limits: HttpLimits,
  peer: Http2Peer,
): HttpRequest {
  const head = receivedHead(block, true)
  checkPseudo(head)
  if (head.count > limits.headFields + 5) throw new SallyportError('head-too-large', 'number of fields')
  if (head.bytes > limits.headBytes) throw oversized(block, limits)
  const upgrade = isWebSocket(head)
  const method = head.pseudo[':method'] ?? ''
  if (!upgrade && staysHere(method)) throw new SallyportError('method-not-allowed')
  if (!isMethod(method)) throw badHead('method')
  const path = head.pseudo[':path'] ?? ''
  if (path.length > limits.uriBytes) throw new SallyportError('uri-too-long')
  if (!isPath(path) && !(path === '*' && method === 'OPTIONS')) throw badHead(':path')
  const bodyBytes = upgrade ? 0 : bodyOf(head, ended)
  if (bodyBytes === 0) removeHeader(head.headers, 'expect')
  return {
    method: upgrade ? 'GET' : method,
    authority: authorityOf(head),
    path,
    headers: head.headers,
    bodyBytes,
    upgrade,
    peerAddress: peer.address,
    encrypted: peer.encrypted,
    caller: undefined,
    requestId: '',
    exchangeId: undefined,
  }
}

/** Section 8.3.1, section 8.5 for CONNECT, and RFC 8441 section 4. */
function checkPseudo({ pseudo }: ReceivedHead): void {
  const isTunnel = pseudo[':method'] === 'CONNECT' && pseudo[':protocol'] === undefined
  for (const name of [':method', ':scheme', ':path']) {
    const isDue = name === ':method' || !isTunnel
    if ((pseudo[name] !== undefined) !== isDue || pseudo[name] === '') throw new MalformedError(`${name} of a request`)
  }
  if (pseudo[':protocol'] !== undefined && pseudo[':method'] !== 'CONNECT') throw new MalformedError(':protocol')
}

/** The error for a block that is too large. Its path is in the part that was read, unless it is too large by itself. */
export function oversized(block: readonly string[], limits: HttpLimits): SallyportError {
  const at = block.indexOf(':path')
  return new SallyportError(at < 0 || block[at + 1]!.length > limits.uriBytes ? 'uri-too-long' : 'head-too-large')
}

/** Only RFC 8441's extended CONNECT with `:protocol: websocket` and version 13. */
function isWebSocket(head: ReceivedHead): boolean {
  const protocol = head.pseudo[':protocol']
  if (protocol === undefined) return false
  if (head.pseudo[':method'] !== 'CONNECT' || protocol !== 'websocket' || head.webSocketVersion !== '13') {
    throw new SallyportError('method-not-allowed', `extended CONNECT ${JSON.stringify(protocol.slice(0, 32))}`)
  }
  if (head.contentLength > 0) throw badHead('content-length of a WebSocket')
  return true
}

function bodyOf(head: ReceivedHead, ended: boolean): number {
  if (!ended) return head.contentLength
  if (head.contentLength > 0) throw new MalformedError('content-length without a body')
  return 0
}

/** There must be one authority: if both `:authority` and `host` are present, they must be equal. */
function authorityOf(head: ReceivedHead): string {
  const named = head.pseudo[':authority']
  const [host] = head.hosts
  if (head.hosts.length > 1 || (named !== undefined && host !== undefined && named !== host))
    throw badHead('two authorities')
  const authority = named ?? host ?? ''
  if (!isAuthority(authority)) throw badHead(':authority')
  return withoutEmptyPort(authority)
}

export function expectsContinue(request: HttpRequest): boolean {
  return request.bodyBytes !== 0 && hasHeader(request.headers, 'expect')
}
