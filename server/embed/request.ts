/** Converts an embedder's request to one of the data path. */
import { randomUUID } from 'node:crypto'
import { canonicalAddress } from '../../protocol/base/address.ts'
import { checkNarrowing, type Members } from '../../protocol/base/members.ts'
import { BODY_UNKNOWN, type HeaderList, type HttpRequest } from '../../protocol/exchange.ts'
import {
  getHeader,
  isAuthority,
  isFieldValue,
  isPath,
  isToken,
  plainNumber,
  removeClaims,
  removeHeader,
  stripHopByHop,
} from '../../protocol/http/headers.ts'
import { isMethod, staysHere } from '../../protocol/http/methods.ts'

/** How `server.fetch` and `server.dispatcher` call into a runtime. */
export interface CallOptions {
  /**
   * The caller's address, as the runtime sees it and `allow.callers` checks it. If strangers choose the runtime, pass their
   * address: each address may ask for a limited number of runtimes that nobody serves. Default `127.0.0.1`, without that limit;
   * `undefined`, as a socket that has ended has it, is refused.
   */
  readonly caller?: string
}

const MEMBERS: Members<CallOptions> = { caller: 'string' }

/** Throws a TypeError for another member, or a caller that is no text, as of a socket that has ended: the request would seem to come from this machine. */
export function checkCall(options: CallOptions): void {
  checkNarrowing(options, MEMBERS, 'be 127.0.0.1')
}

/** Builds a request. Throws a TypeError if it could not be sent as HTTP. Modifies `headers`. */
export function buildRequest(
  head: { method: string; url: URL; path: string; headers: HeaderList; bodyBytes: number },
  options: CallOptions,
): HttpRequest {
  const { method, url, path, headers } = head
  const authority = getHeader(headers, 'host') ?? url.host
  if (!isMethod(method) || staysHere(method)) throw new TypeError(`method ${method} is not supported`)
  if (!isPath(path)) throw new TypeError('the path is not valid')
  if (!isAuthority(authority)) throw new TypeError('the host is not valid')
  for (let i = 0; i < headers.length; i += 2) {
    if (!isToken(headers[i]!) || !isFieldValue(headers[i + 1]!))
      throw new TypeError(`header ${headers[i]} is not valid`)
  }
  stripHopByHop(headers, true)
  const announced = plainNumber(getHeader(headers, 'content-length') ?? '') || BODY_UNKNOWN
  const bodyBytes = head.bodyBytes === BODY_UNKNOWN ? announced : head.bodyBytes
  for (const name of ['host', 'expect', 'x-request-id', 'content-length']) removeHeader(headers, name)
  if (bodyBytes > 0) headers.push('content-length', String(bodyBytes))
  const requestId = randomUUID()
  const address = canonicalAddress(options.caller ?? '127.0.0.1')
  if (address === '') throw new TypeError('caller is not an IP address')
  removeClaims(headers)
  headers.push('x-request-id', requestId)
  const scheme = url.protocol === 'http:' ? 'http' : 'https'
  return {
    method,
    authority,
    path,
    headers,
    bodyBytes,
    upgrade: false,
    peerAddress: address,
    encrypted: scheme === 'https',
    caller: { address, scheme, host: authority },
    fromTrustedProxy: options.caller === undefined ? undefined : true,
    requestId,
    exchangeId: undefined,
  }
}
