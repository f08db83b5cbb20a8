// @module-tag slow
/**
 * No request makes parsing or bookkeeping use 100 times its bytes in memory. The fixed cost of a request is measured separately
 * from the cost of each of its bytes.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cost, connectHolder, costOf, KINDS } from './held-requests.ts'
import { World } from './world.ts'

const MOST_PER_BYTE = 100
/** The fixed cost of a request: its stream, its exchange, and what is written into the tunnel. */
const MOST_PRICE_BYTES = 32 * 1024

let world: World
const costs: [string, Cost][] = []

beforeAll(async () => {
  world = await World.start()
  await connectHolder(world, 'silent')
  await connectHolder(world, 'stalled')
  // Allocations that happen once are not counted.
  for (const kind of [KINDS[0]!, KINDS.at(-1)!]) await costOf(world, kind)
})
afterAll(async () => {
  for (const [name, { priceBytes, perByte }] of costs) {
    console.log(`${name}: ${Math.round(priceBytes)} bytes for any request, ${perByte.toFixed(1)} for each byte more`)
  }
  await world?.stop()
})

describe('live bytes of the server for each byte of a request that it holds', () => {
  it.each(KINDS.map(kind => [kind.name, kind] as const))('%s', async (name, kind) => {
    const cost = await costOf(world, kind)
    costs.push([name, cost])
    expect(cost.perByte).toBeLessThan(MOST_PER_BYTE)
    expect(cost.priceBytes).toBeLessThan(MOST_PRICE_BYTES)
  })
})
