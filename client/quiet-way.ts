/** How long the way to a server may be quiet before something on it cuts or forgets the connection. */
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import type { WebSocket } from 'ws'

/** A server waits 10 s for a hello, which bounds what can be measured without one. */
const QUIET_MS: readonly number[] = [1000, 2000, 4000, 8000]
const PONG_MS = 1500
/** The socket's own code for a connection that ended without a Close frame. */
const ABNORMAL = 1006

interface QuietWay {
  /** The longest quiet that the way survived; 0: none. */
  readonly survivedMs: number
  /** The shortest after which it was cut, or nothing came back; undefined: none. */
  readonly cutMs: number | undefined
}

/** A connection for each time, all at once. */
export async function measureQuiet(
  dial: () => Promise<WebSocket>,
  quietMs: readonly number[] = QUIET_MS,
): Promise<QuietWay> {
  const found = await Promise.all(quietMs.map(async ms => ({ ms, cutMs: await keepQuiet(await dial(), ms) })))
  const cut = found.flatMap(({ cutMs }) => cutMs ?? [])
  const survived = found.filter(({ cutMs }) => cutMs === undefined).map(({ ms }) => ms)
  return { survivedMs: Math.max(0, ...survived), cutMs: cut.length === 0 ? undefined : Math.min(...cut) }
}

/** After what time it was cut; undefined if it survived, or the server itself ended it. */
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
