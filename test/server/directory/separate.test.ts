// @module-tag slow

/** Two services with the same names of runtimes and replicas, on one Redis. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { RedisOptions } from '../../../server/directory/redis-options.ts'
import type { Server } from '../../../server/server.ts'
import { unhurried } from '../../support/busy.ts'
import { needs } from '../../support/needs.ts'
import { DIRECTORY_RIGHTS, Redis } from '../../support/redis.ts'
import { eventually } from '../../support/until.ts'
import { always, call, dial, HOST, startServer, type TestClient } from '../fixture.ts'

const USER = { user: 'replica', password: 'secret' }
const CHANNELS = ['changes', 'operators', 'revocations']
const MORE = '~{sallyport:*'

describe.runIf(needs('redis'))('two services on one Redis', () => {
  let redis: Redis
  const servers: Server[] = []
  beforeAll(async () => {
    const user = (name: string, rights: string) => `user ${name} on ">${USER.password}" ${rights}`
    const others = CHANNELS.map(name => `&sallyport:${name}`).join(' ')
    const poor = DIRECTORY_RIGHTS.replace('&sallyport:*', others)
    redis = await Redis.start({ lines: [user(USER.user, `${DIRECTORY_RIGHTS} ${MORE}`), user('poor', poor)] })
  })
  afterAll(() => redis.stop())
  afterEach(async () => {
    await Promise.all(servers.splice(0).map(server => server.close({ graceMs: 0 })))
    await redis.command('FLUSHALL')
  })

  type Place = Pick<RedisOptions, 'prefix'> & { readonly database?: number }

  async function service(name: string, { database, ...place }: Place): Promise<[Server, Server]> {
    const url = `${redis.url}${database === undefined ? '' : `/${database}`}`
    const directory = { url, ...USER, ...place, leaseMs: unhurried(1000) }
    const start = async (replica: string) => {
      const server = await startServer({ replica, directory })
      server.answerOthers(async () => name)
      servers.push(server)
      return server
    }
    return [await start('r1'), await start('r2')]
  }

  test.each<[string, Place, Place, string[]]>([
    ['in two databases', {}, { database: 1 }, [...CHANNELS, ...CHANNELS.map(name => `${name}:1`)]],
    [
      'in databases of which none is the first',
      { database: 2 },
      { database: 12 },
      CHANNELS.flatMap(name => [`${name}:12`, `${name}:2`]),
    ],
    [
      'with prefixes of which one begins with the other',
      { prefix: 'sallyport' },
      { prefix: 'sallyport:x' },
      [...CHANNELS, ...CHANNELS.map(name => `x:${name}`)],
    ],
    [
      'in two databases, where a prefix ends with the number of the other',
      { prefix: 'sallyport:1' },
      { database: 1 },
      CHANNELS.flatMap(name => [`1:${name}`, `${name}:1`]),
    ],
  ])('%s hear nothing of each other', async (_, ours, theirs, channels) => {
    const [production, other] = await service('production', ours)
    const [staging, another] = await service('staging', theirs)
    await eventually(async () => {
      const listening = (await redis.command('PUBSUB', 'CHANNELS')) as string[]
      expect(listening.sort()).toEqual(channels.map(name => `sallyport:${name}`).sort())
      for (const channel of listening) expect(await redis.command('PUBSUB', 'NUMSUB', channel)).toEqual([channel, 2])
    })
    const one = await dial(production, { hello: { instance: 'production-1' }, handler: always('production') })
    const two = await dial(staging, { hello: { instance: 'staging-1' }, handler: always('staging') })
    const three = await dial(staging, { hello: { instance: 'staging-2' }, handler: always('staging') })
    const last = ({ messages }: TestClient) => messages.findLast(({ type }) => type === 'ready')
    await eventually(async () => {
      expect(last(one)).toMatchObject({ epoch: 1, active: true })
      expect(last(two)).toMatchObject({ active: false })
      expect(last(three)).toMatchObject({ epoch: 2, active: true })
    })
    for (const [server, text] of [[production, 'production'] as const, [staging, 'staging'] as const])
      expect(await call(server, HOST)).toMatchObject({ status: 200, text })
    expect(await production.askOthers('/sessions')).toEqual(['production'])
    expect(await another.askOthers('/sessions')).toEqual(['staging'])
    await staging.revoke({ tokenId: 'stolen' })
    await eventually(async () => expect(another.revocations()).toHaveLength(1))
    expect([production, other].flatMap(server => server.revocations())).toEqual([])
  })

  test('a user who may not use the channels of its database is told so', async () => {
    const directory = { url: `${redis.url}/1`, user: 'poor', password: USER.password }
    const started = startServer({ control: 'off', directory })
    await expect(started).rejects.toThrow(/PUBLISH sallyport:changes:1|NOPERM.*channel/)
  })
})
