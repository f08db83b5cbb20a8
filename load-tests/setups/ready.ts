import { request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import type { Place } from '../lib/load.ts'

const READY_MS = 15_000

/** Resolves once the place answers 200, since not every program reports when it is ready. Throws if it does not within `ms`. */
export async function waitForAnswer({ url, headers }: Place, ms = READY_MS): Promise<void> {
  const end = performance.now() + ms
  for (;;) {
    const status = await new Promise<number>(resolve => {
      const call = request(url, { headers, agent: false, timeout: 2000 }, response => {
        response.resume()
        resolve(response.statusCode ?? 0)
      })
      call.on('timeout', () => call.destroy())
      call.on('error', () => resolve(0))
      call.end()
    })
    if (status === 200) return
    if (performance.now() > end) throw new Error(`${url} does not answer through this setup (last: ${status})`)
    await delay(50)
  }
}
