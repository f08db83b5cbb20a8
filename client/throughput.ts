/**
 * Measures how fast bytes reach a server before it has received `hello`. We send pongs, which the server reads and drops,
 * and then one ping. We do not send many pings, because the server would take them for a flood.
 */
import { once } from 'node:events'
import type { WebSocket } from 'ws'

/** A server accepts a burst of 1,000 small frames. */
const PONGS = 800
const PONG_BYTES = 125
export const THROUGHPUT_BYTES = PONGS * PONG_BYTES
export const THROUGHPUT_MS = 4000

/**
 * How long 100 kB took, including the answer to the ping; undefined if it took over 4 s or the connection ended. No other
 * ping may be open.
 */
export async function measureThroughput(socket: WebSocket, signal: AbortSignal): Promise<number | undefined> {
  const over = AbortSignal.any([signal, AbortSignal.timeout(THROUGHPUT_MS)])
  const begun = performance.now()
  const filling = Buffer.alloc(PONG_BYTES)
  for (let pong = 0; pong < PONGS; pong++) socket.pong(filling)
  socket.ping()
  try {
    await Promise.race([once(socket, 'pong', { signal: over }), once(socket, 'close', { signal: over })])
  } catch {
    return undefined
  }
  return socket.readyState === socket.OPEN ? performance.now() - begun : undefined
}
