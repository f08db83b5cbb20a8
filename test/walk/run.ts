/**
 * `npm run walk -- --seeds N --from S`: walks the seeds S, S+1, ... one after another and prints those that leave something behind;
 * `--show` prints what the seed plays. The exit code is 1 if one left something.
 */
import { parseArgs } from 'node:util'
import { makeWalk, tellLeft, walk } from './walk.ts'
import { World } from './world.ts'

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '100' },
    from: { type: 'string', default: '1' },
    show: { type: 'boolean', default: false },
    'rest-ms': { type: 'string' },
  },
})

process.exitCode = await main()

async function main(): Promise<number> {
  let world = await World.start()
  const from = Number(values.from)
  const until = from + Number(values.seeds)
  const restMs = values['rest-ms'] === undefined ? undefined : Number(values['rest-ms'])
  let failed = 0
  const begun = performance.now()
  for (let seed = from; seed < until; seed++) {
    const made = makeWalk(String(seed), world.far !== undefined)
    if (values.show) console.log(JSON.stringify(made, undefined, 1))
    const left = await walk(world, made, restMs)
    if (Object.keys(left).length === 0) continue
    failed++
    console.log(tellLeft(world, made, left))
    // What is left now would also be found after each of the next ones.
    await world.stop()
    world = await World.start()
  }
  const seconds = ((performance.now() - begun) / 1000).toFixed(0)
  console.log(`${until - from} seeds in ${seconds} s, ${failed} of them left something`)
  await world.stop()
  return failed === 0 ? 0 : 1
}
