/** Detects the end of a TCP peer that reading does not show. */
import type { Socket } from 'node:net'
import process from 'node:process'
import type { Duplex } from 'node:stream'

/**
 * Options of `net.createServer` for every socket that we accept. A peer that vanished is noticed on an idle connection after
 * about 40 s: 30 s of silence, then ten probes (libuv), one per second.
 */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 30_000 } as const

/** The same for a socket that an embedder's server has accepted. Costs nothing if it has been called before. */
export function keepProbing(socket: Duplex): void {
  const { setKeepAlive } = socket as Partial<Socket>
  setKeepAlive?.call(socket, true, KEEP_ALIVE.keepAliveInitialDelay)
}

interface Wrap {
  readonly _handle?: { getpeername?(out: object): number | undefined } | null
}

/**
 * Whether the kernel has seen the end of the connection: a reset, or unanswered probes. A socket that is not read (it is
 * paused, or its peer has sent FIN) does not report that by itself. Costs one system call. False if the system does not tell.
 */
export function isBroken(socket: Duplex): boolean {
  const handle = (socket as unknown as Wrap)._handle
  // A TLS connection asks the one below it, and returns nothing if that is not a TCP connection.
  return (handle?.getpeername?.({}) ?? 0) !== 0
}

/** libuv below 1.52.0, as in Node 22, reports an end if a connection breaks while it is not read (libuv pull request 4997). */
const ENDS_MAY_BE_FALSE = Number(process.versions.uv.split('.')[1]) < 52

/**
 * Whether the connection broke although the socket has emitted `end`. Of a broken connection, an end is true only if a reset followed it:
 * the kernel then answers a write (of nothing) with EPIPE. So an end that unanswered probes follow counts as false. Returns false where
 * the kernel cannot be asked: with TLS, while a write waits, and behind our own end. By default, also wherever libuv tells only true ends.
 */
export function isFalseEnd(socket: Duplex, mayBeFalse = ENDS_MAY_BE_FALSE): boolean {
  if (!mayBeFalse) return false
  // Node aborts the process if a second write of a TLS socket begins before the first is done.
  if ('encrypted' in socket || socket.writableLength > 0 || socket.writableEnded || !isBroken(socket)) return false
  let code: string | undefined
  const onWritten = (error?: NodeJS.ErrnoException | null) => {
    code = error?.code
  }
  // Its own method may have been replaced. An error comes at once.
  Object.getPrototypeOf(socket)._write.call(socket, Buffer.alloc(0), 'buffer', onWritten)
  return code !== undefined && code !== 'EPIPE'
}
