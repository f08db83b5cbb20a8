import { request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'

const READY_MS = 15_000

/** Resolves when the road answers 200: not everything says when it is ready. */
export async function waitForAnswer(url: string, headers: Readonly<Record<string, string>>): Promise<void> {
  const end = performance.now() + READY_MS
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
    if (performance.now() > end) throw new Error(`${url} does not answer through this road (last: ${status})`)
    await delay(50)
  }
}
