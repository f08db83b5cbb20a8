/**
 * How still the machine is. On a shared one, somebody who has the other half of a core, or most of its cache, makes all that
 * runs on V8 slower by up to a half, nginx by a tenth, and shows in no figure of the system. So a fixed piece of work is timed
 * before each round.
 */
import type { Measured } from './measure.ts'
import { number } from './section.ts'

const TEXT = JSON.stringify(
  Array.from({ length: 300 }, (_, id) => ({ id, name: `n${id}`, list: [id, 'x'.repeat(id % 30)] })),
)
const ROUNDS = 10
/** From then on it is compiled. */
const WARM_UPS = 10

let warmUps = 0

/** How long the work takes now, in us: the least of three, so that what ends just then does not count. */
export function fixedWorkUs(): number {
  for (; warmUps < WARM_UPS; warmUps++) work()
  return Math.min(work(), work(), work())
}

function work(): number {
  const startedAt = performance.now()
  for (let round = 0; round < ROUNDS; round++) {
    const lists = new Map<string, string>()
    for (const { name, list } of JSON.parse(TEXT)) lists.set(name, list.join())
  }
  return ((performance.now() - startedAt) * 1000) / ROUNDS
}

/** What it took before the rounds of these rows; '' if nobody looked. */
export function fixedWorkNote(measured: readonly Measured[]): string {
  const figures = measured.flatMap(({ figures: { fixedWork } }) => (fixedWork === undefined ? [] : [fixedWork]))
  if (figures.length === 0) return ''
  const least = Math.min(...figures.map(({ min }) => min))
  const most = Math.max(...figures.map(({ max }) => max))
  return ` A fixed piece of work, timed before each round, took ${number(least)} to ${number(most)} us.`
}
