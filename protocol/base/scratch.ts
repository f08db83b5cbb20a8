/**
 * Joins small pieces of one read before they are passed on, since an object for each would cost far more than its bytes. The
 * buffer is shared, so the pieces must be taken out before any other code runs.
 */
import { Buffer } from 'node:buffer'

let room = Buffer.allocUnsafeSlow(64 * 1024)

/** Appends a piece to the first `length` bytes, and returns the new length. */
export function gather(length: number, bytes: Uint8Array, start: number, end: number): number {
  const most = length + end - start
  if (most > room.length) {
    const larger = Buffer.allocUnsafeSlow(2 * most)
    larger.set(room.subarray(0, length))
    room = larger
  }
  // A piece is often one byte, for which a view would cost more than this.
  for (let from = start, to = length; from < end; from++, to++) room[to] = bytes[from]!
  return most
}

/** A copy of the gathered bytes. */
export function gathered(length: number): Buffer {
  return Buffer.from(room.subarray(0, length))
}
