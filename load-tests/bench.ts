/** `npm run bench`: scenarios over all roads, side by side in one run; see README.md. */
import { execFileSync } from 'node:child_process'
import { cpus, release, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { autocannon, hasWrk, wrk } from './lib/generator.ts'
import { stopAll } from './lib/processes.ts'
import { asText, type Section, writeReport } from './lib/report.ts'
import { startUpstream } from './lib/upstream.ts'
import { nginxHop } from './roads/nginx.ts'
import type { Road } from './roads/road.ts'
import { tunnelRoad } from './roads/tunnel.ts'
import { bulk } from './scenarios/bulk.ts'
import type { Bench, Scenario } from './scenarios/scenario.ts'
import { small } from './scenarios/small.ts'

const SCENARIOS: readonly Scenario[] = [small, bulk]
const OUT = fileURLToPath(new URL('out/', import.meta.url))

const HELP = `npm run bench -- --quick

  --quick            at most 3 minutes (the default)
  --full             at most 30 minutes
  --smoke            seconds: is every answer right?
  --only NAME        this scenario alone; may repeat
  --list             the scenarios
  --generator NAME   autocannon (default) or wrk
`

const MODES = {
  smoke: { rounds: 1, roundMs: 1000 },
  quick: { rounds: 3, roundMs: 3000 },
  full: { rounds: 5, roundMs: 8000 },
}

async function startRoads(upstreamPort: number): Promise<Road[]> {
  const roads: Road[] = []
  const makers = [
    () => nginxHop(upstreamPort),
    () => tunnelRoad(upstreamPort, { router: 'embedded' }),
    () => tunnelRoad(upstreamPort, { router: 'service' }),
  ]
  try {
    for (const make of makers) roads.push(await make())
  } catch (error) {
    for (const road of roads) await road.stop()
    throw error
  }
  return roads
}

function environment(commandLine: string): Record<string, string> {
  const output = (command: string, ...args: string[]) => {
    try {
      return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim()
    } catch {
      return 'unknown'
    }
  }
  return {
    machine: `${cpus().length} x ${cpus()[0]?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
    kernel: release(),
    node: process.version,
    commit: output('git', 'rev-parse', '--short', 'HEAD'),
    command: commandLine,
    date: new Date().toISOString(),
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean' },
      full: { type: 'boolean' },
      smoke: { type: 'boolean' },
      only: { type: 'string', multiple: true },
      list: { type: 'boolean' },
      generator: { type: 'string', default: 'autocannon' },
      help: { type: 'boolean' },
    },
  })
  if (values.help) return print(HELP)
  if (values.list) return print(SCENARIOS.map(each => `${each.name.padEnd(12)} ${each.title}\n`).join(''))
  const chosen = values.only === undefined ? SCENARIOS : SCENARIOS.filter(each => values.only!.includes(each.name))
  if (chosen.length === 0) return print(`no scenario is called ${values.only?.join(', ')}; --list names them\n`, 2)
  if (values.generator === 'wrk' && !hasWrk()) return print('wrk is not installed (Debian: apt-get install wrk)\n', 2)

  const mode = values.smoke ? 'smoke' : values.full ? 'full' : 'quick'
  const upstream = await startUpstream()
  let roads: Road[] = []
  const sections: Section[] = []
  try {
    roads = await startRoads(upstream.port)
    const bench: Bench = {
      mode,
      ...MODES[mode],
      generator: values.generator === 'wrk' ? wrk : autocannon,
      upstreamPort: upstream.port,
      roads,
      progress: text => process.stderr.write(`${text}\n`),
    }
    for (const scenario of chosen)
      for (const section of await scenario.run(bench)) {
        sections.push(section)
        print(asText(section))
      }
  } finally {
    for (const road of roads) await road.stop()
    await upstream.stop()
  }
  const line = `npm run bench -- ${process.argv.slice(2).join(' ')}`
  print(`\n${writeReport(OUT, { environment: environment(line), sections })}\n`)
  const wrong = sections.reduce((sum, section) => sum + section.wrong, 0)
  if (wrong > 0) return print(`\x1b[31m${wrong} answers were wrong, short or missing\x1b[0m\n`, 1)
  return 0
}

function print(text: string, code = 0): number {
  process.stdout.write(text)
  return code
}

process.once('SIGINT', () => {
  stopAll()
  process.exit(130)
})
process.exitCode = await main()
