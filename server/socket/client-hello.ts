/**
 * Reads the server name in a TLS ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3), without TLS.
 *
 *     record:     type 22 (1) | version (2) | length (2) | fragment
 *     handshake:  type 1 (1) | length (3) | version (2) | random (32) | session id <1> | suites <2> | compression <1>
 *                 | extensions <2>: type (2) | data <2>
 */

/** A larger ClientHello is not read further. */
export const MAX_CLIENT_HELLO_BYTES = 16 * 1024
/** Nor is one with more records, since all of them are parsed again whenever bytes arrive. */
const MAX_RECORDS = 32

type HelloResult =
  | { readonly done: false }
  /** `name` is in lower case. `undefined` if there is none, or the bytes are not a ClientHello. */
  | { readonly done: true; readonly name: string | undefined }

const MORE: HelloResult = { done: false }
const NONE: HelloResult = { done: true, name: undefined }
const HANDSHAKE = 22
const SERVER_NAME = 0
const HOST_NAME = 0

/** Parses what has arrived so far. Malformed input is `done` without a name, and the TLS server refuses it properly. */
export function readServerName(bytes: Buffer): HelloResult {
  const parts = recordsOf(bytes)
  if (parts === undefined) return NONE
  const handshake = parts.length === 1 ? parts[0]! : Buffer.concat(parts)
  const more = bytes.length >= MAX_CLIENT_HELLO_BYTES || parts.length === MAX_RECORDS ? NONE : MORE
  if (handshake.length < 4) return more
  if (handshake[0] !== 1) return NONE
  const length = handshake.readUIntBE(1, 3)
  if (length > MAX_CLIENT_HELLO_BYTES) return NONE
  if (handshake.length < 4 + length) return more
  return { done: true, name: findName(handshake.subarray(4, 4 + length)) }
}

/** Payloads of the handshake records at the start of `bytes`. `undefined` if it does not start with one. */
function recordsOf(bytes: Buffer): Buffer[] | undefined {
  const parts: Buffer[] = []
  let at = 0
  while (at + 5 <= bytes.length && parts.length < MAX_RECORDS) {
    const length = bytes.readUInt16BE(at + 3)
    if (bytes[at] !== HANDSHAKE || length === 0) break
    parts.push(bytes.subarray(at + 5, at + 5 + length))
    at += 5 + length
  }
  const begun = bytes.length === 0 || (bytes[0] === HANDSHAKE && bytes.length < 5)
  return parts.length === 0 && !begun ? undefined : parts
}

function findName(hello: Buffer): string | undefined {
  try {
    let at = 2 + 32
    at += 1 + hello.readUInt8(at)
    at += 2 + hello.readUInt16BE(at)
    at += 1 + hello.readUInt8(at)
    const end = at + 2 + hello.readUInt16BE(at)
    at += 2
    while (at + 4 <= end) {
      const type = hello.readUInt16BE(at)
      const length = hello.readUInt16BE(at + 2)
      if (type === SERVER_NAME) return hostNameOf(hello.subarray(at + 4, at + 4 + length))
      at += 4 + length
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
  }
  return undefined
}

function hostNameOf(list: Buffer): string | undefined {
  let at = 2
  while (at + 3 <= list.length) {
    const length = list.readUInt16BE(at + 1)
    if (list[at] === HOST_NAME) {
      const name = list.toString('latin1', at + 3, at + 3 + length).toLowerCase()
      return name.length === length ? name : undefined
    }
    at += 3 + length
  }
  return undefined
}
