/** Tells HTTP/2 with prior knowledge from HTTP/1.1 by the first bytes of a plain connection (RFC 9113 section 3.4). */
import type { Socket } from 'node:net'
import { endFor, guardWith } from '../../base/guard.ts'
import type { Logger } from '../../base/log.ts'
import { heardFirst } from '../../base/socket-turns.ts'
import { PREFACE } from './frames.ts'

const preface = Buffer.from(PREFACE, 'latin1')

/** Calls `http1` or `http2` with the first bytes. Closes the connection if it is neither within `ms` (0: no limit), or if the call throws. */
export function sniffPreface(
  socket: Socket,
  {
    ms,
    http1,
    http2,
    logger,
  }: { ms: number; http1: (first: Buffer) => void; http2: (first: Buffer) => void; logger: Logger },
): void {
  let seen: Buffer | undefined
  const guard = guardWith(error => endFor(error, logger, 'a connection could not be begun', () => socket.destroy()))
  let over = false
  const late = guard(() => {
    if (!over) socket.destroy()
  })
  const timer = ms === 0 ? undefined : setTimeout(heardFirst(late), ms)
  const stop = () => {
    over = true
    clearTimeout(timer)
    socket.removeListener('data', onData)
    socket.removeListener('end', onGone)
    socket.removeListener('error', onGone)
    socket.removeListener('close', onGone)
  }
  const onGone = guard(() => {
    stop()
    socket.on('error', () => {})
    socket.destroy()
  })
  const onData = guard((chunk: Buffer) => {
    seen = seen === undefined ? chunk : Buffer.concat([seen, chunk])
    const length = Math.min(seen.length, preface.length)
    const isPreface = preface.compare(seen, 0, length, 0, length) === 0
    if (isPreface && length < preface.length) return
    stop()
    if (isPreface) http2(seen)
    else http1(seen)
  })
  socket.on('data', onData)
  socket.on('end', onGone)
  socket.on('error', onGone)
  socket.on('close', onGone)
}
