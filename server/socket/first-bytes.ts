/** Looks at the first bytes of a connection, bounded in size and time, and puts them back. */
import type { Socket } from 'node:net'

export interface FirstBytesOptions {
  readonly deadlineMs: number
  readonly maxBytes: number
  /** Sees all bytes so far, each time that more come; returns how many to take away, or -1 to see more. */
  readonly look: (bytes: Buffer) => number
  /** Called once, with the rest put back, unless the socket ended first or was destroyed. */
  readonly done: () => void
}

/** Shows the first bytes of a paused socket to `look`; past the deadline or the bound the socket is destroyed. */
export function lookAtFirstBytes(socket: Socket, options: FirstBytesOptions): void {
  let seen: Buffer | undefined
  const timer = setTimeout(() => socket.destroy(), options.deadlineMs)
  const stop = () => {
    clearTimeout(timer)
    socket.off('readable', onReadable)
    socket.off('close', stop)
    socket.off('end', onEnd)
  }
  const onEnd = () => socket.destroy()
  const onReadable = () => {
    const chunk: Buffer | null = socket.read()
    if (chunk === null) return
    seen = seen === undefined ? chunk : Buffer.concat([seen, chunk])
    const taken = options.look(seen)
    if (socket.destroyed) return
    if (taken < 0) {
      if (seen.length > options.maxBytes) socket.destroy()
      return
    }
    stop()
    socket.pause()
    if (taken < seen.length) socket.unshift(seen.subarray(taken))
    options.done()
  }
  socket.on('readable', onReadable)
  socket.on('close', stop)
  socket.on('end', onEnd)
}
