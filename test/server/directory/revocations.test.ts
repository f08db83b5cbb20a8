/** Revocations that several servers share, in a real Redis. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { noLogger } from '../../../protocol/log.ts'
import { RedisRevocations } from '../../../server/directory/redis-revocations.ts'
import type { Server } from '../../../server/server.ts'
import { needs } from '../../support/needs.ts'
import { Redis } from '../../support/redis.ts'
import { dial, openWebSocket, startServer, token } from '../fixture.ts'

describe.runIf(needs('redis'))('revocations in Redis', () => {
  let redis: Redis
  const servers: Server[] = []
  beforeAll(async () => {
    redis = await Redis.start({ user: { name: 'replica', password: 'secret' } })
  })
  afterAll(() => redis.stop())
  afterEach(async () => {
    await Promise.all(servers.splice(0).map(server => server.close({ graceMs: 0 })))
    await redis.kill()
    await redis.start()
  })

  async function start(): Promise<Server> {
    const server = await startServer({ directory: { url: redis.url, user: 'replica', password: 'secret' } })
    servers.push(server)
    return server
  }

  const refused = async (server: Server, id: string) =>
    expect(await openWebSocket(server, { token: await token('demo', { id }) }).catch(error => error.status)).toBe(401)

  /** Resolves once the server knows so many rules. */
  async function knows(server: Server, count: number): Promise<void> {
    while (server.revocations().length !== count) await new Promise(resolve => setTimeout(resolve, 20))
  }

  test('end sessions on all replicas, and hold on one that starts later', async () => {
    const [a, b] = [await start(), await start()]
    const client = await dial(b, { token: await token('demo', { id: 'stolen' }) })
    const other = await dial(b, { token: await token('other') })
    expect(await a.revoke({ tokenId: 'stolen' })).toEqual({ ended: 0, kept: true })
    expect((await client.closed).code).toBe(4401)
    expect(other.session.closed).toBe(false)
    await refused(a, 'stolen')
    await refused(b, 'stolen')
    const c = await start()
    await refused(c, 'stolen')
    expect(c.revocations()).toEqual(a.revocations())
  })

  test('are written back when Redis has lost them; one made meanwhile says so, holds here, and elsewhere after', async () => {
    const [a, b] = [await start(), await start()]
    await a.revoke({ tokenId: 'first' })
    await knows(b, 1)
    await redis.kill()
    await expect(a.revoke({ tokenId: 'second', until: Date.now() / 1000 + 600 })).rejects.toThrow()
    await refused(a, 'second')
    await redis.start()
    await knows(b, 2)
    await refused(b, 'second')
    const c = await start()
    await knows(c, 2)
  }, 30_000)

  test('whose time is over are removed', async () => {
    const address = { url: redis.url, user: 'replica', password: 'secret' }
    const one = new RedisRevocations({ redis: async () => address, prefix: 'sallyport', logger: noLogger })
    await one.open()
    await one.add({ tokenId: 'over', until: 1 })
    await one.add({ tokenId: 'for ever' })
    const two = new RedisRevocations({ redis: async () => address, prefix: 'sallyport', logger: noLogger })
    const seen: unknown[] = []
    two.onList = rules => seen.push(...rules)
    await two.open()
    expect(seen).toMatchObject([{ tokenId: 'for ever' }])
    one.close()
    two.close()
  })
})
