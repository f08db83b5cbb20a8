/** Ending early: what a person broke off. */
import { setTimeout as wait } from 'node:timers/promises'

export class Stopped extends Error {
  override readonly name = 'Stopped'
}

const LOOK_MS = 50

/** As `work`, but rejects with {@link Stopped} as soon as `stop` is aborted; what becomes of `work` then is nobody's. */
export async function unlessStopped<T>(work: Promise<T>, stop: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const onAbort = () => reject(new Stopped())
  stop.addEventListener('abort', onAbort)
  if (stop.aborted) onAbort()
  work.catch(() => {})
  try {
    return await Promise.race([work, promise])
  } finally {
    stop.removeEventListener('abort', onAbort)
  }
}

/** Resolves when `holds`; rejects with {@link Stopped}. */
export async function until(holds: () => boolean, stop: AbortSignal): Promise<void> {
  while (!holds()) {
    if (stop.aborted) throw new Stopped()
    await wait(LOOK_MS)
  }
}
