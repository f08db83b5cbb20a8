/**
 * Leases and epochs, judged by what replicas did: random schedules with faults, and a checker that decides whether the
 * history was legal. `TEST_SEED` sets the first seed.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createAuthority, createReplicaCertificate } from '../../certs/index.ts'
import type { PeerTls } from '../../server/peer/tls.ts'
import { long, needs, short } from '../support/needs.ts'
import { Redis } from '../support/redis.ts'
import { firstSeed } from '../support/seed.ts'
import { type Entry, judge } from './history.ts'
import { type ModelRun, Schedule } from './schedule.ts'

const SCHEDULES = 200
/** As many as fit into the normal run. */
const BUDGET_MS = long ? Number.POSITIVE_INFINITY : short ? 4_000 : 10_000
const LANES = 3
/**
 * Short, so that many schedules fit. On a busy machine, answers may keep arriving too late for it, and nobody ever
 * agrees: then the same schedule runs more slowly, up to the longest.
 */
const LEASE_MS = 500
const LONGEST_LEASE_MS = 4000

describe('the checker', () => {
  const at = (atMs: number, replica: string, deed: Entry['deed'], epoch: number): Entry => ({
    ...{ atMs, replica, deed, runtime: 'demo', instance: 'i', epoch },
  })

  test.each<[string, Entry[], number]>([
    ['a stream on the latest epoch', [at(0, 'a', 'acquired', 1), at(9e9, 'a', 'routed', 1)], 0],
    ['one after a later epoch was learned', [at(0, 'a', 'learned', 2), at(1, 'a', 'routed', 1)], 1],
    ['one of another replica within the lease', [at(0, 'b', 'acquired', 2), at(99, 'a', 'routed', 1)], 0],
    ['one of another replica after the lease', [at(0, 'b', 'acquired', 2), at(106, 'a', 'routed', 1)], 1],
    ['one of a replica that never heard of any', [at(0, 'a', 'routed', 1)], 0],
    [
      'one after the second grant, a lease after the first',
      [at(0, 'b', 'acquired', 2), at(90, 'c', 'learned', 2), at(150, 'a', 'routed', 1)],
      1,
    ],
  ])('%s', (_name, history, wrong) => {
    expect(judge(history, 100)).toHaveLength(wrong)
  })
})

describe.runIf(needs('redis'))('leases and epochs', () => {
  const redises: Redis[] = []
  let tls: PeerTls
  beforeAll(async () => {
    const authority = await createAuthority()
    const made = await createReplicaCertificate(authority)
    tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
    for (let i = 0; i < LANES; i++) redises.push(await Redis.start())
  })
  afterAll(async () => {
    await Promise.all(
      redises.map(redis => {
        redis.resume()
        return redis.stop()
      }),
    )
  })

  test(
    'hold in random schedules with faults',
    async () => {
      const first = firstSeed()
      const untilMs = performance.now() + BUDGET_MS
      let next = 0
      let routed = 0
      const failures: { seed: number; run: ModelRun; wrong: string[] }[] = []
      const play = async (seed: number, redis: Redis, leaseMs: number): Promise<void> => {
        await redis.command('FLUSHALL')
        await redis.age()
        const run = await new Schedule(seed, redis, tls, leaseMs).run()
        routed += run.routed
        const wrong = judge(run.history, leaseMs)
        if (!run.agreed && wrong.length === 0) {
          if (leaseMs < LONGEST_LEASE_MS) return play(seed, redis, 2 * leaseMs)
          wrong.push('the replicas did not come to agree')
        }
        if (wrong.length > 0) failures.push({ seed, run, wrong })
      }
      const lane = async (redis: Redis): Promise<void> => {
        while (next < SCHEDULES && performance.now() < untilMs) await play(first + next++, redis, LEASE_MS)
      }
      await Promise.all(redises.map(lane))
      console.log(`${next} schedules from seed ${first}: ${routed} streams opened, ${failures.length} schedules failed`)
      for (const { seed, run, wrong } of failures.slice(0, 3)) {
        console.log(`TEST_SEED=${seed}: ${wrong.length} times, ${wrong[0]}\n  ${run.steps.join('\n  ')}`)
      }
      expect(failures.map(({ seed }) => seed)).toEqual([])
      expect(routed).toBeGreaterThan(next)
    },
    long ? 1_800_000 : 400_000,
  )
})
