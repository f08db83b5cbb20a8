// @module-tag slow
/** D6: clocks step, Redis's and the replicas', in each state of the lease; nothing stops for longer than one lease. */
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import type { Script } from '../../server/directory/scripts.ts'
import type { Server } from '../../server/server.ts'
import { always, call, DOMAIN, dial } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { setClock, skewed } from '../support/redis-clock.ts'
import { until } from '../support/until.ts'
import { ReplicaGroup } from './fixture.ts'

vi.mock('../../server/directory/scripts.ts', async original => skewed(await original<Record<string, Script>>()))

const HOST = `demo.${DOMAIN}`
const DAY_S = 86_400

describe.runIf(needs('redis'))('D6: a clock steps', () => {
  let replicas: ReplicaGroup
  let near: Server
  let far: Server
  beforeAll(async () => {
    replicas = await ReplicaGroup.start()
  })
  afterAll(() => replicas.stop())
  afterEach(async () => {
    vi.restoreAllMocks()
    replicas.redis.resume()
    await replicas.closeServers()
    await replicas.redis.command('FLUSHALL')
  })

  /** The directory is young: by Redis's clock, it is created now. */
  async function begin(): Promise<void> {
    await replicas.redis.command('FLUSHALL')
    near = await replicas.add()
    far = await replicas.add()
  }

  async function start(): Promise<void> {
    await begin()
    await until(() => [near, far].every(server => server.stats().directory.state === 'connected'))
    await dial(far, { hello: { instance: 'one' }, handler: always('one') })
  }

  /** Both replicas have renewed their leases several times from now on. */
  async function renewed(): Promise<void> {
    const before = [near, far].map(server => server.stats().directory.operations)
    await until(() => [near, far].every((server, i) => server.stats().directory.operations > before[i]! + 5))
  }

  /** Both are connected and serve, a newer instance takes over, and a dead one is noticed. */
  async function lives(): Promise<void> {
    await renewed()
    for (const server of [near, far]) {
      await until(() => {
        const { state, replicas: count } = server.stats().directory
        return state === 'connected' && count === 2
      })
      await until(async () => (await call(server, HOST)).text === 'one')
    }
    const two = await dial(near, { hello: { instance: 'two' }, handler: always('two') })
    await until(async () => (await call(far, HOST)).text === 'two')
    two.session.close('the test')
    await until(async () => (await call(far, HOST)).text === 'one')
  }

  const steps: [string, number][] = [
    ['a second back', -1],
    ['an hour back', -3600],
    ['an hour on', 3600],
    ['ten days on', 10 * DAY_S],
    ['to 1970', -Math.floor(Date.now() / 1000)],
  ]
  const hours = steps.slice(1, 3)

  test.each(steps)(
    "Redis's, %s: no lease ends, and no epoch is granted because of it",
    { tags: ['slow'] },
    async (_name, seconds) => {
      await start()
      await renewed()
      const lost: string[] = []
      const sampling = setInterval(() => {
        for (const server of [near, far]) {
          const { state, replicas: count } = server.stats().directory
          if (state !== 'connected' || count !== 2) lost.push(`${state} ${count}`)
        }
      }, 5)
      await setClock(replicas.redis, seconds)
      await renewed()
      clearInterval(sampling)
      expect(lost).toEqual([])
      expect(far.sessions()[0]).toMatchObject({ epoch: 1, active: true })
      await lives()
      await setClock(replicas.redis, 0)
      await renewed()
      expect((await call(near, HOST)).text).toBe('one')
    },
  )

  test.each(hours)("Redis's, %s, while the directory is young", async (_name, seconds) => {
    await replicas.redis.command('FLUSHALL')
    await start()
    await setClock(replicas.redis, seconds)
    await until(() => [near, far].every(server => server.stats().directory.state === 'connected'))
    await until(async () => (await call(near, HOST)).text === 'one')
    await lives()
  })

  test.each(hours)("Redis's, %s, while the replicas cannot reach it", { tags: ['slow'] }, async (_name, seconds) => {
    await start()
    await call(near, HOST)
    await setClock(replicas.redis, seconds)
    replicas.redis.pause()
    await until(() => [near, far].every(server => server.stats().directory.state === 'presumed'))
    expect((await call(near, HOST)).text).toBe('one')
    replicas.redis.resume()
    await until(() => [near, far].every(server => server.stats().directory.state === 'connected'))
    await lives()
  })

  test.each(hours)("Redis's, %s, when it is also emptied: what it says from then on counts", async (_name, seconds) => {
    await start()
    await dial(near, { hello: { instance: 'one' }, handler: always('one') })
    await call(near, HOST)
    await replicas.redis.command('FLUSHALL')
    await setClock(replicas.redis, seconds)
    await until(() => [near, far].every(server => server.stats().directory.state === 'connected'))
    await lives()
    for (const session of far.sessions()) far.closeSession(session.id)
    await until(async () => (await call(far, HOST)).text === 'one')
  })

  test.each(hours)('that of the replicas, %s', { tags: ['slow'] }, async (_name, seconds) => {
    await start()
    const now = Date.now
    vi.spyOn(Date, 'now').mockImplementation(() => now() + seconds * 1000)
    await renewed()
    for (const server of [near, far]) {
      expect(server.stats().directory).toMatchObject({ state: 'connected', replicas: 2 })
    }
    vi.restoreAllMocks()
    await lives()
  })

  test.each(hours)(
    'the loss of a replica is noticed after a lease, though the clock stepped %s',
    async (_name, seconds) => {
      await start()
      const dead = `${Date.now() + 3_600_000}0000`
      await replicas.redis.command('HSET', '{sallyport}:replicas', 'dead~1', `${dead} 127.0.0.1:9`)
      await setClock(replicas.redis, seconds)
      await renewed()
      await until(() => near.stats().directory.replicas === 2)
      await lives()
    },
  )
})
