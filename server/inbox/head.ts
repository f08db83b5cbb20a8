/** The head of a request as the inbox stores it: JSON, with the header fields in order, byte for byte. */
import { Buffer } from 'node:buffer'
import { newRequestId } from '../../protocol/base/ids.ts'
import { BODY_UNKNOWN, type HeaderList, type HttpRequest } from '../../protocol/exchange.ts'
import { LENGTH_BYTES, SEALED_FIELDS } from '../../protocol/sealing/sealed-webhook.ts'
import { decodeCaller } from './spans.ts'
import type { Message } from './store.ts'

type Kept = Pick<
  HttpRequest,
  'method' | 'authority' | 'path' | 'headers' | 'peerAddress' | 'encrypted' | 'caller' | 'requestId'
>

/** Fields that belong to the connection on which the request arrived. */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set(['expect', 'content-length', 'max-forwards'])

/** A copy, since later layers may change the request. */
export function keptHead(request: HttpRequest): Kept {
  const headers: HeaderList = []
  for (let i = 0; i < request.headers.length; i += 2) {
    const name = request.headers[i]!
    if (!OF_THE_CONNECTION.has(name)) headers.push(name, request.headers[i + 1]!)
  }
  const { method, authority, path, peerAddress, encrypted, caller, requestId } = request
  return { method, authority, path, headers, peerAddress, encrypted, caller, requestId }
}

/** Includes the number of parts and the size of the body, so that a client that opens a sealed webhook can tell whether it is whole. */
export function encodeHead(
  head: Kept,
  body: { readonly trailers: HeaderList; readonly parts: number; readonly bodyBytes: number },
): Uint8Array {
  return Buffer.from(JSON.stringify({ ...head, ...body }))
}

function inboxFields({ id, attempts, received }: Message): HeaderList {
  return [
    ...['sallyport-inbox-id', id, 'sallyport-inbox-attempt', String(attempts)],
    ...['sallyport-inbox-received', new Date(received).toISOString()],
  ]
}

/** The request that carries a sealed webhook to its client. The body is all parts, each prefixed with its length. */
export function sealedRequest(message: Message): HttpRequest {
  const bodyBytes = message.bytes + LENGTH_BYTES * message.parts
  const caller = decodeCaller(message.caller)
  const headers = [
    ...inboxFields(message),
    ...[SEALED_FIELDS.key, message.key, SEALED_FIELDS.enc, message.enc, SEALED_FIELDS.lane, message.lane],
    ...['content-type', 'application/octet-stream', 'content-length', String(bodyBytes)],
  ]
  const requestId = newRequestId()
  return {
    ...{
      method: 'POST',
      authority: caller.host,
      path: '/',
      headers: [...headers, 'x-request-id', requestId],
      bodyBytes,
    },
    ...{ upgrade: false, peerAddress: caller.address, encrypted: caller.scheme === 'https', caller, requestId },
    ...{ exchangeId: undefined, runtime: message.runtime },
  }
}

/** The request to deliver, with the inbox's id, the number of the attempt, and the time of arrival as header fields. */
export function decodeHead(
  bytes: Uint8Array,
  message: Message,
  bodyBytes: number,
): { readonly request: HttpRequest; readonly trailers: HeaderList } {
  const { trailers, method, authority, path, peerAddress, encrypted, caller, requestId, ...head } = JSON.parse(
    Buffer.from(bytes).toString(),
  ) as Kept & { trailers: HeaderList }
  const headers = [...head.headers, ...inboxFields(message)]
  if (trailers.length === 0) headers.push('content-length', String(bodyBytes))
  const request: HttpRequest = {
    ...{ method, authority, path, peerAddress, encrypted, caller, requestId },
    headers,
    bodyBytes: trailers.length === 0 ? bodyBytes : BODY_UNKNOWN,
    upgrade: false,
    exchangeId: undefined,
    runtime: message.runtime,
  }
  return { request, trailers }
}
