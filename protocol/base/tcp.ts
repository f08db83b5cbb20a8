/** What TCP knows about a peer beyond what reading shows. */
import type { Duplex } from 'node:stream'

/**
 * For every socket that we accept, as options of `net.createServer`. A peer that vanished without a word is noticed on a quiet
 * connection after some 40 s: 30 s of silence, then (libuv) ten probes, one a second.
 */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 30_000 } as const

interface Wrap {
  readonly _handle?: { getpeername?(out: object): number } | null
}

/**
 * Whether the kernel has seen the end of the connection: a reset, or probes without an answer. A socket that is not read (it
 * is paused, or its peer's FIN has come) says nothing of that by itself. One system call; false where the system does not tell.
 */
export function isBroken(socket: Duplex): boolean {
  const handle = (socket as unknown as Wrap)._handle
  return typeof handle?.getpeername === 'function' && handle.getpeername({}) !== 0
}
