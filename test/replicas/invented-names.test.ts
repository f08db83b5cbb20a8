// @module-tag slow
/** D9: names that strangers make up cost the directory, and a replica's memory, a bounded amount. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { always, call, DOMAIN, dial } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { until } from '../support/until.ts'
import { ReplicaGroup } from './fixture.ts'

describe.runIf(needs('redis'))('D9: made-up names', () => {
  let replicas: ReplicaGroup
  let near: Server
  let far: Server
  beforeAll(async () => {
    replicas = await ReplicaGroup.start()
  })
  afterAll(() => replicas.stop())
  afterEach(() => replicas.clear())

  async function start(): Promise<void> {
    near = await replicas.add({ trustedProxies: ['127.0.0.1'] })
    far = await replicas.add()
  }

  let made = 0
  /** Requests each of these names once; resolves to how often each status was returned. */
  async function invent(count: number, address: string): Promise<Record<number, number>> {
    const statuses: Record<number, number> = {}
    const ask = async () => {
      const host = `made-up-${made++}.${DOMAIN}`
      const { status } = await call(near, host, '/', { headers: { host, 'x-forwarded-for': address } })
      statuses[status] = (statuses[status] ?? 0) + 1
    }
    for (let i = 0; i < count; i += 50) await Promise.all(Array.from({ length: Math.min(50, count - i) }, ask))
    return statuses
  }

  test('a caller that asks for too many is refused and costs the directory nothing; others still find existing runtimes', async () => {
    await start()
    await dial(far, { runtime: 'real', handler: always('real') })
    const begunMs = performance.now()
    const statuses = await invent(1500, '192.0.2.1')
    const seconds = (performance.now() - begunMs) / 1000
    expect(Object.keys(statuses)).toEqual(['429', '503'])
    // The burst, the refill per second, and what was in progress.
    expect(statuses[503]).toBeLessThanOrEqual(200 + 20 * seconds + 50)
    // Plus the lease renewals meanwhile.
    expect(near.stats().directory.operations).toBeLessThan(statuses[503]! + 200 + 20 * seconds)
    const host = `real.${DOMAIN}`
    const found = await call(near, host, '/', { headers: { host, 'x-forwarded-for': '192.0.2.2' } })
    expect([found.status, found.text]).toEqual([200, 'real'])
    // It is known by now, so a caller that asked in vain may call it, too.
    expect((await call(near, host, '/', { headers: { host, 'x-forwarded-for': '192.0.2.1' } })).text).toBe('real')
  })

  test('those that an embedder calls count against the caller that it names, and otherwise against nobody', async () => {
    await start()
    await dial(far, { runtime: 'real', handler: always('real') })
    const fetched = async (options?: { caller: string }) => {
      const statuses = new Set<number>()
      const ask = async () => statuses.add((await near.fetch(`made-up-${made++}`, '/', options)).status)
      for (let i = 0; i < 10; i++) await Promise.all(Array.from({ length: 50 }, ask))
      return [...statuses]
    }
    expect(await fetched()).toEqual([503])
    expect((await near.fetch('real', '/')).status).toBe(200)
    expect(await fetched({ caller: '192.0.2.1' })).toEqual([503, 429])
  })

  test('the addresses of one IPv6 /64 count as one', async () => {
    await start()
    // Each address asks for fewer than it may. What is asked while the directory is offline does not count.
    let refused = 0
    for (let i = 0; i < 100 && refused === 0; i++) refused = (await invent(50, `2001:db8::${i}`))[429] ?? 0
    expect(refused).toBeGreaterThan(0)
    expect(await invent(50, '2001:db8:0:1::1')).toEqual({ 503: 50 })
  })

  test('names that are served are never too many', async () => {
    await start()
    const runtimes = Array.from({ length: 300 }, (_, i) => `served-${i}`)
    for (const runtime of runtimes) await dial(far, { runtime, handler: always(runtime) })
    const answers = await Promise.all(
      runtimes.map(runtime =>
        call(near, '', '/', { headers: { host: `${runtime}.${DOMAIN}`, 'x-forwarded-for': '192.0.2.1' } }),
      ),
    )
    expect(answers.every(({ status }) => status === 200)).toBe(true)
  })

  test('while Redis is offline no made-up name is kept, and there is room for what sessions announce', async () => {
    await start()
    replicas.redis.pause()
    await until(() => near.stats().directory.state !== 'connected')
    const { known } = near.stats().directory
    await invent(50, '192.0.2.1')
    expect(near.stats().directory.known).toBe(known)
    replicas.redis.resume()
    await until(() => [near, far].every(server => server.stats().directory.state === 'connected'))
    await dial(far, { runtime: 'real', handler: always('real') })
    await until(async () => (await call(near, `real.${DOMAIN}`)).text === 'real')
  })
})
