/**
 * How fast bytes go to a server, before it has heard a hello: pongs, which it reads and drops, and behind them one ping. More than a few
 * pings at once would be a flood.
 */
import { once } from 'node:events'
import type { WebSocket } from 'ws'

/** A server takes 1,000 small frames at once. */
const PONGS = 800
const PONG_BYTES = 125
export const THROUGHPUT_BYTES = PONGS * PONG_BYTES
export const THROUGHPUT_MS = 4000

/** How long 100 kB took, the answer to the ping included; undefined: over 4 s, or the connection has ended. No other ping is open. */
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
