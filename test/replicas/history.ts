import type { EpochEvent } from '../../server/directory/recorder.ts'

/** What one replica did, at a time of the clock that all share. */
export interface Entry {
  readonly atMs: number
  readonly replica: string
  readonly deed: EpochEvent
  readonly runtime: string
  readonly instance: string
  readonly epoch: number
}

/** Events of one turn of the event loop have nearly the same time. */
const TOLERANCE_MS = 5

/**
 * What is wrong with a history, in words; empty if it is legal. No replica opens a stream on an epoch after it has
 * heard of a later one, or later than a lease after that one was granted (which is when the first replica heard of it).
 */
export function judge(history: readonly Entry[], leaseMs: number): string[] {
  const wrong: string[] = []
  /** By runtime: each epoch and when it was granted. */
  const granted = new Map<string, Map<number, number>>()
  /** By replica and runtime: the latest epoch that it knows. */
  const known = new Map<string, number>()
  for (const { atMs, replica, deed, runtime, epoch } of history) {
    const grants = granted.get(runtime) ?? new Map<number, number>()
    granted.set(runtime, grants)
    const key = `${replica} ${runtime}`
    const latest = known.get(key) ?? 0
    if (deed === 'acquired' || deed === 'learned') {
      if (!grants.has(epoch)) grants.set(epoch, atMs)
      known.set(key, Math.max(latest, epoch))
    }
    if (deed !== 'routed') continue
    if (latest > epoch) wrong.push(`${replica} opened a stream on epoch ${epoch} after it had learned of ${latest}`)
    for (const [later, grantedMs] of grants) {
      const overMs = atMs - grantedMs - leaseMs
      if (later <= epoch || overMs <= TOLERANCE_MS) continue
      wrong.push(`${replica} opened a stream on epoch ${epoch}, ${Math.round(overMs)} ms too long after ${later}`)
    }
  }
  return wrong
}
