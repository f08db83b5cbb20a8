/**
 * `npm run fuzz -- --seconds N --seed S [--only TARGET] [--executions N]`: replays the regression inputs, then drives
 * each target in turn. A find is shrunk, written to `regressions/` and printed as hex. The exit code is then 1.
 */
import { randomBytes } from 'node:crypto'
import { parseArgs } from 'node:util'
import { type Find, fuzz } from './fuzz.ts'
import { readRegressions, writeRegression } from './regressions.ts'
import { failure } from './shrink.ts'
import { TARGETS } from './targets/index.ts'

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: randomBytes(4).toString('hex') },
    only: { type: 'string' },
    executions: { type: 'string' },
  },
})

process.exitCode = await main()

async function main(): Promise<number> {
  const { seed, only } = values
  const targets = TARGETS.filter(target => only === undefined || target.name === only)
  if (targets.length === 0) {
    console.error(`no target ${only}; there are: ${TARGETS.map(target => target.name).join(', ')}`)
    return 2
  }
  console.log(`seed ${seed}`)
  let finds = await replay(targets.map(target => target.name))
  const ms = (Number(values.seconds) * 1000) / targets.length
  const executions = values.executions === undefined ? undefined : Number(values.executions)
  for (const target of targets) {
    const result = await fuzz(target, { seed, ms, executions })
    const { find } = result
    const perSecond = Math.round((result.executions * 1000) / result.ms)
    const grown = (result.grownBytes / 1024 / 1024).toFixed(1)
    console.log(
      `${target.name.padEnd(18)} ${String(result.executions).padStart(8)} executions, ${perSecond}/s, ${grown} MiB grown`,
    )
    if (find === undefined) continue
    finds++
    tell(find, find.input.length === 0 ? 'of no input alone' : writeRegression(find.target, find.input))
  }
  console.log(finds === 0 ? 'no finds' : `${finds} finds; again with: npm run fuzz -- --seed ${seed}`)
  return finds === 0 ? 0 : 1
}

/** How many of the inputs that once broke something break it again. */
async function replay(names: readonly string[]): Promise<number> {
  let finds = 0
  let count = 0
  for (const { file, target: name, input } of readRegressions()) {
    const target = TARGETS.find(one => one.name === name)
    if (target === undefined || !names.includes(name)) continue
    count++
    const error = await failure(target, input)
    await target.stop?.()
    if (error === undefined) continue
    finds++
    tell({ target: name, input, original: input, error }, file)
  }
  console.log(`${count} regression inputs replayed`)
  return finds
}

function tell(find: Find, file: string): void {
  console.error(`FIND in ${find.target}: ${find.error instanceof Error ? find.error.stack : String(find.error)}`)
  console.error(`input (${find.input.length} bytes, ${file}):\n${find.input.toString('hex')}`)
}
