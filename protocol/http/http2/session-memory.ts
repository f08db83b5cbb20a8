/**
 * Memory of a session, as Node counts it. Node counts what a stream holds, and goes on counting it when the stream is destroyed: that is
 * lost. A session without memory refuses all that is new, for as long as it lives.
 */
import type { HttpLimits } from '../limits.ts'

/** `maxSessionMemory`, as a multiple of a session's memory. What is lost must leave enough for the streams that it has then. */
const COUNTED_SHARE = 2
/** Part of a session's memory that may be lost. */
const LOST_SHARE = 1 / 2

/** Node's `maxSessionMemory`. */
export function maxSessionMemory(limits: HttpLimits): number {
  return COUNTED_SHARE * limits.http2SessionMemoryMb
}

/** Whether a session should take no more streams. */
export function isWorn(lostBytes: number, limits: HttpLimits): boolean {
  return lostBytes > limits.http2SessionMemoryMb * 2 ** 20 * LOST_SHARE
}
