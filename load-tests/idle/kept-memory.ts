/**
 * Loaded into a process before it: on SIGUSR2 it collects all garbage, and writes how many bytes are left, on V8's heap and in
 * buffers outside of it, to `kept-PID` in the folder that SALLYPORT_BENCH_KEPT names.
 */
import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

const file = join(process.env.SALLYPORT_BENCH_KEPT!, `kept-${process.pid}`)
setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
setFlagsFromString('--no-expose-gc')

process.on('SIGUSR2', async () => {
  // Buffers are given back in a turn behind the one that found them dead.
  for (let i = 0; i < 3; i++) {
    collect()
    await new Promise(setImmediate)
  }
  const { heapUsed, external } = process.memoryUsage()
  writeFileSync(`${file}.new`, String(heapUsed + external))
  renameSync(`${file}.new`, file)
})
