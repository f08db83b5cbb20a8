import { newRequestId } from '../base/ids.ts'
import type { HttpRequest } from '../exchange.ts'

/** The parts of a refused head that determine an answer of our own, as far as they could be read. */
interface Read {
  readonly method: string | undefined
  readonly authority: string | undefined
  readonly path: string | undefined
  readonly origin: string | undefined
  readonly peerAddress: string
}

/** Stands in for a request whose head was refused. */
export function unreadRequest(read: Read, bodyBytes: number): HttpRequest {
  const { method, authority = '', path = '', origin, peerAddress } = read
  return {
    method: method === 'HEAD' ? 'HEAD' : 'GET',
    authority,
    path,
    headers: origin === undefined ? [] : ['origin', origin],
    bodyBytes,
    upgrade: false,
    peerAddress,
    encrypted: false,
    caller: undefined,
    requestId: newRequestId(),
    exchangeId: undefined,
  }
}
