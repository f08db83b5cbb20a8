/** The head of a request as the inbox keeps it: JSON, with every field in its order and byte for byte. */
import { Buffer } from 'node:buffer'
import { BODY_UNKNOWN, type HeaderList, type HttpRequest } from '../../protocol/exchange.ts'
import type { Message } from './store.ts'

type Kept = Pick<
  HttpRequest,
  'method' | 'authority' | 'path' | 'headers' | 'peerAddress' | 'encrypted' | 'caller' | 'requestId'
>

/** Fields that speak of the connection that it came by. */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set(['expect', 'content-length', 'max-forwards'])

/** A copy of what is kept: those behind may change the request. */
export function keptHead(request: HttpRequest): Kept {
  const headers: HeaderList = []
  for (let i = 0; i < request.headers.length; i += 2) {
    const name = request.headers[i]!
    if (!OF_THE_CONNECTION.has(name)) headers.push(name, request.headers[i + 1]!)
  }
  const { method, authority, path, peerAddress, encrypted, caller, requestId } = request
  return { method, authority, path, headers, peerAddress, encrypted, caller, requestId }
}

export function encodeHead(head: Kept, trailers: HeaderList): Uint8Array {
  return Buffer.from(JSON.stringify({ ...head, trailers }))
}

/** The request again, as it is delivered: with its id, how often it was tried, and when it came. */
export function decodeHead(
  bytes: Uint8Array,
  message: Message,
  bodyBytes: number,
): { readonly request: HttpRequest; readonly trailers: HeaderList } {
  const { trailers, ...head } = JSON.parse(Buffer.from(bytes).toString()) as Kept & { trailers: HeaderList }
  const headers = [
    ...head.headers,
    ...['sallyport-inbox-id', message.id, 'sallyport-inbox-attempt', String(message.attempts)],
    ...['sallyport-inbox-received', new Date(message.received).toISOString()],
  ]
  if (trailers.length === 0) headers.push('content-length', String(bodyBytes))
  const request: HttpRequest = {
    ...head,
    headers,
    bodyBytes: trailers.length === 0 ? bodyBytes : BODY_UNKNOWN,
    upgrade: false,
    exchangeId: undefined,
    runtime: message.runtime,
  }
  return { request, trailers }
}
