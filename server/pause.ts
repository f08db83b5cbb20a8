import { setTimeout } from 'node:timers/promises'

/** Waits for `done`, which may have begun with a longer grace, for `ms` at most. */
export async function within(ms: number, done: Promise<unknown>): Promise<void> {
  const late = new AbortController()
  await Promise.race([done, pause(ms, late.signal)])
  late.abort()
}

export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {})
}
