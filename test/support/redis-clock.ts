/**
 * A real Redis whose clock a test sets. For `vi.mock` of `server/directory/scripts.ts`: what the scripts are told of the
 * time is off by the seconds that stand at a key.
 */
import { createHash } from 'node:crypto'
import type { Script } from '../../server/directory/scripts.ts'
import type { Redis } from './redis.ts'

const KEY = '{sallyport}:skew'
const TIME = "local time = redis.call('TIME')"

export function skewed(scripts: Record<string, Script>): Record<string, Script> {
  return Object.fromEntries(
    Object.entries(scripts).map(([name, { text, sha }]) => {
      if (!text.includes("redis.call('TIME')")) return [name, { text, sha }]
      const other = text.replace(TIME, `${TIME}\ntime[1] = time[1] + (redis.call('GET', '${KEY}') or 0)`)
      if (other === text) throw new Error(`${name} asks for the time in another way`)
      return [name, { text: other, sha: createHash('sha1').update(other).digest('hex') }]
    }),
  )
}

/** From now on Redis's clock shows so much more than it should. */
export async function setClock(redis: Redis, seconds: number): Promise<void> {
  await redis.command('SET', KEY, String(seconds))
}
