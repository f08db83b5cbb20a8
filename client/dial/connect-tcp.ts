/** Opens a TCP connection over a path that may be down for a while. */
import type { LookupAddress } from 'node:dns'
import { connect, type Socket } from 'node:net'
import { guardWith } from '../../protocol/base/guard.ts'
import { leadingTo, unanswered } from '../../protocol/base/unanswered.ts'

/** The kernel repeats a SYN after 1, 3, 7 and 15 s. Opening new connections finds a path that has come back sooner. */
const RETRY_MS = 1000
const KEEP_ALIVE_MS = 15_000

/**
 * Connects to the first of `addresses` that answers. As long as none does, another connection is begun every second, and the
 * first to open is used. Gives up when none of the addresses can still answer. Rejects with the socket's error or the signal's
 * reason.
 */
export function connectTcp(
  host: string,
  port: number,
  addresses: readonly LookupAddress[],
  signal: AbortSignal,
): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  const sockets = new Set<Socket>()
  let over = false
  const fail = (error: unknown) => {
    end()
    reject(error)
  }
  const guard = guardWith(fail)
  const failed = guard((error: Error) => {
    const left = unanswered(error)
    if (over || left.length === 0) fail(error)
    else begin(left)
  })
  const begin = (these: readonly LookupAddress[]) => {
    const lookup = leadingTo(these)
    const socket = connect({ host, port, lookup, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS })
    sockets.add(socket)
    const connected = guard(() => {
      sockets.delete(socket)
      socket.off('error', failed)
      end()
      resolve(socket)
    })
    socket.once('connect', connected)
    socket.once('error', failed)
  }
  const end = () => {
    over = true
    clearInterval(timer)
    signal.removeEventListener('abort', onAbort)
    for (const socket of sockets) socket.destroy()
  }
  const onAbort = guard(() => fail(signal.reason))
  const retry = guard(() => begin(addresses))
  const timer = setInterval(retry, RETRY_MS)
  signal.addEventListener('abort', onAbort)
  if (signal.aborted) onAbort()
  else retry()
  return promise
}
