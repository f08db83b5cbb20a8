/** The server under attack: other tenants lose nothing, and nothing of the attack is left behind. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { long, short } from '../support/needs.ts'
import { CALLER_ATTACKS } from './attacks/callers.ts'
import { HANDSHAKE_ATTACKS } from './attacks/handshakes.ts'
import { HTTP2_ATTACKS } from './attacks/http2.ts'
import { SESSION_ATTACKS } from './attacks/sessions.ts'
import { excess, measure, measureTable, type Result } from './measure.ts'
import { World } from './world.ts'

const MIB = 1024 * 1024
/** Full counts take minutes. A normal run does a part of each attack in each of its rounds. */
const SHARE = long ? 1 : 0.03
const ROUNDS = 5
const ATTACKS = [HTTP2_ATTACKS, HANDSHAKE_ATTACKS, SESSION_ATTACKS, CALLER_ATTACKS].flatMap(attacks =>
  short ? attacks.slice(0, 1) : attacks,
)
/** What the server may hold under any attack: 256 MiB of buffers, 64 MiB kept for retries, and the process itself. */
const CEILING_BYTES = 512 * MIB

vi.setConfig({ testTimeout: 600_000 })

let world: World
const results: Result[] = []

beforeAll(async () => {
  world = await World.start()
})
afterAll(async () => {
  console.log(measureTable(results))
  await world?.stop()
})

describe.runIf(process.platform === 'linux')('a well-behaved client beside', () => {
  it.each(ATTACKS.map(one => [one.name, one] as const))(
    '%s: loses nothing, and the server is afterwards as it was',
    async (_name, attack) => {
      const result = await measure(world, attack, SHARE, ROUNDS)
      results.push(result)
      expect(result.attacked.lost, 'requests without their answer').toBe(0)
      expect(result.attacked.requests).toBeGreaterThan(0)
      expect(result.peakBytes, 'resident bytes').toBeLessThan(CEILING_BYTES)
      expect(excess(result.before, result.after)).toEqual([])
    },
  )
})
