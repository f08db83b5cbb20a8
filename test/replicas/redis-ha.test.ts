// @module-tag slow
/**
 * D8: Redis as a cluster, with standbys, and behind Sentinels: found, found again after a failover, or refused with a
 * reason.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import type { Logger } from '../../protocol/base/log.ts'
import { movedTo } from '../../server/directory/redis-location.ts'
import type { Server } from '../../server/server.ts'
import { always, call, DOMAIN, dial, openWebSocket, startServer, token } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { freePort } from '../support/proxy-program.ts'
import { Redis } from '../support/redis.ts'
import { until } from '../support/until.ts'
import { LEASE_MS, peerOptions } from './fixture.ts'

const HOST = `demo.${DOMAIN}`

describe.runIf(needs('redis'))('D8: Redis with standbys', () => {
  const nodes: Redis[] = []
  const servers: Server[] = []
  afterEach(async () => {
    await Promise.all(servers.splice(0).map(server => server.close({ graceMs: 0 })))
    await Promise.all(nodes.splice(0).map(node => node.stop()))
  })

  async function node(...lines: string[]): Promise<Redis> {
    const made = await Redis.start({ lines })
    nodes.push(made)
    return made
  }

  async function start(url: string, logger?: Logger): Promise<Server> {
    const server = await startServer({
      replica: `r${servers.length + 1}`,
      directory: { url, leaseMs: LEASE_MS },
      peer: await peerOptions(),
      hold: {},
      ...(logger === undefined ? {} : { logger }),
    })
    servers.push(server)
    return server
  }

  const connected = () => until(() => servers.every(server => server.stats().directory.state === 'connected'))

  /** Two replicas see each other, each finds the other's sessions, and a revocation and a query reach both. */
  async function works(instance: string): Promise<void> {
    const [near, far] = [servers[0]!, servers[1]!]
    await connected()
    await until(() => servers.every(server => server.stats().peers!.connected === 1))
    await dial(far, { hello: { instance }, handler: always(instance) })
    await until(async () => (await call(near, HOST)).text === instance)
    await until(async () => (await near.askOthers('/who').catch(() => [])).length === 1)
    const id = `token of ${instance}`
    await until(async () =>
      near.revoke({ tokenId: id }).then(
        () => true,
        () => false,
      ),
    )
    await until(() => far.revocations().some(({ tokenId }) => tokenId === id))
    await expect(openWebSocket(far, { token: await token('demo', { id }) })).rejects.toMatchObject({ status: 401 })
  }

  function answering(): void {
    for (const server of servers) server.answerOthers(async what => (what === '/who' ? {} : undefined))
  }

  /** The first has all slots, the second is its standby, and the third has nothing. */
  async function cluster(): Promise<[Redis, Redis, Redis]> {
    const made: Redis[] = []
    for (let i = 0; i < 3; i++) {
      made.push(await node('cluster-enabled yes', `cluster-port ${await freePort()}`, 'cluster-node-timeout 2000'))
    }
    const [first, standby, other] = made as [Redis, Redis, Redis]
    await first.command('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
    const bus = String(
      ((await first.command('CONFIG', 'GET', 'cluster-port')) as Record<string, string>)['cluster-port'],
    )
    for (const one of [standby, other]) {
      await one.command('CLUSTER', 'MEET', '127.0.0.1', String(first.port), bus)
    }
    const id = String(await first.command('CLUSTER', 'MYID'))
    await until(async () => {
      const infos = await Promise.all(made.map(one => one.command('CLUSTER', 'INFO')))
      return infos.every(info => /cluster_state:ok.*cluster_known_nodes:3/s.test(String(info)))
    })
    await until(async () => (await standby.command('CLUSTER', 'REPLICATE', id).catch(() => 'no')) === 'OK')
    await until(async () => /master_link_status:up/.test(String(await standby.command('INFO', 'replication'))))
    return [first, standby, other]
  }

  test('a cluster: any node leads to the one that has the keys, before and after a failover', {
    tags: ['slow'],
  }, async () => {
    const [first, standby, other] = await cluster()
    await start(other.url)
    await start(`redis://127.0.0.1:1,127.0.0.1:${standby.port},127.0.0.1:${other.port}`)
    answering()
    await works('one')
    expect(await first.command('EXISTS', '{sallyport}:replicas')).toBe(1)
    // First handed over, then taken over from a dead node.
    expect(await standby.command('CLUSTER', 'FAILOVER')).toBe('OK')
    await until(async () => /role:master/.test(String(await standby.command('INFO', 'replication'))))
    await works('two')
    await until(async () => /master_link_status:up/.test(String(await first.command('INFO', 'replication'))))
    await standby.kill()
    await first.command('CLUSTER', 'FAILOVER', 'TAKEOVER')
    await works('three')
  })

  test("a cluster in which the replicas' key has another type: it is created anew", async () => {
    const alone = await node('cluster-enabled yes', `cluster-port ${await freePort()}`)
    await alone.command('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
    await until(async () => String(await alone.command('CLUSTER', 'INFO')).includes('cluster_state:ok'))
    await alone.command('SET', '{sallyport}:replicas', 'text')
    await start(alone.url)
    await connected()
    await alone.command('SET', '{sallyport}:replicas', 'text')
    await until(async () => (await alone.command('TYPE', '{sallyport}:replicas')) === 'hash')
    await connected()
  })

  test('Sentinels: the primary is found, and so is the next one after it dies', async () => {
    const primary = await node()
    const standby = await node(`replicaof 127.0.0.1 ${primary.port}`)
    await until(async () => /master_link_status:up/.test(String(await standby.command('INFO', 'replication'))))
    const sentinel = await Redis.start({
      sentinel: true,
      lines: [
        `sentinel monitor sally 127.0.0.1 ${primary.port} 1`,
        'sentinel down-after-milliseconds sally 1000',
        'sentinel failover-timeout sally 3000',
      ],
    })
    nodes.push(sentinel)
    await until(async () => String(await sentinel.command('INFO', 'sentinel')).includes('slaves=1'))
    const url = `redis+sentinel://127.0.0.1:1,127.0.0.1:${sentinel.port}/sally`
    await start(url)
    await start(url)
    answering()
    await works('one')
    await primary.kill()
    // Whoever promotes it cuts its connections.
    const role = () => standby.command('INFO', 'replication').catch(() => '')
    await until(async () => /role:master/.test(String(await role())))
    await works('two')
  })

  test('Sentinels: a primary that has been replaced, and refuses writes since its standbys are gone, is left by every connection', async () => {
    const [primary, next] = [await node(), await node()]
    const sentinel = await Redis.start({
      sentinel: true,
      lines: [`sentinel monitor sally 127.0.0.1 ${primary.port} 1`],
    })
    nodes.push(sentinel)
    const url = `redis+sentinel://127.0.0.1:${sentinel.port}/sally`
    await start(url)
    await start(url)
    answering()
    await works('one')
    // Sentinels that cannot reach it leave its connections alone.
    await primary.command('CONFIG', 'SET', 'min-replicas-to-write', '1')
    await sentinel.command('SENTINEL', 'REMOVE', 'sally')
    await sentinel.command('SENTINEL', 'MONITOR', 'sally', '127.0.0.1', String(next.port), '1')
    await works('two')
    expect(await next.command('HLEN', '{sallyport}:revocations')).toBe(2)
  })

  test.each([
    ['', 'default'],
    ['operator', 'operator'],
  ])('Sentinels with a password: accepted with it (user %j), and reported without it', async (user, name) => {
    const primary = await node()
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-sentinel-'))
    const file = join(folder, 'password')
    await writeFile(file, 'of the sentinels\n')
    const login = ['user default off', `user ${name} on ">of the sentinels" +@all`]
    const lines = [
      `sentinel monitor sally 127.0.0.1 ${primary.port} 1`,
      ...(name === 'default' ? login.slice(1) : login),
    ]
    const sentinel = await Redis.start({ sentinel: true, lines })
    nodes.push(sentinel)
    const url = `redis+sentinel://127.0.0.1:${sentinel.port}/sally`
    const said: string[] = []
    const note = (fields: object) => said.push(String((fields as { err?: Error }).err))
    const refused = await start(url, { debug() {}, info() {}, warn: note, error: note })
    expect(refused.stats().directory.state).toBe('lost')
    expect(said.join('\n')).toContain('no Sentinel knows sally: NOAUTH')
    const sentinelLogin = { user: user === '' ? undefined : user, password: { file } }
    const server = await startServer({ directory: { url, sentinel: sentinelLogin, leaseMs: LEASE_MS } })
    servers.push(server)
    await until(() => server.stats().directory.state === 'connected')
    await rm(folder, { recursive: true })
  })

  test('a password for Sentinels is refused if there are none', async () => {
    const directory = { url: 'redis://127.0.0.1', sentinel: { password: 'x' } }
    await expect(startServer({ directory })).rejects.toThrow('directory.sentinel needs redis+sentinel://')
  })

  test.each([
    ['MOVED 3999 127.0.0.1:6381', '127.0.0.1:6381'],
    ['ASK 3999 ::1:6381', '[::1]:6381'],
    ['MOVED 3999 2001:db8::7:6381', '[2001:db8::7]:6381'],
    ['MOVED 3999 redis-2.internal:6381', 'redis-2.internal:6381'],
    ['MOVED 3999 :6381', '[::5]:6381'],
    ['ERR something else 3999 a:6381', undefined],
  ])('%s leads to %s', (message, place) => {
    expect(movedTo(new Error(message), '[::5]:6379')).toBe(place)
  })

  test.each([
    ['a Sentinel that is taken for Redis', (url: string) => url, 'this is a Sentinel'],
    [
      'a name that it does not know',
      (url: string) => `${url.replace('redis:', 'redis+sentinel:')}/other`,
      'not monitored',
    ],
  ])('%s is reported', async (_name, change, words) => {
    const sentinel = await Redis.start({ sentinel: true })
    nodes.push(sentinel)
    const said: string[] = []
    const note = (fields: object) => said.push(String((fields as { err?: Error }).err))
    const server = await start(change(sentinel.url), { debug: note, info() {}, warn: note, error: note })
    expect(server.stats().directory.state).toBe('lost')
    expect(said.join('\n')).toContain(words)
  })

  test('a standby alone is reported; beside its primary it is skipped', {
    tags: ['slow'],
  }, async () => {
    const primary = await node()
    const standby = await node(`replicaof 127.0.0.1 ${primary.port}`)
    await until(async () => /master_link_status:up/.test(String(await standby.command('INFO', 'replication'))))
    await start(`redis://127.0.0.1:${standby.port},127.0.0.1:${primary.port}`)
    await start(primary.url)
    answering()
    await works('one')
  })

  test.each([
    'http://127.0.0.1',
    'redis://',
    'redis://a,',
    'redis://a b',
    'redis://a:1:2',
    'redis://a/x',
    'redis+sentinel://a:26379',
    'redis+sentinel://a/name/x',
  ])('%s is refused at the start', async url => {
    await expect(startServer({ directory: { url } })).rejects.toThrow('directory.url must')
  })
})
