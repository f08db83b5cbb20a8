/** Checks the head of a sealed webhook as the wire codec would, so that a malicious server cannot smuggle anything past the client by sealing it. */
import { Buffer } from 'node:buffer'
import { canonicalAddress } from '../protocol/base/address.ts'
import type { Caller, HeaderList } from '../protocol/exchange.ts'
import { isAuthority, isFieldValue, isForwardedName, isPath, isToken, stripHopByHop } from '../protocol/http/headers.ts'
import { isMethod, staysHere } from '../protocol/http/methods.ts'

interface SealedHead {
  readonly method: string
  readonly authority: string
  readonly path: string
  readonly headers: HeaderList
  readonly trailers: HeaderList
  readonly caller: Caller
  readonly requestId: string
  /** Number of parts of the body, and its length. */
  readonly parts: number
  readonly bodyBytes: number
}

/** Twice as many fields and trailers as a head on the wire may have. */
const MAX_FIELDS = 1000
/** Fields that are dropped: we set the framing ourselves, and the caller is given beside the fields. */
const DROPPED: ReadonlySet<string> = new Set(['host', 'content-length', 'transfer-encoding', 'expect'])
const REQUEST_ID = /^[\x21-\x7e]{1,128}$/

/** Throws for a head that no sender can have sent. */
export function readSealedHead(text: Uint8Array): SealedHead {
  const { method, authority, path, headers, trailers, caller, requestId, parts, bodyBytes } = JSON.parse(
    Buffer.from(text).toString(),
  ) as { readonly [member: string]: unknown }
  if (!isText(method, isMethod) || staysHere(method)) throw new Error('the method is not valid')
  if (!isText(authority, isAuthority) || !isText(path, isPath)) throw new Error('the target is not valid')
  if (!isCount(parts) || !isCount(bodyBytes)) throw new Error('the size is not valid')
  if (!isText(requestId, id => REQUEST_ID.test(id))) throw new Error('the request id is not valid')
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
  if (!Array.isArray(value) || value.length % 2 !== 0 || value.length > 2 * MAX_FIELDS)
    throw new Error('the fields are not valid')
  const fields: HeaderList = []
  for (let i = 0; i < value.length; i += 2) {
    const [name, text] = [value[i] as unknown, value[i + 1] as unknown]
    if (!isText(name, isToken) || name !== name.toLowerCase() || !isText(text, isFieldValue)) {
      throw new Error('a field is not valid')
    }
    if (!DROPPED.has(name) && !isForwardedName(name)) fields.push(name, text)
  }
  stripHopByHop(fields)
  return fields
}

function readCaller(value: unknown): Caller {
  const { address, scheme, host } = (value ?? {}) as { readonly [member: string]: unknown }
  const isKnown = isText(address, text => canonicalAddress(text) === text) && isText(host, isAuthority)
  if (!isKnown || (scheme !== 'http' && scheme !== 'https')) throw new Error('the caller is not valid')
  return { address: address as string, scheme, host: host as string }
}
