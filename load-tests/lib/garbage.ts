/** How much memory this process keeps once all garbage is collected. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

let collect: (() => void) | undefined

export async function collectGarbage(): Promise<void> {
  if (collect === undefined) {
    // V8 exposes its collector to contexts that are created while the flag is set.
    setFlagsFromString('--expose-gc')
    collect = runInNewContext('gc') as () => void
    setFlagsFromString('--no-expose-gc')
  }
  // Buffers are freed in the turn after the one that found them dead.
  for (let i = 0; i < 3; i++) {
    collect()
    await new Promise(resolve => setImmediate(resolve))
  }
}

/** Bytes on V8's heap and in buffers outside it. */
export async function liveBytes(): Promise<number> {
  await collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
