import { setTimeout } from 'node:timers/promises'

/** Waits for `done`, but at most for `ms`. */
export async function within(ms: number, done: Promise<unknown>): Promise<void> {
  const late = new AbortController()
  await Promise.race([done, pause(ms, late.signal)])
  late.abort()
}

export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {})
}
