/** A clock for times that are kept: stored, or compared with later ones. */
import { elapsedMs } from '../protocol/base/elapsed.ts'

/** Returns whole milliseconds since 1970, as `clock` counts them. While `clock` returns no number, they go on. */
export function keptClock(clock: () => number): () => number {
  let aheadMs = Date.now() - elapsedMs()
  return () => {
    const [now, nowMs] = [clock(), elapsedMs()]
    if (Number.isFinite(now)) aheadMs = now - nowMs
    return Math.round(nowMs + aheadMs)
  }
}
