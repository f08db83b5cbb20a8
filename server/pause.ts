import { setTimeout } from 'node:timers/promises'
import { heardFirst } from '../protocol/base/socket-turns.ts'

/** Waits for `done`, but at most for `ms`. If this process stood still, it still hears what came in that time. */
export async function within(ms: number, done: Promise<unknown>): Promise<void> {
  const late = new AbortController()
  const heard = () => new Promise<void>(heardFirst(resolve => resolve()))
  try {
    await Promise.race([done, pause(ms, late.signal).then(heard)])
  } finally {
    late.abort()
  }
}

export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {})
}
