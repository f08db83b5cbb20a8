import type { Duplex } from 'node:stream'

interface Resettable {
  readonly _handle?: { readonly reset?: unknown; readonly _parentWrap?: Resettable } | null
  readonly writableEnded?: boolean
  readonly writableLength?: number
  readonly writableFinished?: boolean
  resetAndDestroy?(): void
}

/**
 * Ends a connection whose peer is given up, by a reset: what the kernel holds for a peer that does not read goes at once,
 * and not when the kernel gives up itself. Under TLS it is the connection below that is reset.
 *
 * While our half is being closed, libuv may have a shutdown under way. It refuses to reset then, and
 * Node would keep the descriptor for ever; such a connection is closed as usual.
 */
export function resetSocket(socket: Duplex): void {
  const top = socket as unknown as Resettable
  const below = top._handle?._parentWrap ?? top
  const mayBeShutting = below.writableEnded === true && below.writableLength === 0 && !below.writableFinished
  if (!mayBeShutting && typeof below._handle?.reset === 'function') below.resetAndDestroy?.()
  socket.destroy()
}
