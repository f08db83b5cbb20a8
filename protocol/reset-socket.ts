import type { Duplex } from 'node:stream'

interface Resettable {
  readonly _handle?: { readonly reset?: unknown; readonly _parentWrap?: Resettable } | null
  resetAndDestroy?(): void
}

/**
 * Ends a connection whose peer is given up, by a reset: what the kernel holds for a peer that does not read goes at once,
 * and not when the kernel gives up itself. Under TLS it is the connection below that is reset.
 */
export function resetSocket(socket: Duplex): void {
  const top = socket as unknown as Resettable
  const below = top._handle?._parentWrap ?? top
  if (typeof below._handle?.reset === 'function') below.resetAndDestroy?.()
  socket.destroy()
}
