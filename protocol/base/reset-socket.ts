import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { guardWith } from './guard.ts'

interface TcpHandle {
  /** Negative before there is a descriptor, for example during the lookup of a name. */
  readonly fd?: number
  close(done: () => void): void
  reset?(done: () => void): number
}

interface Handle extends TcpHandle {
  /** Below TLS. */
  readonly _parent?: TcpHandle
}

/** How long a peer may keep the end of a connection waiting. Only one over TLS can, by reading nothing. */
const LAST_WORDS_MS = 1_000

/**
 * Resets a connection whose peer is given up. The kernel then drops what it holds for a peer that does not read at once,
 * instead of when it gives up by itself. With TLS, the underlying connection is reset.
 *
 * While our half is being closed, libuv may have a shutdown in progress, of which only the socket on top knows. It then refuses to
 * reset, and Node would keep the descriptor forever, so such a connection is closed as usual.
 */
export function resetSocket(socket: Duplex): void {
  const top = (socket as { _handle?: Handle | null })._handle
  const handle = top?._parent ?? top
  const mayBeShutting = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished
  // Node's own method waits for a connection that is being opened, and knows none below TLS.
  if (!mayBeShutting && handle?.reset !== undefined && handle.fd! >= 0) {
    handle.close = done => {
      handle.reset!(done)
    }
  }
  socket.destroy()
}

/**
 * Ends a connection that we opened. A reset follows our end at once, so that its local port is free again: after a plain end, the
 * kernel would keep it for a minute (TIME_WAIT). A program that only reads hears of the end, and not of the reset.
 */
export function hangUp(socket: Duplex): void {
  if (!(socket instanceof Socket) || socket.readableEnded) {
    socket.destroy()
    return
  }
  if (socket.connecting || socket.writableLength > 0) {
    resetSocket(socket)
    return
  }
  const guard = guardWith(() => socket.destroy())
  const onLate = guard(() => resetSocket(socket))
  const timer = setTimeout(onLate, LAST_WORDS_MS)
  const onEnd = guard(() => {
    clearTimeout(timer)
    resetSocket(socket)
  })
  socket.end(onEnd)
}
