import type { Duplex } from 'node:stream'

interface Resettable {
  readonly _handle?: { readonly reset?: unknown; readonly _parentWrap?: Resettable } | null
  resetAndDestroy?(): void
}

/**
 * Resets a connection whose peer is given up. The kernel then drops what it holds for a peer that does not read at once,
 * instead of when it gives up by itself. With TLS, the underlying connection is reset. It must not be called in the turn in which a
 * TLS handshake ends, since Node would free what OpenSSL still uses.
 *
 * While our half is being closed, libuv may have a shutdown in progress, of which only the socket on top knows. It then refuses to
 * reset, and Node would keep the descriptor forever, so such a connection is closed as usual.
 */
export function resetSocket(socket: Duplex): void {
  const top = socket as unknown as Resettable
  const below = top._handle?._parentWrap ?? top
  const mayBeShutting = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished
  if (!mayBeShutting && typeof below._handle?.reset === 'function') below.resetAndDestroy?.()
  socket.destroy()
}
