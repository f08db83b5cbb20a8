import { Session } from 'node:inspector/promises'
import { setTimeout as pause } from 'node:timers/promises'

export const MAX_PROFILE_S = 30
const SAMPLE_US = 1000

/** A CPU profile of this process for Chrome's DevTools (`.cpuprofile`): names of functions and of our files. */
export async function cpuProfile(seconds: number): Promise<object> {
  const session = new Session()
  session.connect()
  try {
    await session.post('Profiler.enable')
    await session.post('Profiler.setSamplingInterval', { interval: SAMPLE_US })
    await session.post('Profiler.start')
    await pause(seconds * 1000)
    return (await session.post('Profiler.stop')).profile
  } finally {
    session.disconnect()
  }
}
