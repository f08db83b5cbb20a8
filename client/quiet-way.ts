/** Measures how long a connection may be idle before something on the path to the server cuts or forgets it. */
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import type { WebSocket } from 'ws'

/** By default, a server waits 10 s for `hello`, so longer times cannot be measured without one. */
const QUIET_MS: readonly number[] = [1000, 2000, 4000, 8000]
/** Beyond the round trip. */
const PONG_MS = 1500
const BUSY_MS = 250
/** How far apart connections may end that the server ends at the same age. */
const APART_MS = 500

interface QuietTimes {
  /** The longest idle time that a connection survived; 0 if none did. */
  readonly survivedMs: number
  /** The shortest idle time after which a connection was cut or did not answer; undefined if there was none. */
  readonly cutMs: number | undefined
}

/** A connection that is never idle. */
interface Busy {
  rttMs: number
  hasEnded: boolean
}

/**
 * Opens one connection for each idle time, all at once, and one that is never idle: if that one ends, too, then the server has
 * ended them all, because it waits for `hello`. Such times count neither as survived nor as cut.
 */
export async function measureQuiet(
  dial: () => Promise<WebSocket>,
  quietMs: readonly number[] = QUIET_MS,
): Promise<QuietTimes> {
  const busy: Busy = { rttMs: 0, hasEnded: false }
  const over = new AbortController()
  const begun = performance.now()
  const kept = dial().then(socket => {
    // Several round trips, until one has been measured.
    busy.rttMs = Math.ceil(performance.now() - begun)
    return keepBusy(socket, busy, over.signal)
  })
  const measured = Promise.all(quietMs.map(async ms => ({ ms, cutMs: await keepQuiet(await dial(), ms, busy) })))
  try {
    // Rejects if the busy one cannot be dialled.
    const found = await Promise.race([measured, kept.then(() => measured)])
    const cut = found.flatMap(({ cutMs }) => cutMs || [])
    const survived = found.filter(({ cutMs }) => cutMs === 0).map(({ ms }) => ms)
    return { survivedMs: Math.max(0, ...survived), cutMs: cut.length === 0 ? undefined : Math.min(...cut) }
  } finally {
    over.abort()
    await kept.catch(() => {})
  }
}

/** Rejects once `over` aborts. */
async function keepBusy(socket: WebSocket, busy: Busy, over: AbortSignal): Promise<void> {
  socket.on('error', () => {})
  const closed = once(socket, 'close', { signal: over }).then(() => {
    busy.hasEnded = true
  })
  try {
    while (!busy.hasEnded) {
      const begun = performance.now()
      socket.ping()
      await Promise.race([once(socket, 'pong', { signal: over }), closed])
      busy.rttMs = Math.ceil(performance.now() - begun)
      await pause(BUSY_MS, undefined, { signal: over })
    }
  } finally {
    socket.terminate()
  }
}

/** The time after which it was cut; 0 if it survived, undefined if the server itself ended it. */
async function keepQuiet(socket: WebSocket, ms: number, busy: Busy): Promise<number | undefined> {
  const begun = performance.now()
  const over = new AbortController()
  socket.on('error', () => {})
  const cut = async () => {
    await once(socket, 'close', { signal: over.signal })
    const cutMs = performance.now() - begun
    await pause(APART_MS)
    return busy.hasEnded ? undefined : cutMs
  }
  const quiet = async () => {
    await pause(ms, undefined, { signal: over.signal })
    // If the server has ended the other one, it ends this one before the ping arrives.
    const isTooLate = busy.hasEnded
    socket.ping()
    const late = AbortSignal.timeout(PONG_MS + busy.rttMs)
    const pong = once(socket, 'pong', { signal: AbortSignal.any([over.signal, late]) })
    return await pong.then(
      () => 0,
      () => (isTooLate ? undefined : ms),
    )
  }
  try {
    return await Promise.race([cut(), quiet()])
  } finally {
    over.abort()
    socket.terminate()
  }
}
