// @module-tag slow
/**
 * What is stored in Redis may be written by anyone with access, or torn: each field of each record is missing, of
 * another type, negative, huge, not text, or an address where nobody can be. No replica stops because of it, and lost
 * records are written again.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { always, call, DOMAIN, dial, startServer } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { until } from '../support/until.ts'
import { peerOptions, ReplicaGroup } from './fixture.ts'

const HOST = `demo.${DOMAIN}`
const REPLICAS = '{sallyport}:replicas'
const RUNTIME = '{sallyport}:runtime:demo'
const LATER = String(Date.now() + 1000)

const NUMBERS = ['', 'garbage', '-1', '1e9', '9007199254740993', '9'.repeat(400), '\\255\\254']
const ADDRESSES = [
  '',
  '127.0.0.1',
  '127.0.0.1:',
  '127.0.0.1:0',
  '127.0.0.1:99999',
  '127.0.0.1:-1',
  '127.0.0.1:1e3',
  ':8444',
  '::1:8444:',
  '[::1',
  '[not an address]:8444',
  'unix:/tmp/socket',
  'http://127.0.0.1:8444',
  'two words:8444',
  'na\\000me:8444',
  '\\255\\254:8444',
  `${'a'.repeat(300)}:8444`,
  `${'a'.repeat(30_000)}:8444`,
]

type Case = readonly [name: string, lua: string]

/** What is done to Redis, as Lua. */
const set = (key: string, field: string, value: string) => `redis.call('HSET', '${key}', '${field}', '${value}')`
const unset = (key: string, field: string) => `redis.call('HDEL', '${key}', '${field}')`
const of = (key: string, field: string): Case[] => [
  [`no ${field}`, unset(key, field)],
  ...NUMBERS.map((value): Case => [`${field} is "${value.slice(0, 20)}"`, set(key, field, value)]),
]
const kinds = (key: string): Case[] => [
  [`${key} is a text`, `redis.call('SET', '${key}', 'text')`],
  [`${key} is a list`, `redis.call('DEL', '${key}') redis.call('RPUSH', '${key}', 'a', 'b')`],
]
const said = (text: string) => `redis.call('PUBLISH', 'sallyport:changes', '${text}')`

const inAll = (values: readonly string[], write: (value: string, index: number) => string) =>
  values.map(write).join(' ')

const OF_REPLICAS: Case[] = [
  ['addresses', inAll(ADDRESSES, (address, i) => set(REPLICAS, `odd~${i}`, `${LATER} ${address}`))],
  ['leases', inAll(NUMBERS, (value, i) => set(REPLICAS, `odd~${i}`, `${value} 127.0.0.1:9`))],
  ['names', inAll(['', 'n'.repeat(30_000), '\\255\\254'], name => set(REPLICAS, name, `${LATER} 127.0.0.1:9`))],
  ...['@born', '@clock', '@wall', '@else'].flatMap(field => of(REPLICAS, field)),
  ...kinds(REPLICAS),
]

/** Instances of the latest epoch, with sessions at all replicas. */
const STRANGE = `local at = '900' for _, name in ipairs(redis.call('HKEYS', '${REPLICAS}')) do at = at .. ' ' .. name end
  ${inAll(['', '@x', 'two words', 'n'.repeat(600), '\\255\\254'], name => `redis.call('HSET', '${RUNTIME}', '${name}', at)`)}`

const OF_RUNTIME: Case[] = [
  ['names of instances', STRANGE],
  ...['@epoch', '@active', '@lost', '@version', 'one', 'other'].flatMap(field => of(RUNTIME, field)),
  ...kinds(RUNTIME),
  ...['', '[]', '{}', 'null', '[1]', '["demo"]', '["demo","9007199254740991","x","1","0"]', '\\255'].map(
    (text): Case => [`on the channel: ${text}`, said(text)],
  ),
]

describe.runIf(needs('redis'))("P1: records from the directory are checked as strictly as strangers' input", () => {
  let replicas: ReplicaGroup
  let servers: Server[]
  beforeAll(async () => {
    replicas = await ReplicaGroup.start()
    servers = [await replicas.add(), await replicas.add()]
    await dial(servers[1]!, { hello: { instance: 'one' }, handler: always('one') })
  })
  afterAll(() => replicas.stop())

  test.each(OF_REPLICAS)(
    'of the replicas: %s',
    async (_name, lua) => {
      await replicas.redis.command('EVAL', lua, '0')
      const operations = servers.map(server => server.stats().directory.operations)
      // Each has read it, with its next renewals.
      await until(() => servers.every((server, i) => server.stats().directory.operations > operations[i]! + 2))
      await serve()
    },
    20_000,
  )

  test.each(OF_RUNTIME)(
    'of a runtime: %s',
    async (_name, lua) => {
      await replicas.redis.command('EVAL', lua, '0')
      await serve()
    },
    20_000,
  )

  /** A new session makes each replica rewrite the record, which restores it. */
  async function serve(): Promise<void> {
    const two = await dial(servers[0]!, { hello: { instance: 'two' }, handler: always('two') })
    two.session.close('the test')
    await until(async () => {
      const states = servers.map(server => server.stats().directory.state)
      const answers = await Promise.all(servers.map(server => call(server, HOST).catch(() => undefined)))
      return states.every(state => state === 'connected') && answers.every(answer => answer?.text === 'one')
    })
  }
})

describe.runIf(needs('redis'))('a replica that nobody can reach', () => {
  test.each([
    '127.0.0.1:99999',
    '127.0.0.1:0',
    '127.0.0.1',
    'unix:/tmp/x',
    'two words:1',
    '0.0.0.0:1',
    '[::]:1',
    '[0:0::]:1',
  ])('is refused at its start: advertise %s', async advertise => {
    const directory = { url: 'redis://127.0.0.1:1' }
    const start = startServer({ directory, peer: { ...(await peerOptions()), advertise } })
    await expect(start).rejects.toThrow('peer.advertise must be host:port')
  })

  test('vouches for nothing while Redis is offline, so the others presume nothing', async () => {
    const replicas = await ReplicaGroup.start()
    const server = await replicas.add()
    await replicas.redis.command('HSET', REPLICAS, 'odd~1', `${Date.now() + 600_000} unix:/tmp/x`)
    const { operations } = server.stats().directory
    await until(() => server.stats().directory.operations > operations + 2)
    expect(server.stats().directory.state).toBe('connected')
    replicas.redis.pause()
    await until(() => server.stats().directory.state === 'lost')
    replicas.redis.resume()
    await replicas.stop()
  })
})
