import { Buffer } from 'node:buffer'

/** Default: a chunk that has so large a part of its memory may keep it. */
const LEAST_SHARE = 1 / 4

/**
 * The bytes for somebody who keeps them for longer than a turn, in memory of their own if they are a small part of theirs: Node
 * reads TLS into slabs of 64 KiB (from 26 on) and cuts small buffers from pools of that size, so that a hundred bytes that wait would
 * keep all of it, and what waits would be six hundred times as much as is counted.
 */
export function ownBytes(bytes: Uint8Array, leastShare: number = LEAST_SHARE): Uint8Array {
  if (bytes.length >= bytes.buffer.byteLength * leastShare) return bytes
  const own = Buffer.allocUnsafeSlow(bytes.length)
  own.set(bytes)
  return own
}
