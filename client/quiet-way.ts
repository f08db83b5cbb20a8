/** Measures how long a connection may be idle before something on the path to the server cuts or forgets it. */
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import type { WebSocket } from 'ws'

/** A server waits 10 s for `hello`, so longer times cannot be measured without one. */
const QUIET_MS: readonly number[] = [1000, 2000, 4000, 8000]
const PONG_MS = 1500
/** The close code for a connection that ended without a Close frame. */
const ABNORMAL = 1006

interface QuietTimes {
  /** The longest idle time that a connection survived; 0 if none did. */
  readonly survivedMs: number
  /** The shortest idle time after which a connection was cut or did not answer; undefined if there was none. */
  readonly cutMs: number | undefined
}

/** Opens one connection for each idle time, all at once. */
export async function measureQuiet(
  dial: () => Promise<WebSocket>,
  quietMs: readonly number[] = QUIET_MS,
): Promise<QuietTimes> {
  const found = await Promise.all(quietMs.map(async ms => ({ ms, cutMs: await keepQuiet(await dial(), ms) })))
  const cut = found.flatMap(({ cutMs }) => cutMs ?? [])
  const survived = found.filter(({ cutMs }) => cutMs === undefined).map(({ ms }) => ms)
  return { survivedMs: Math.max(0, ...survived), cutMs: cut.length === 0 ? undefined : Math.min(...cut) }
}

/** The time after which it was cut; undefined if it survived, or if the server itself ended it. */
async function keepQuiet(socket: WebSocket, ms: number): Promise<number | undefined> {
  const begun = performance.now()
  const over = new AbortController()
  socket.on('error', () => {})
  const cut = once(socket, 'close', { signal: over.signal }).then(
    ([code]) => (code === ABNORMAL ? performance.now() - begun : undefined),
    () => undefined,
  )
  const quiet = async () => {
    await pause(ms, undefined, { signal: over.signal })
    socket.ping()
    await once(socket, 'pong', { signal: AbortSignal.any([over.signal, AbortSignal.timeout(PONG_MS)]) })
    return undefined
  }
  try {
    return await Promise.race([cut, quiet().catch(() => ms)])
  } finally {
    over.abort()
    socket.terminate()
  }
}
