/** Rounds, interleaved over the roads, and what becomes of their figures. */
import type { Road } from '../roads/road.ts'
import { cpuMs } from './cpu.ts'

/** Median, least and greatest of the rounds. */
export interface Figure {
  readonly median: number
  readonly min: number
  readonly max: number
}

export function figure(values: readonly number[]): Figure {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  const median = sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
  return { median, min: sorted[0]!, max: sorted.at(-1)! }
}

/** The value below which a share `q` of the sorted values lies (nearest rank). */
export function quantile(sorted: readonly number[], q: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN
}

/** What one round on one road gave; `wrong` counts answers that are wrong, short or missing. */
export interface Round {
  readonly figures: Record<string, number>
  readonly wrong: number
}

export interface Measured {
  readonly road: string
  readonly figures: Record<string, Figure>
  readonly wrong: number
}

/**
 * Runs `once` on each road in turn, `rounds` times after a warm-up that is thrown away. `units` is how many requests (or
 * MB) the round moved: with it `cpu` is the CPU time of the road's processes per unit, in us.
 */
export async function interleaved(
  roads: readonly Road[],
  rounds: number,
  once: (road: Road, warmUp: boolean) => Promise<Round & { units: number }>,
  progress: (text: string) => void,
): Promise<Measured[]> {
  const all = roads.map(() => [] as Round[])
  for (let round = 0; round <= rounds; round++)
    for (const [index, road] of roads.entries()) {
      progress(`${road.name}: ${round === 0 ? 'warm-up' : `round ${round} of ${rounds}`}`)
      const before = cpuMs(road.pids)
      const { figures, wrong, units } = await once(road, round === 0)
      const cpu = ((cpuMs(road.pids) - before) * 1000) / units
      if (round > 0) all[index]!.push({ figures: { ...figures, cpu }, wrong })
    }
  return roads.map((road, index) => {
    const runs = all[index]!
    const names = Object.keys(runs[0]?.figures ?? {})
    return {
      road: road.name,
      figures: Object.fromEntries(names.map(name => [name, figure(runs.map(run => run.figures[name]!))])),
      wrong: runs.reduce((sum, run) => sum + run.wrong, 0),
    }
  })
}
