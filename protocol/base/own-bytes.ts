import { Buffer } from 'node:buffer'

/** Default share: a chunk that uses at least this part of its memory may keep it. */
const LEAST_SHARE = 1 / 4
/** For bytes that are kept for longer than those that wait to be written, such as bodies that may be sent again. */
export const KEPT_SHARE = 1 / 2

/**
 * Returns bytes that are to be kept for longer than a turn, copied if they are a small part of their memory. Node reads TLS into
 * slabs of 64 KiB (since 26) and cuts small buffers from pools of that size. A hundred waiting bytes could keep a whole slab
 * alive, and the memory in use would be six hundred times what is counted.
 */
export function ownBytes<Bytes extends Uint8Array>(bytes: Bytes, leastShare: number = LEAST_SHARE): Bytes | Buffer {
  if (bytes.length >= bytes.buffer.byteLength * leastShare) return bytes
  const own = Buffer.allocUnsafeSlow(bytes.length)
  own.set(bytes)
  return own
}
