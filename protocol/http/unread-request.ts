import type { HttpRequest } from '../exchange.ts'

/** The parts of a refused head that determine an answer of our own, as far as they could be read. */
interface Read {
  readonly method: string | undefined
  readonly authority: string | undefined
  readonly path: string | undefined
  readonly origin: string | undefined
}

/** Stands in for a request whose head was refused. */
export function unreadRequest({ method, authority = '', path = '', origin }: Read, bodyBytes: number): HttpRequest {
  return {
    method: method === 'HEAD' ? 'HEAD' : 'GET',
    authority,
    path,
    headers: origin === undefined ? [] : ['origin', origin],
    bodyBytes,
    upgrade: false,
    peerAddress: '',
    encrypted: false,
    caller: undefined,
    requestId: '',
    exchangeId: undefined,
  }
}
