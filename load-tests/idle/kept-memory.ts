/**
 * Preloaded into a process. On SIGUSR2 it collects all garbage, and writes how many bytes remain, on V8's heap and in buffers
 * outside it, to `kept-PID` in the folder that BENCH_KEPT names.
 */
import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { liveBytes } from '../lib/garbage.ts'

const file = join(process.env.BENCH_KEPT!, `kept-${process.pid}`)

process.on('SIGUSR2', async () => {
  writeFileSync(`${file}.new`, String(await liveBytes()))
  renameSync(`${file}.new`, file)
})
