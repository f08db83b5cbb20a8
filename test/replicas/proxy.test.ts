/**
 * Replicas behind a real nginx, in separate processes, under the traffic of the chaos runs: what each fault costs. The
 * table of faults covers two replicas; here there are three, and the faults that the table lacks.
 */
import { describe, expect, test } from 'vitest'
import { killServer, pauseServer, updateServers } from '../chaos/faults.ts'
import { seeded } from '../chaos/random.ts'
import { never, type TrialRow } from '../chaos/rows.ts'
import { runTrial } from '../chaos/trial.ts'
import { long, needs } from '../support/needs.ts'
import { firstSeed } from '../support/seed.ts'

const SIZE = {
  times: 1,
  requests: long ? 20_000 : 600,
  requestsPerSecond: long ? 300 : 60,
  roundTripMs: 0,
  downloadBytes: 5_000_000,
  graceS: 8,
} as const
const PAUSE_MS = long ? 30_000 : 6000

const ROWS: readonly TrialRow[] = [
  {
    name: 'three-update',
    title: 'rolling restart of all three',
    allowance: 'nothing is lost',
    times: 1,
    servers: 3,
    fault: deployment => updateServers(deployment.servers),
    judge: account => [...never(account), ...lost(account, 'GET'), ...lost(account, 'POST')],
  },
  {
    name: 'three-kill',
    title: 'kill -9 of one of three',
    allowance: 'no GET is lost',
    times: 1,
    servers: 3,
    fault: (deployment, _turn, random) => killServer(random.pick(deployment.servers)),
    judge: account => [...never(account), ...lost(account, 'GET lost')],
  },
  {
    name: 'pause',
    title: `one of two stands still for ${PAUSE_MS / 1000} s, and returns`,
    allowance: 'what it had waits; nothing is answered wrongly or twice, and no GET is lost',
    times: 1,
    servers: 2,
    silent: true,
    fault: (deployment, _turn, random) => pauseServer(random.pick(deployment.servers), PAUSE_MS),
    judge: account => [...never(account), ...lost(account, 'GET lost')],
  },
]

/** `kind` may name the outcome, too: an answer that has begun may be cut by a fault that no GET is lost in. */
function lost({ reasons }: Parameters<TrialRow['judge']>[0], kind: string): string[] {
  return [...reasons].filter(([text]) => text.startsWith(`${kind} `)).map(([text, count]) => `${count} of ${text}`)
}

describe.runIf(needs('nginx', 'redis'))('behind nginx:', () => {
  // The table of faults has the kill with two.
  const rows = ROWS.filter(({ name }) => long || name !== 'three-kill')
  test.each(rows.map(row => [row.title, row.allowance, row] as const))(
    '%s: %s',
    { tags: ['slow'], ...(long ? { timeout: 900_000 } : {}) },
    async (title, _allowance, row) => {
      const seed = firstSeed()
      const account = await runTrial(row, SIZE, seeded(seed), new AbortController().signal)
      const { requests, counts, reasons } = account
      console.log(`${title}: ${requests} requests, ${JSON.stringify(counts)} ${JSON.stringify([...reasons])}`)
      expect({ seed, problems: row.judge(account) }).toEqual({ seed, problems: [] })
    },
  )
})
