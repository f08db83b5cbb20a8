/**
 * The fault runner (README.md):
 *
 *     npm run chaos -- --table                      every row of the table, at full size
 *     npm run chaos -- --table --row client-update  one of them
 *     npm run chaos -- --minutes 10 --seed 7        a random schedule
 */
import { randomInt } from 'node:crypto'
import { parseArgs } from 'node:util'
import { whyMissing } from '../support/needs.ts'
import { type Random, seeded } from './random.ts'
import { formatMs, formatTable } from './report.ts'
import { ROWS, type TrialRow } from './rows.ts'
import { runSchedule, type Tally } from './schedule.ts'
import { Stopped } from './stop.ts'
import type { Account } from './traffic/ledger.ts'
import { runTrial } from './trial.ts'

const USAGE =
  'usage: npm run chaos -- (--minutes N | --table [--row NAME]... [--round-trip MS] [--requests N]) [--seed S]'
/** Round trips between clients and servers, in milliseconds. */
const ROUND_TRIPS = [0, 50]
/** On each path. Both together make up a row's 20,000. */
const FULL_SIZE = { requests: 10_000, requestsPerSecond: 300, downloadBytes: 50_000_000, graceS: 8 } as const
const MAX_SEED = 2 ** 32

const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop.abort())

try {
  process.exitCode = await main()
} catch (error) {
  if (!(error instanceof Stopped)) throw error
  console.log('stopped; nothing is left running')
  process.exitCode = 130
}
process.exit()

async function main(): Promise<number> {
  const values = parse()
  if (values === undefined) {
    console.error(USAGE)
    return 2
  }
  for (const need of ['nginx', 'redis'] as const) {
    const why = whyMissing(need)
    if (why === undefined) continue
    console.error(`the fault runner needs ${need}: ${why}`)
    return 2
  }
  const seed = values.seed ?? randomInt(MAX_SEED)
  console.log(`seed ${seed}`)
  return values.minutes === undefined ? table(values, seeded(seed)) : minutes(values.minutes, seeded(seed))
}

interface Values {
  readonly minutes: number | undefined
  readonly seed: number | undefined
  readonly rows: readonly TrialRow[]
  readonly roundTripsMs: readonly number[]
  /** On each path. */
  readonly requests: number
}

function parse(): Values | undefined {
  const options = {
    table: { type: 'boolean' },
    row: { type: 'string', multiple: true },
    'round-trip': { type: 'string' },
    requests: { type: 'string' },
    minutes: { type: 'string' },
    seed: { type: 'string' },
  } as const
  try {
    const { values } = parseArgs({ options })
    const minutes = numberOf(values.minutes)
    const seed = numberOf(values.seed)
    const rows = ROWS.filter(({ name }) => values.row?.includes(name) ?? true)
    const isOne = (values.table === true) !== (minutes !== undefined)
    const requests = numberOf(values.requests) ?? FULL_SIZE.requests
    const roundTripMs = numberOf(values['round-trip'])
    const roundTripsMs = roundTripMs === undefined ? ROUND_TRIPS : [roundTripMs]
    return isOne && rows.length > 0 ? { minutes, seed, rows, roundTripsMs, requests } : undefined
  } catch {
    return undefined
  }
}

function numberOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const number = Number(text)
  if (!(number >= 0)) throw new TypeError(`${text} is no number`)
  return number
}

async function table({ rows, roundTripsMs, requests }: Values, random: Random): Promise<number> {
  const lines: string[][] = []
  let failed = 0
  for (const row of rows) {
    for (const roundTripMs of roundTripsMs) {
      const name = roundTripMs === 0 ? 'loopback' : `${roundTripMs} ms`
      const times = Math.ceil((row.times * requests) / FULL_SIZE.requests)
      const size = { ...FULL_SIZE, requests, times, roundTripMs }
      const account = await runTrial(row, size, random, stop.signal)
      const problems = row.judge(account)
      if (problems.length > 0) failed++
      lines.push([row.title, name, String(times), ...cellsOf(account), problems.length === 0 ? 'holds' : 'FAILS'])
      console.log(`${row.name}, ${name}: ${lines.at(-1)!.slice(2).join(', ')}`)
      for (const [reason, count] of account.reasons) console.log(`    ${count} of ${reason}`)
      for (const note of account.notes) console.log(`    note: ${note}`)
      for (const problem of problems) console.log(`    FAILS: ${problem}`)
    }
  }
  const head = ['fault', 'path', 'times', 'requests', 'lost', 'longest gap', 'cut', 'outlived', 'twice', '']
  console.log(`\n${formatTable(head, lines)}`)
  return failed === 0 ? 0 : 1
}

function cellsOf({ requests, counts, longestGapMs, twice }: Account): string[] {
  const { lost, cut, outlived } = counts
  return [String(requests), String(lost), formatMs(longestGapMs), ...[cut, outlived, twice.length].map(String)]
}

async function minutes(count: number, random: Random): Promise<number> {
  const { tallies, problems } = await runSchedule({ minutes: count, random, say: console.log, stop: stop.signal })
  console.log(`\n${formatTallies(tallies)}`)
  for (const problem of problems) console.log(`FAILS: ${problem}`)
  console.log(problems.length === 0 ? 'every invariant held' : `${problems.length} problems`)
  return problems.length === 0 ? 0 : 1
}

function formatTallies(tallies: readonly Tally[]): string {
  const head = ['fault', 'planned', 'times', 'requests', 'lost', 'longest gap', 'cut', 'outlived']
  const lines = tallies
    .toSorted((a, b) => Number(b.planned) - Number(a.planned))
    .map(({ name, planned, turns, requests, lost, longestGapMs, cut, outlived }) => [
      ...[name, planned ? 'yes' : 'no', String(turns), String(requests), String(lost)],
      ...[formatMs(longestGapMs), String(cut), String(outlived)],
    ])
  return formatTable(head, lines)
}
