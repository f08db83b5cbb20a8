/**
 * How quiet the machine is. On a shared machine, a neighbour on the other half of a core, or one that fills the cache, slows
 * everything on V8 down by up to a half, and nginx by a tenth, and no figure of the system shows it. So a fixed piece of work is
 * timed before each round.
 */
import type { Measured } from './measure.ts'
import { number } from './section.ts'

const TEXT = JSON.stringify(
  Array.from({ length: 300 }, (_, id) => ({ id, name: `n${id}`, list: [id, 'x'.repeat(id % 30)] })),
)
const ROUNDS = 10
/** After this many calls it is compiled. */
const WARM_UPS = 10

let warmUps = 0

/** How long the work takes now, in us. The minimum of three, so that a brief disturbance does not count. */
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

/** How long the work took before the rounds of these rows. '' if it was not timed. */
export function fixedWorkNote(measured: readonly Measured[]): string {
  const figures = measured.flatMap(({ figures: { fixedWork } }) => (fixedWork === undefined ? [] : [fixedWork]))
  if (figures.length === 0) return ''
  const least = Math.min(...figures.map(({ min }) => min))
  const most = Math.max(...figures.map(({ max }) => max))
  return ` A fixed piece of work, timed before each round, took ${number(least)} to ${number(most)} us.`
}
