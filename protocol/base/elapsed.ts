/** A clock for what others count as well: it goes on while this machine is suspended. */
import { uptime } from 'node:os'

/** Milliseconds: monotonic, of the day, and since the machine started. */
interface Clocks {
  readonly monotonic: () => number
  readonly wall: () => number
  readonly uptime: () => number
}

const CLOCKS: Clocks = { monotonic: () => performance.now(), wall: () => Date.now(), uptime: () => uptime() * 1000 }
/** A shorter suspension is not noticed. More than the clocks differ by themselves between two looks. */
const NOTICED_MS = 1000

/**
 * Returns a clock that is monotonic, but unlike `performance.now` counts the time that the machine was suspended. Setting the clock of the
 * day changes nothing. The time since the machine started is what tells both apart; to read it costs some 10 µs, so that is done only
 * where the clock of the day jumped.
 */
export function elapsedClock({ monotonic, wall, uptime }: Clocks = CLOCKS): () => number {
  let wallAheadMs = wall() - monotonic()
  let uptimeAheadMs = uptime() - monotonic()
  let suspendedMs = 0
  return () => {
    const nowMs = monotonic()
    const aheadMs = wall() - nowMs
    if (Math.abs(aheadMs - wallAheadMs) < NOTICED_MS) return nowMs + suspendedMs
    wallAheadMs = aheadMs
    const beforeMs = uptimeAheadMs
    uptimeAheadMs = uptime() - nowMs
    suspendedMs += Math.max(0, uptimeAheadMs - beforeMs)
    return nowMs + suspendedMs
  }
}

/** Milliseconds since some moment; see {@link elapsedClock}. One for the process, since it has to be looked at before a suspension, too. */
export const elapsedMs = elapsedClock()
