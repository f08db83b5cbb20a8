/** A row of the fault table as a test: a thousand requests, one fault. `npm run chaos -- --table` has the full size. */
import { describe, expect, it } from 'vitest'
import { seeded } from '../chaos/random.ts'
import { ROWS, type TrialRow } from '../chaos/rows.ts'
import { runTrial } from '../chaos/trial.ts'
import { needs } from '../support/needs.ts'
import { firstSeed } from '../support/seed.ts'

const SIZE = {
  times: 1,
  requests: 1000,
  requestsPerSecond: 300,
  roundTripMs: 0,
  downloadBytes: 20_000_000,
  graceS: 8,
} as const

/** On a busy machine, each part that stops has five times the grace. */
const MOST_MS = 600_000

/** Declares the tests of these rows. */
export function testRows(...names: readonly string[]): void {
  for (const name of names) testRow(rowOf(name))
}

export function rowOf(name: string): TrialRow {
  const row = ROWS.find(one => one.name === name)
  if (row === undefined) throw new Error(`the table has no row ${name}`)
  return row
}

export function testRow(row: TrialRow): void {
  describe.runIf(row.servers === 1 || needs(row.proxy ?? 'nginx', 'redis'))(row.title, () => {
    it(`${row.allowance}`, { timeout: MOST_MS }, async () => {
      const seed = firstSeed()
      const account = await runTrial(row, SIZE, seeded(seed), new AbortController().signal)
      expect(account.requests).toBeGreaterThanOrEqual(SIZE.requests)
      expect({ seed, problems: row.judge(account) }).toEqual({ seed, problems: [] })
    })
  })
}
