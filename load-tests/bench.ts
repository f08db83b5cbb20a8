/** `npm run bench`: runs the scenarios on all setups, side by side in one run. See README.md. */
import { spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { commit, describeMachine, programVersions } from './lib/environment.ts'
import { fixedWorkNote } from './lib/fixed-work.ts'
import { Generators, hasWrk } from './lib/generator.ts'
import type { Mode } from './lib/mode.ts'
import { stopAll } from './lib/processes.ts'
import { Progress } from './lib/progress.ts'
import { writeReport } from './lib/report.ts'
import { makeSecrets } from './lib/secrets.ts'
import { asText, countWrong, type Section } from './lib/section.ts'
import { assess } from './lib/targets.ts'
import { stopWorkers } from './lib/worker.ts'
import { GIB, MIB_4, MIB_100 } from './scenarios/bulk.ts'
import { SCENARIOS } from './scenarios/index.ts'
import type { Bench, Scenario } from './scenarios/scenario.ts'
import { Setups } from './setups/index.ts'
import { choosePeers, type PeerName } from './setups/peers/index.ts'
import { startUpstream } from './upstream/index.ts'

const OUT = fileURLToPath(new URL('out/', import.meta.url))

const HELP = `npm run bench -- --quick

  --quick            at most 3 minutes (the default)
  --full             at most 30 minutes
  --smoke            takes seconds, and only checks the answers
  --only NAME        this scenario alone; may repeat
  --list             the scenarios
  --peers LIST       other tunnels to compare with: auto (those on the PATH; default of --full), none (default of
                     --quick), or names with commas: frp, piko, chisel, rathole, ssh
  --generator NAME   autocannon (default) or wrk, for closed loops of GET requests
  --minutes N        how long the soak lasts
  --out DIR          where the report goes; default load-tests/out
  --profile          writes .cpuprofile files of our processes into the folder of the report
  --url URL          against a running server and client: the same as \`sallyport load-test URL\`, which has more flags
`

/** No scenario starts after `lastStartMs`, so that a slow machine also keeps to the time. */
const MODES = {
  smoke: { rounds: 1, roundMs: 300, minutes: 0.05, lastStartMs: Infinity },
  quick: { rounds: 3, roundMs: 500, minutes: 0.25, lastStartMs: 162_000 },
  full: { rounds: 3, roundMs: 1200, minutes: 0.75, lastStartMs: 1_720_000 },
} as const

interface Options {
  readonly mode: Mode
  readonly scenarios: readonly Scenario[]
  readonly peers: readonly PeerName[]
  readonly generator: 'autocannon' | 'wrk'
  readonly minutes: number | undefined
  readonly out: string
  readonly profile: boolean
}

async function main(): Promise<number> {
  const at = process.argv.indexOf('--url')
  if (at > 0) return loadTest(process.argv.slice(2).toSpliced(at - 2, 1))
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean' },
      full: { type: 'boolean' },
      smoke: { type: 'boolean' },
      only: { type: 'string', multiple: true },
      list: { type: 'boolean' },
      peers: { type: 'string' },
      generator: { type: 'string', default: 'autocannon' },
      minutes: { type: 'string' },
      out: { type: 'string', default: OUT },
      profile: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  })
  if (values.help) return print(HELP)
  if (values.list) return print(SCENARIOS.map(each => `${each.name.padEnd(12)} ${each.title}\n`).join(''))
  const mode = values.smoke ? 'smoke' : values.full ? 'full' : 'quick'
  const unknown = (values.only ?? []).find(name => !SCENARIOS.some(each => each.name === name))
  if (unknown !== undefined) return print(`no scenario is called ${unknown}; --list names them\n`, 2)
  const { generator } = values
  if (generator !== 'autocannon' && generator !== 'wrk') return print('--generator is autocannon or wrk\n', 2)
  if (generator === 'wrk' && !hasWrk()) return print('wrk is not installed (Debian: apt-get install wrk)\n', 2)
  const minutes = values.minutes === undefined ? undefined : Number(values.minutes)
  if (minutes !== undefined && !(minutes > 0)) return print('--minutes is a number above 0\n', 2)
  const chosen = SCENARIOS.filter(each => (values.only ? values.only.includes(each.name) : isIn(each, mode)))
  let peers: PeerName[]
  try {
    peers = choosePeers(values.peers ?? (mode === 'full' ? 'auto' : 'none'))
  } catch (error) {
    return print(`${(error as Error).message}\n`, 2)
  }
  const profile = values.profile === true || process.env.BENCH_PROFILE !== undefined
  return runBench({ mode, scenarios: chosen, peers, generator, minutes, out: values.out, profile })
}

