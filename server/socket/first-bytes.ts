/** Looks at the first bytes of a connection, bounded in size, time and number, and puts them back. */
import type { Socket } from 'node:net'
import { canonicalAddress } from '../../protocol/base/address.ts'
import type { ConnectionSlots } from '../../protocol/base/connection-slots.ts'
import { guardWith, logDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { heardFirst } from '../../protocol/base/socket-turns.ts'

interface FirstBytesOptions {
  /** Slots for connections whose first bytes have not arrived. */
  readonly slots: ConnectionSlots
  readonly deadlineMs: number
  readonly maxBytes: number
  /** Called with all bytes so far whenever more arrive. Returns how many to remove, or -1 to wait for more. */
  readonly look: (bytes: Buffer) => number
  /** Called once, after the rest is put back, unless the socket ended or was destroyed before. */
  readonly done: () => void
  readonly logger: Logger
}

/** Shows the first bytes of a paused socket to `look`. Beyond the deadline or a limit, the socket is destroyed. */
export function lookAtFirstBytes(socket: Socket, options: FirstBytesOptions): void {
  const { slots } = options
  const guest = {
    address: canonicalAddress(socket.remoteAddress ?? ''),
    idle: true,
    destroy: () => socket.destroy(),
  }
  if (!slots.makeRoom(guest.address)) {
    socket.destroy()
    return
  }
  slots.add(guest)
  const guard = guardWith(error => {
    socket.destroy()
    logDefect(options.logger, 'a connection failed before its first bytes', error)
  })
  let seen: Buffer | undefined
  let stopped = false
  const end = guard(() => void (stopped || socket.destroy()))
  const timer = setTimeout(heardFirst(end), options.deadlineMs)
  const stop = guard(() => {
    stopped = true
    slots.delete(guest)
    clearTimeout(timer)
    socket.off('readable', onReadable)
    socket.off('close', stop)
    socket.off('end', end)
  })
  const onReadable = guard(() => {
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
  })
  socket.on('readable', onReadable)
  socket.on('close', stop)
  socket.on('end', end)
}
