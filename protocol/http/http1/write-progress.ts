import type { Duplex } from 'node:stream'
import { timeLeft } from '../../base/deadline-watch.ts'

/** Nothing reports that the kernel accepted part of a write, so the socket is checked this often before its receiver counts as stopped. */
const LOOKS = 12

/** The time between two checks, if `stalledMs` without progress are allowed. 0: for ever. */
export function lookMs(stalledMs: number): number {
  return stalledMs === 0 ? Number.POSITIVE_INFINITY : stalledMs / LOOKS
}

/** Whether the receiver is taking any of what waits in a socket. */
export class WriteProgress {
  /** When bytes were last taken. 0 while something waits that has not been checked. */
  at = 0
  #queued = 0
  #lookedAt = 0

  /** Time until the next check. 0 once nothing was taken for `stalledMs`. An answer that has left has no socket. */
  left(socket: Duplex | null, stalledMs: number, now: number): number {
    const queued = socket === null ? 0 : queuedInHandle(socket)
    if (socket === null || queued !== this.#queued || this.at === 0) {
      this.#queued = queued
      this.at = now
    } else {
      // While this process stood still, nobody could see what the receiver took, so that time counts as a single check.
      const lateMs = now - Math.max(this.at, this.#lookedAt) - lookMs(stalledMs)
      if (lateMs > 0) this.at += lateMs
    }
    this.#lookedAt = now
    return Math.min(lookMs(stalledMs), timeLeft(this.at, stalledMs, now))
  }
}

/** Bytes that wait in the kernel's or libuv's queue, if the socket reports them. A change counts as progress, too. */
export function queuedInHandle(socket: Duplex): number {
  const handle = (socket as { _handle?: { writeQueueSize?: number } })._handle
  return handle?.writeQueueSize ?? 0
}
