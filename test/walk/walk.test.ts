import { afterAll, beforeAll, expect, test } from 'vitest'
import { long, short } from '../support/needs.ts'
import { makeWalk, tellLeft, walk } from './walk.ts'
import { World } from './world.ts'

/** As many seeds as fit into a short time, or 2,000 in the long run. */
const SEEDS = 2000
const BUDGET_MS = long ? Number.POSITIVE_INFINITY : short ? 6_000 : 45_000
const FIRST = 1

let world: World
beforeAll(async () => {
  world = await World.start()
})
afterAll(() => world?.stop())

test(`B2 a random walk ends at rest: seeds from ${FIRST}`, { timeout: 3_600_000 }, async () => {
  const end = performance.now() + BUDGET_MS
  let seed = FIRST
  for (; seed < FIRST + SEEDS && performance.now() < end; seed++) {
    const made = makeWalk(String(seed), world.far !== undefined)
    const left = await walk(world, made)
    // Earlier seeds may matter, so the first ones are played again.
    const again = `npm run walk -- --seeds ${seed - FIRST + 1} --from ${FIRST}`
    if (Object.keys(left).length > 0) expect.fail(`${tellLeft(world, made, left)}\n${again}`)
  }
  expect(seed).toBeGreaterThan(FIRST)
})
