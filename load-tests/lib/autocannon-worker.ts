/** One run of autocannon; the argument is a `Load` as JSON, the answer a `LoadResult` on stdout. */
import autocannon from 'autocannon'
import type { Load, LoadResult } from './generator.ts'
import { quantile } from './measure.ts'

const load = JSON.parse(process.argv[2]!) as Load
const startedAt = performance.now()
// autocannon's own histogram has whole milliseconds; a closed loop on loopback needs finer ones.
const times: number[] = []
const options: autocannon.Options = {
  url: load.url,
  connections: load.connections,
  duration: load.durationMs / 1000,
  method: (load.method ?? 'GET') as 'GET',
  headers: load.headers ?? {},
  ...(load.body === undefined ? {} : { body: load.body }),
  ...(load.expectBody === undefined ? {} : { expectBody: load.expectBody }),
  ...(load.rate === undefined ? {} : { overallRate: load.rate }),
}
const result = await new Promise<autocannon.Result>((resolve, reject) => {
  const run = autocannon(options, (error, result) => (error ? reject(error) : resolve(result)))
  run.on('response', (_client, _status, _bytes, ms) => times.push(ms))
})
const usage = process.cpuUsage()
const durationMs = performance.now() - startedAt
times.sort((a, b) => a - b)
// With a fixed rate autocannon corrects its own histogram for coordinated omission.
const fixed = load.rate !== undefined
const answer: LoadResult = {
  requests: result.requests.total,
  wrong: result.non2xx + result.errors + result.timeouts + result.mismatches,
  durationMs: result.duration * 1000,
  perSecond: result.requests.total / result.duration,
  p50: fixed ? result.latency.p50 : quantile(times, 0.5),
  p99: fixed ? result.latency.p99 : quantile(times, 0.99),
  max: fixed ? result.latency.max : (times.at(-1) ?? Number.NaN),
  generatorCpu: (usage.user + usage.system) / 1000 / durationMs,
}
process.stdout.write(JSON.stringify(answer))
