/** Makes a find smaller: removes halves, quarters and so on down to single bytes, as long as it still fails. */
import type { FuzzTarget } from './target.ts'

const MOST_TRIES = 2_000
/** If each failure waits for a deadline, finding a smaller input may take this long. */
const MOST_MS = 60_000

export async function shrink(target: FuzzTarget, input: Buffer): Promise<Buffer> {
  let best = input
  let tries = 0
  const end = performance.now() + MOST_MS
  const goesOn = () => tries < MOST_TRIES && performance.now() < end
  for (let size = Math.ceil(best.length / 2); size >= 1 && goesOn(); size = Math.floor(size / 2)) {
    for (let at = 0; at < best.length && goesOn(); tries++) {
      const smaller = Buffer.concat([best.subarray(0, at), best.subarray(at + size)])
      if ((await failure(target, smaller)) === undefined) at += size
      else best = smaller
    }
  }
  return best
}

/** The error that `execute` throws, or that is thrown in a later turn because of it. */
export async function failure(target: FuzzTarget, input: Buffer): Promise<unknown> {
  let thrown: unknown
  const onUncaught = (error: unknown) => {
    thrown ??= error ?? new Error('thrown: nothing')
  }
  process.on('uncaughtException', onUncaught)
  process.on('unhandledRejection', onUncaught)
  try {
    const running = target.execute(Buffer.from(input))
    if (running !== undefined) {
      await running
      await new Promise(resolve => setImmediate(resolve))
    }
  } catch (error) {
    thrown ??= error
  } finally {
    process.off('uncaughtException', onUncaught)
    process.off('unhandledRejection', onUncaught)
  }
  return thrown
}
