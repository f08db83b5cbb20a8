/** `npm run bench`: the roads side by side, in one run. */
import { cpuMs } from './lib/cpu.ts'
import { autocannon, hasWrk, wrk } from './lib/generator.ts'
import { stopAll } from './lib/processes.ts'
import { SMALL_BODY, startUpstream } from './lib/upstream.ts'
import { nginxHop } from './roads/nginx.ts'
import type { Road } from './roads/road.ts'
import { tunnelRoad } from './roads/tunnel.ts'

const ROUNDS = Number(process.env.ROUNDS ?? 3)
const DURATION_MS = Number(process.env.SECONDS ?? 4) * 1000

interface Row {
  perSecond: number[]
  cpuUs: number[]
  p50: number[]
  p99: number[]
  wrong: number
}

const median = (values: number[]) => [...values].sort((a, b) => a - b)[values.length >> 1]!

const upstream = await startUpstream()
const roads: Road[] = []
process.once('SIGINT', () => {
  stopAll()
  process.exit(130)
})
try {
  roads.push(await nginxHop(upstream.port))
  roads.push(await tunnelRoad(upstream.port, { router: 'embedded' }))
  if (process.env.SERVICE) roads.push(await tunnelRoad(upstream.port, { router: 'service' }))
  const generator = hasWrk() && process.env.GENERATOR !== 'autocannon' ? wrk : autocannon
  for (const connections of (process.env.CONNECTIONS ?? '64,1').split(',').map(Number)) {
    const rows = new Map<string, Row>()
    for (let round = 0; round <= ROUNDS; round++)
      for (const road of roads) {
        const before = cpuMs(road.pids)
        const load = {
          url: `${road.url}/small`,
          connections,
          durationMs: round === 0 ? 1500 : DURATION_MS,
          headers: road.headers,
          expectBody: SMALL_BODY,
        }
        const result = await generator(load)
        const cpu = cpuMs(road.pids) - before
        if (round === 0) continue // warm-up
        const row = rows.get(road.name) ?? { perSecond: [], cpuUs: [], p50: [], p99: [], wrong: 0 }
        rows.set(road.name, row)
        row.perSecond.push(result.perSecond)
        row.cpuUs.push((cpu * 1000) / result.requests)
        row.p50.push(result.p50)
        row.p99.push(result.p99)
        row.wrong += result.wrong
      }
    const unit = rows.get(roads[0]!.name)!
    console.log(`\n${connections} connections`)
    console.table(
      Object.fromEntries(
        [...rows].map(([name, row]) => [
          name,
          {
            'req/s': Math.round(median(row.perSecond)),
            'of nginx': (median(row.perSecond) / median(unit.perSecond)).toFixed(2),
            'CPU us/req': median(row.cpuUs).toFixed(1),
            'x nginx': (median(row.cpuUs) / median(unit.cpuUs)).toFixed(2),
            'p50 ms': median(row.p50).toFixed(3),
            'p50 x': (median(row.p50) / median(unit.p50)).toFixed(2),
            'p99 ms': median(row.p99).toFixed(3),
            'p99 x': (median(row.p99) / median(unit.p99)).toFixed(2),
            wrong: row.wrong,
          },
        ]),
      ),
    )
  }
} finally {
  for (const road of roads) await road.stop()
  await upstream.stop()
}
