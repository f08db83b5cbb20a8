/**
 * Small pieces of one read are put together here before they are passed on: an object for each would cost far more than its
 * bytes. The room is shared by all, so nothing stays in it: whoever gathers takes what he has before anybody else is called.
 */
import { Buffer } from 'node:buffer'

let room = Buffer.allocUnsafeSlow(64 * 1024)

/** Puts a piece behind `length` bytes; returns how many there are then. */
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

/** What was gathered, in memory of its own. */
export function gathered(length: number): Buffer {
  return Buffer.from(room.subarray(0, length))
}
