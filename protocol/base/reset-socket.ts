import type { Duplex } from 'node:stream'

interface Resettable {
  readonly _handle?: { readonly reset?: unknown; readonly _parentWrap?: Resettable } | null
  readonly writableEnded?: boolean
  readonly writableLength?: number
  readonly writableFinished?: boolean
  resetAndDestroy?(): void
}

/**
 * Resets a connection whose peer is given up. The kernel then drops what it holds for a peer that does not read at once,
 * instead of when it gives up by itself. With TLS, the underlying connection is reset.
 *
 * While our half is being closed, libuv may have a shutdown in progress. It then refuses to reset, and Node would keep the
 * descriptor forever, so such a connection is closed as usual.
 */
export function resetSocket(socket: Duplex): void {
  const top = socket as unknown as Resettable
  const below = top._handle?._parentWrap ?? top
  const mayBeShutting = below.writableEnded === true && below.writableLength === 0 && !below.writableFinished
  if (!mayBeShutting && typeof below._handle?.reset === 'function') below.resetAndDestroy?.()
  socket.destroy()
}
