/**
 * Random faults: two minutes, ten in the long run, none in a short one. `npm run chaos -- --minutes N --seed S` repeats a run.
 */
import { describe, expect, it } from 'vitest'
import { long, needs } from '../support/needs.ts'
import { firstSeed } from '../support/seed.ts'
import { seeded } from './random.ts'
import { runSchedule } from './schedule.ts'

const MINUTES = long ? 10 : 2
const MOST_MS = (MINUTES + 5) * 60_000

describe.runIf(needs('nginx', 'redis'))('a random schedule of faults', () => {
  const seed = firstSeed()
  it(`holds every invariant for ${MINUTES} minutes`, { timeout: MOST_MS, tags: ['slow'] }, async () => {
    const log: string[] = [`seed ${seed}`]
    const { signal } = new AbortController()
    const { problems } = await runSchedule({
      minutes: MINUTES,
      random: seeded(seed),
      say: line => log.push(line),
      stop: signal,
    })
    console.log(log.join('\n'))
    expect({ seed, problems }).toEqual({ seed, problems: [] })
  })
})
