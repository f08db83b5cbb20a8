/** One attack: what it does in a round, and what holds behind it besides what holds behind each. */
import type { World } from './world.ts'

export interface Attack {
  readonly name: string
  /** What of it is done in a round: full counts are 1, the normal run does less. */
  round(world: World, share: number): Promise<void>
  /** A round takes many seconds: the normal run does one, without a rehearsal. */
  readonly slow?: boolean
  /** What a round needs and what is left out of the measurement, such as a client to be called. */
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
