/**
 * Preloaded into a server. Twice a second, it writes how late the event loop was, in ms, to the file that
 * BENCH_LOOP_DELAY names.
 */
import { writeFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'

const file = process.env.BENCH_LOOP_DELAY!
const histogram = monitorEventLoopDelay({ resolution: 5 })
histogram.enable()

setInterval(() => {
  // A timer is late by its own period. Only what exceeds that is delay.
  const ms = (ns: number) => Math.max(0, ns / 1e6 - 5)
  writeFileSync(file, JSON.stringify({ p99: ms(histogram.percentile(99)), max: ms(histogram.max) }))
}, 500).unref()
