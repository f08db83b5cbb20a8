/**
 * PROXY protocol, version 2: a header with the caller's address that a load balancer sends before the bytes of a connection.
 *
 *     signature (12) | version 2, command (1) | family, transport (1) | length (2) | addresses | TLVs
 */
import { canonicalAddress } from '../../protocol/base/address.ts'

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')
const HEAD_BYTES = 16
/** Family and transport. */
const TCP_OVER_IPV4 = 0x11
const TCP_OVER_IPV6 = 0x21
/** Longer headers are refused. */
const MAX_BODY_BYTES = 2048

type ProxyResult =
  | { readonly done: false }
  /** The header has `length` bytes. `address` is `undefined` for the proxy's own health checks (command LOCAL). */
  | { readonly done: true; readonly length: number; readonly address: string | undefined }
  | { readonly done: true; readonly error: string }

/** Parses what has arrived so far. */
export function readProxyHeader(bytes: Buffer): ProxyResult {
  const seen = Math.min(bytes.length, SIGNATURE.length)
  if (bytes.compare(SIGNATURE, 0, seen, 0, seen) !== 0) return { done: true, error: 'no PROXY protocol v2 header' }
  if (bytes.length < HEAD_BYTES) return { done: false }
  const command = bytes[12]!
  if (command >> 4 !== 2 || (command & 15) > 1)
    return { done: true, error: 'unknown PROXY protocol version or command' }
  const bodyBytes = bytes.readUInt16BE(14)
  if (bodyBytes > MAX_BODY_BYTES) return { done: true, error: 'the PROXY protocol header is too long' }
  const length = HEAD_BYTES + bodyBytes
  if (bytes.length < length) return { done: false }
  if ((command & 15) === 0) return { done: true, length, address: undefined }
  return addressOf(bytes[13]!, bytes.subarray(HEAD_BYTES, length), length)
}

/** Anything but TCP is refused: the specification leaves that to us for what is unspecified, and so for UDP and Unix sockets. */
function addressOf(what: number, body: Buffer, length: number): ProxyResult {
  if (what === TCP_OVER_IPV4 && body.length >= 12) {
    return { done: true, length, address: `${body[0]}.${body[1]}.${body[2]}.${body[3]}` }
  }
  if (what === TCP_OVER_IPV6 && body.length >= 36) {
    const groups: string[] = []
    for (let i = 0; i < 16; i += 2) groups.push(body.readUInt16BE(i).toString(16))
    return { done: true, length, address: canonicalAddress(groups.join(':')) }
  }
  return { done: true, error: 'the PROXY protocol header names no address of a TCP connection' }
}
