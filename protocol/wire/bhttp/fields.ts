/**
 * Field sections of Binary HTTP (RFC 9292 section 3.6), indeterminate-length form: field lines, in which each name and value
 * is preceded by its length, then a zero byte.
 */

import { latin1 } from '../../base/latin1.ts'
import { ProtocolError } from '../../base/protocol-error.ts'
import type { HeaderList } from '../../exchange.ts'
import { FIELD_KIND, findName, kindAt, nameAt as nameInSlot, slotNamed } from '../../http/field-names.ts'
import { isFieldValue, isToken, plainNumber, unsendable } from '../../http/headers.ts'
import { LOWER, VALUE } from '../../http/http1/bytes.ts'
import { INNER_LIMITS } from '../../http/limits.ts'
import { readVarint, varintSize, varintText } from '../varint.ts'

/** The longest encoded head, or trailer section. */
export const MAX_HEAD_BYTES = INNER_LIMITS.headBytes
export const MAX_FIELDS = INNER_LIMITS.headFields

/** Field lines as a latin1 string, without the terminator. */
export function fieldsText(headers: HeaderList): string {
  let text = ''
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    const value = headers[i + 1]!
    text += varintText(name.length) + name + varintText(value.length) + value
  }
  return text
}

/**
 * The end of the field section that begins at `at`, including its terminator, or -1 if `bytes` up to `end` do not contain all
 * of it.
 *
 * @throws ProtocolError if it is longer than `limit` or has more than {@link MAX_FIELDS} fields.
 */
export function sectionEnd(bytes: Uint8Array, at: number, end: number, limit: number): number {
  const last = at + limit
  let position = at
  for (let parts = 0; position < end; parts++) {
    if (bytes[position] === 0 && parts % 2 === 0) return position + 1
    if (parts === 2 * MAX_FIELDS) throw new ProtocolError('too many fields')
    const start = position + varintSize(bytes[position]!)
    if (start > end) return -1
    position = start + readVarint(bytes, position)
    if (position >= last) throw new ProtocolError('field section too long')
  }
  return -1
}

/**
 * The fields of a section found by {@link sectionEnd}.
 *
 * @throws ProtocolError for a name that is not a lower-case token, a value with control characters or surrounding white space,
 * and fields that belong to one connection.
 */
export function decodeSection(bytes: Uint8Array, at: number, end: number): HeaderList {
  const headers: HeaderList = []
  if (end - at === 1) return headers
  // One string for the section; the fields are slices of it, which cost no copy and no call.
  const text = latin1(bytes, at, end)
  let position = at
  while (position < end - 1) {
    const nameLength = readVarint(bytes, position)
    const nameAt = position + varintSize(bytes[position]!)
    const nameEnd = nameAt + nameLength
    const slot = findName(bytes, nameAt, nameEnd, LOWER)
    if (slot < 0) checkName(bytes, nameAt, nameEnd)
    const valueAt = nameEnd + varintSize(bytes[nameEnd]!)
    const valueEnd = valueAt + readVarint(bytes, nameEnd)
    checkValue(bytes, valueAt, valueEnd)
    const name = slot < 0 ? text.slice(nameAt - at, nameEnd - at) : nameInSlot(slot)
    const value = text.slice(valueAt - at, valueEnd - at)
    if (slot >= 0 && belongsToConnection(kindAt(slot), name, value)) {
      throw new ProtocolError(`field ${name} inside the tunnel`)
    }
    headers.push(name, value)
    position = valueEnd
  }
  return headers
}

/** Throws for a field that {@link decodeSection} would refuse at the peer, where nobody knows whose it is. */
export function checkFields(headers: HeaderList): void {
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    const value = headers[i + 1]!
    const slot = slotNamed(name)
    const isWrong = slot < 0 ? !isToken(name) || UPPER.test(name) : belongsToConnection(kindAt(slot), name, value)
    const isPadded = isBlank(value.charCodeAt(0)) || isBlank(value.charCodeAt(value.length - 1))
    if (isWrong || isPadded || !isFieldValue(value)) throw unsendable(name)
  }
}

const UPPER = /[A-Z]/

function checkName(bytes: Uint8Array, at: number, end: number): void {
  if (end === at) throw new ProtocolError('field without a name')
  for (let i = at; i < end; i++) if (LOWER[bytes[i]!] === 0) throw new ProtocolError('malformed field name')
}

function checkValue(bytes: Uint8Array, at: number, end: number): void {
  for (let i = at; i < end; i++) if (VALUE[bytes[i]!] === 0) throw new ProtocolError('malformed field value')
  if (end > at && (isBlank(bytes[at]!) || isBlank(bytes[end - 1]!))) {
    throw new ProtocolError('white space around a field value')
  }
}

function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x09
}

function belongsToConnection(kind: number, name: string, value: string): boolean {
  switch (kind) {
    case FIELD_KIND.host:
    case FIELD_KIND.upgrade:
    case FIELD_KIND.connection:
    case FIELD_KIND.keepAlive:
    case FIELD_KIND.transferEncoding:
      return true
    case FIELD_KIND.dropped:
      return name === 'te' ? value !== 'trailers' : !name.startsWith('proxy-auth')
    default:
      return false
  }
}

/**
 * The number that `content-length` announces, or -1 if there is none.
 *
 * @throws ProtocolError if it is given twice or is not plain digits.
 */
export function contentLength(headers: HeaderList): number {
  let length = -1
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] !== 'content-length') continue
    const given = length !== -1
    length = plainNumber(headers[i + 1]!)
    if (given || length === -1) throw new ProtocolError('malformed content-length')
  }
  return length
}
