/** One run of autocannon; the argument is a `Load` as JSON, the answer a `LoadResult` on stdout. */
import autocannon from 'autocannon'
import type { Load, LoadResult } from './generator.ts'

const load = JSON.parse(process.argv[2]!) as Load
const startedAt = performance.now()
const result = await autocannon({
  url: load.url,
  connections: load.connections,
  duration: load.durationMs / 1000,
  method: (load.method ?? 'GET') as 'GET',
  headers: load.headers ?? {},
  ...(load.body === undefined ? {} : { body: load.body }),
  ...(load.expectBody === undefined ? {} : { expectBody: load.expectBody }),
  ...(load.rate === undefined ? {} : { overallRate: load.rate }),
})
const usage = process.cpuUsage()
const durationMs = performance.now() - startedAt
const answer: LoadResult = {
  requests: result.requests.total,
  wrong: result.non2xx + result.errors + result.timeouts + result.mismatches,
  durationMs: result.duration * 1000,
  perSecond: result.requests.total / result.duration,
  p50: result.latency.p50,
  p99: result.latency.p99,
  max: result.latency.max,
  generatorCpu: (usage.user + usage.system) / 1000 / durationMs,
}
process.stdout.write(JSON.stringify(answer))
