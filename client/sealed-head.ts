/** Checks the head of a sealed webhook as the wire would have, so that a server that lies gets nothing past the client by sealing it. */
import { Buffer } from 'node:buffer'
import type { Caller, HeaderList } from '../protocol/exchange.ts'
import { canonicalAddress } from '../protocol/http/forwarded.ts'
import { isAuthority, isFieldValue, isForwardedName, isPath, isToken, stripHopByHop } from '../protocol/http/headers.ts'

interface SealedHead {
  readonly method: string
  readonly authority: string
  readonly path: string
  readonly headers: HeaderList
  readonly trailers: HeaderList
  readonly caller: Caller
  readonly requestId: string
  /** How many parts the body has, and its bytes. */
  readonly parts: number
  readonly bodyBytes: number
}

/** As many fields and trailers as a head on the wire may have, twice over. */
const MOST_FIELDS = 1000
/** Framing is ours to say, and the caller is named beside the fields. */
const NEVER: ReadonlySet<string> = new Set(['host', 'content-length', 'transfer-encoding', 'expect'])
const REQUEST_ID = /^[\x21-\x7e]{1,128}$/

/** Throws for one that no sender can have sent. */
export function readSealedHead(text: Uint8Array): SealedHead {
  const { method, authority, path, headers, trailers, caller, requestId, parts, bodyBytes } = JSON.parse(
    Buffer.from(text).toString(),
  ) as { readonly [member: string]: unknown }
  if (!isText(method, isToken) || method === 'CONNECT' || method === 'TRACE') throw new Error('the method is none')
  if (!isText(authority, isAuthority) || !isText(path, isPath)) throw new Error('the target is none')
  if (!isCount(parts) || !isCount(bodyBytes)) throw new Error('its size is none')
  if (!isText(requestId, id => REQUEST_ID.test(id))) throw new Error('the request id is none')
  const fields = { headers: readFields(headers), trailers: readFields(trailers) }
  return { method, authority, path, ...fields, caller: readCaller(caller), requestId, parts, bodyBytes }
}

function isText(value: unknown, test: (text: string) => boolean): value is string {
  return typeof value === 'string' && test(value)
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function readFields(value: unknown): HeaderList {
  if (!Array.isArray(value) || value.length % 2 !== 0 || value.length > 2 * MOST_FIELDS) throw new Error('no fields')
  const fields: HeaderList = []
  for (let i = 0; i < value.length; i += 2) {
    const [name, text] = [value[i] as unknown, value[i + 1] as unknown]
    if (!isText(name, isToken) || name !== name.toLowerCase() || !isText(text, isFieldValue)) {
      throw new Error('a field is none')
    }
    if (!NEVER.has(name) && !isForwardedName(name)) fields.push(name, text)
  }
  stripHopByHop(fields)
  return fields
}

function readCaller(value: unknown): Caller {
  const { address, scheme, host } = (value ?? {}) as { readonly [member: string]: unknown }
  const isKnown = isText(address, text => canonicalAddress(text) === text) && isText(host, isAuthority)
  if (!isKnown || (scheme !== 'http' && scheme !== 'https')) throw new Error('the caller is none')
  return { address: address as string, scheme, host: host as string }
}
