/** Closed loop over HTTP/1.1, by autocannon through its API. */
import { readFileSync } from 'node:fs'
import autocannon from 'autocannon'
import type { Load, LoadResult } from '../lib/load.ts'
import { quantile } from '../lib/measure.ts'
import { serveTasks } from '../lib/worker.ts'

serveTasks<Load, LoadResult>(async load => {
  const name = (load.headers.host ?? new URL(load.url).host).replace(/:\d+$/, '')
  const options: autocannon.Options = {
    url: load.url,
    connections: load.connections,
    duration: load.durationMs / 1000,
    method: (load.method ?? 'GET') as 'GET',
    headers: load.headers,
    sampleInt: 100, // how often it checks the clock, in ms
    ...(load.body === undefined ? {} : { body: load.body }),
    ...(load.expectBody === undefined ? {} : { expectBody: load.expectBody }),
    ...(load.bailout === undefined ? {} : { bailout: 1000 }),
    ...(load.ca === undefined ? {} : { tlsOptions: { ca: readFileSync(load.ca), servername: name } }),
    ...(load.url.startsWith('https:') ? { servername: name } : {}),
  }
  // autocannon's own histogram has whole milliseconds, but a closed loop on loopback needs finer ones.
  const times: number[] = []
  const result = await new Promise<autocannon.Result>((resolve, reject) => {
    const run = autocannon(options, (error, result) => (error ? reject(error) : resolve(result)))
    run.on('response', (_client, _status, _bytes, ms) => times.push(ms))
  })
  times.sort((a, b) => a - b)
  // An error page has both a wrong status and a wrong body.
  const misread = Math.max(result.non2xx, result.mismatches)
  const wrong = misread + result.errors + result.timeouts
  return {
    requests: result.requests.total,
    wrong,
    answers: {
      '2xx': result['2xx'],
      other: result.non2xx,
      broken: result.errors + result.timeouts,
      'wrong body': result.mismatches,
    },
    durationMs: result.duration * 1000,
    perSecond: result.requests.total / result.duration,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    max: times.at(-1) ?? Number.NaN,
  }
})