/** `sallyport load-test`, with all of its flags. */
function loadTest(args: string[]): number {
  const command = fileURLToPath(new URL('../bin/sallyport.js', import.meta.url))
  return spawnSync(process.execPath, [command, 'load-test', ...args], { stdio: 'inherit' }).status ?? 1
}

const isIn = (scenario: Scenario, mode: Mode): boolean => scenario.modes?.includes(mode) ?? true

async function runBench(options: Options): Promise<number> {
  const { mode, out } = options
  const { rounds, roundMs, minutes, lastStartMs } = MODES[mode]
  const progress = new Progress()
  const environment = {
    ...describeMachine(),
    programs: programVersions(),
    commit: commit(),
    command: `npm run bench -- ${process.argv.slice(2).join(' ')}`,
  }
  const profileTo = options.profile ? (process.env.BENCH_PROFILE ?? `${out}/profiles`) : undefined
  if (profileTo !== undefined) mkdirSync(profileTo, { recursive: true })
  const secrets = await makeSecrets()
  const upstream = await startUpstream(mode === 'full' ? [MIB_4, MIB_100, GIB] : [MIB_4, MIB_100])
  const context = { upstreamPort: upstream.port, secrets, ...(profileTo === undefined ? {} : { profileTo }) }
  const setups = new Setups(context, options.peers, mode)
  const generators = new Generators(options.generator)
  const bench: Bench = {
    mode,
    rounds,
    roundMs,
    minutes: options.minutes ?? minutes,
    generators,
    upstreamPort: upstream.port,
    secrets,
    setups,
    progress: text => progress.say(text),
  }
  const sections: Section[] = []
  const skipped: string[] = []
  const failures: string[] = []
  try {
    for (const scenario of options.scenarios) {
      if (isInterrupted || progress.elapsedMs > lastStartMs) {
        skipped.push(`Not run, because ${isInterrupted ? 'of Ctrl-C' : 'the time was up'}: ${scenario.name}.`)
        continue
      }
      for (const each of await attempt(scenario, bench, failures)) {
        const section = { ...each, note: each.note + fixedWorkNote(each.measured) }
        sections.push(section)
        progress.clear()
        print(asText(section))
      }
    }
    skipped.push(...failures)
    for (const [name, why] of setups.failed) skipped.push(`${name} ${why}`)
  } finally {
    progress.clear()
    await generators.stop()
    await setups.stop()
    await upstream.stop()
    await secrets.remove()
  }
  if (sections.length === 0 && isInterrupted) return 130
  const title = 'Sallyport: load tests'
  print(
    `\n${Object.entries(environment)
      .map(([name, value]) => `${name}: ${value}\n`)
      .join('')}`,
  )
  for (const line of skipped) print(`${line}\n`)
  const targets = assess(sections)
  for (const { about, must, goal, measured, reached } of targets)
    print(`${about.padEnd(48)} ${measured.padStart(8)}   must ${must}, goal ${goal}: ${reached}\n`)
  print(`\n${writeReport(out, { title, environment, sections, skipped, targets })}\n`)
  const wrong = sections.reduce((sum, section) => sum + countWrong(section), 0)
  if (wrong > 0) print(`\x1b[31m${wrong} answers were wrong, short or missing\x1b[0m\n`)
  if (isInterrupted) return 130
  return wrong > 0 || failures.length > 0 ? 1 : 0
}

/** If a scenario fails, only that one ends, and the results of the others are kept. */
async function attempt(scenario: Scenario, bench: Bench, failures: string[]): Promise<Section[]> {
  try {
    return await scenario.run(bench)
  } catch (error) {
    failures.push(`${scenario.name} ${isInterrupted ? 'was ended by Ctrl-C' : `failed: ${(error as Error).message}`}`)
    return []
  }
}

function print(text: string, code = 0): number {
  process.stdout.write(text)
  return code
}

let isInterrupted = false

// What a scenario waits for ends with its processes, and then the run cleans up. A second Ctrl-C ends it at once.
process.once('SIGINT', () => {
  isInterrupted = true
  process.once('SIGINT', () => process.exit(130))
  stopWorkers()
  stopAll()
})
process.exitCode = await main().catch(error => {
  if (!isInterrupted) throw error
  return 130
})
