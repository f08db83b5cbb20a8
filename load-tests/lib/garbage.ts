/** What this process keeps once all garbage is collected. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

let collect: (() => void) | undefined

export async function collectGarbage(): Promise<void> {
  if (collect === undefined) {
    // V8 shows its collector to contexts that are made while the flag is set.
    setFlagsFromString('--expose-gc')
    collect = runInNewContext('gc') as () => void
    setFlagsFromString('--no-expose-gc')
  }
  // Buffers are given back in a turn behind the one that found them dead.
  for (let i = 0; i < 3; i++) {
    collect()
    await new Promise(resolve => setImmediate(resolve))
  }
}

/** Bytes on V8's heap and in buffers outside of it. */
export async function liveBytes(): Promise<number> {
  await collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
