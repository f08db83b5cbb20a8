/** One attack: what it does in a round, and what must hold after it, in addition to what must hold after every attack. */
import type { World } from './world.ts'

export interface Attack {
  readonly name: string
  /** Does one round. `share`: 1 for the full counts, less in a normal run. */
  round(world: World, share: number): Promise<void>
  /** A round takes many seconds. The normal run does one, without a rehearsal. */
  readonly slow?: boolean
  /** Prepares what a round needs but should not be measured, such as a client to call. */
  prepare?(world: World): Promise<() => Promise<void>>
}

/** `count` scaled, at least one. */
export function scaled(count: number, share: number): number {
  return Math.max(1, Math.round(count * share))
}

/** Runs `work` for each number below `count`, at most `width` at a time. */
export async function each(count: number, width: number, work: (n: number) => Promise<void>): Promise<void> {
  let next = 0
  const run = async () => {
    while (next < count) await work(next++)
  }
  await Promise.all(Array.from({ length: Math.min(width, count) }, run))
}
