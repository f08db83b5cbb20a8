/** Ends a run early, when a person interrupts it. */
import { setTimeout as wait } from 'node:timers/promises'

export class Stopped extends Error {
  override readonly name = 'Stopped'
}

const LOOK_MS = 50

/** Like `work`, but rejects with {@link Stopped} as soon as `stop` is aborted. The result of `work` is then ignored. */
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

/** Resolves once `holds` is true. Rejects with {@link Stopped}. */
export async function until(holds: () => boolean, stop: AbortSignal): Promise<void> {
  while (!holds()) {
    if (stop.aborted) throw new Stopped()
    await wait(LOOK_MS)
  }
}
