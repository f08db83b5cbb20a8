// @module-tag slow
/** Runtimes' own hosts over several servers: all agree on who has one, even while Redis or a server is offline. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { always, call, dial, event, type TestClient, token } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { until } from '../support/until.ts'
import { LEASE_MS, ReplicaGroup } from './fixture.ts'

const HOST = 'hooks.customer.example'

describe.runIf(needs('redis'))('a host of its own, over replicas', () => {
  let replicas: ReplicaGroup
  let near: Server
  let far: Server
  beforeAll(async () => {
    replicas = await ReplicaGroup.start()
  })
  afterAll(() => replicas.stop())
  afterEach(() => replicas.clear())

  async function start(forgetMs = 60_000, leaseMs = LEASE_MS): Promise<void> {
    const directory = { url: replicas.redis.url, leaseMs }
    const options = { ownHosts: true, trustedProxies: ['127.0.0.1'], hold: { holdMs: 0, forgetMs }, directory }
    near = await replicas.add(options)
    far = await replicas.add(options)
  }

  async function join(server: Server, runtime: string, hosts: string[] = [HOST]): Promise<TestClient> {
    const bearer = await token(runtime, { hosts })
    return dial(server, { token: bearer, handler: always(runtime), hello: { instance: runtime } })
  }

  async function whose(server: Server, host = HOST, address = '192.0.2.1'): Promise<string> {
    const { status, text, headers } = await call(server, host, '/', { headers: { 'x-forwarded-for': address } })
    return status === 200 ? text : String(headers['sallyport-error'])
  }

  const held = (server: Server) => server.stats().hosts!.held

  test('leads to its runtime from a replica that has no session of it', async () => {
    await start()
    await join(far, 'a')
    await until(() => held(far) === 1)
    expect([await whose(near), await whose(far), await whose(near, 'other.example')]).toEqual([
      'a',
      'a',
      'unknown-host',
    ])
  })

  test('leads to an offline runtime, even from a replica that has heard of neither', async () => {
    await start(0)
    const client = await join(far, 'a')
    await until(() => held(far) === 1)
    client.ws.terminate()
    await until(() => held(far) === 0)
    const runtimes: Array<string | undefined> = []
    const third = await replicas.add({
      ...{ ownHosts: true, hold: { holdMs: 0 } },
      onExchange: ({ runtime }) => runtimes.push(runtime),
    })
    expect(await whose(third)).toBe('runtime-offline')
    await until(() => runtimes.length > 0)
    expect(runtimes).toEqual(['a'])
  })

  test('stays with the first runtime, wherever the second connects, and goes to the second when the first has gone', async () => {
    await start(0)
    const first = await join(far, 'a')
    await until(() => held(far) === 1)
    const second = await join(near, 'b')
    expect(await second.message('notice')).toMatchObject({ code: 'host-taken' })
    expect([await whose(near), await whose(far)]).toEqual(['a', 'a'])
    first.ws.terminate()
    expect(await second.message('notice')).toMatchObject({ code: 'host-served' })
    await until(async () => (await whose(far)) === 'b')
    expect(await whose(near)).toBe('b')
  })

  test("goes to the second runtime when the first one's server has gone", async () => {
    await start()
    await join(far, 'a')
    await until(() => held(far) === 1)
    const second = await join(near, 'b')
    await second.message('notice')
    await far.close({ graceMs: 0 })
    expect(await second.message('notice')).toMatchObject({ code: 'host-served' })
    expect(await whose(near)).toBe('b')
  })

  test('is kept for a runtime whose sessions move to another server', async () => {
    await start()
    const old = await join(far, 'a')
    await until(() => held(far) === 1)
    const other = await join(near, 'b')
    await other.message('notice')
    await join(near, 'a')
    const ended = event(far, 'sessionEnded')
    old.ws.terminate()
    await ended
    expect([await whose(near), await whose(far)]).toEqual(['a', 'a'])
    expect(near.stats().hosts).toEqual({ held: 1, contested: 1, conflicts: 1 })
  })

  test('is free on all servers once a fresh token no longer claims it', async () => {
    await start()
    const client = await join(far, 'a')
    await until(() => held(far) === 1)
    expect(await whose(near)).toBe('a')
    client.session.control({ type: 'reauth', token: await token('a') })
    await client.message('reauth-ok')
    await until(async () => (await whose(near)) === 'unknown-host')
    expect(await whose(far)).toBe('unknown-host')
    await join(near, 'b')
    await until(async () => (await whose(far)) === 'b')
  })

  test('moves to and fro as fresh tokens say, without waiting for a lease', async () => {
    await start(60_000, 600_000)
    const renew = async (client: TestClient, runtime: string, hosts: string[] = []) => {
      client.session.control({ type: 'reauth', token: await token(runtime, { hosts }) })
      await client.message('reauth-ok')
    }
    const a = await join(far, 'a')
    await until(() => held(far) === 1)
    const b = await join(near, 'b')
    await b.message('notice')
    await renew(a, 'a')
    await until(async () => (await whose(far)) === 'b')
    await renew(a, 'a', [HOST])
    await a.message('notice')
    await renew(b, 'b')
    await until(async () => (await whose(near)) === 'a')
  })

  test('that is taken away while Redis is offline stays taken away', async () => {
    await start()
    const client = await join(far, 'a')
    await until(() => held(far) === 1)
    expect(await whose(near)).toBe('a')
    await replicas.redis.kill()
    await until(() => far.stats().directory.failures > 0)
    client.session.control({ type: 'reauth', token: await token('a') })
    await client.message('reauth-ok')
    await until(async () => (await whose(far)) !== 'a')
    expect(await whose(far, 'a.tunnels.example.com')).toBe('a')
    await replicas.redis.start()
  })

  test('is written back to an emptied Redis and still belongs to the first runtime', async () => {
    await start()
    await join(far, 'a')
    await until(() => held(far) === 1)
    const second = await join(near, 'b')
    await second.message('notice')
    await replicas.redis.command('FLUSHALL')
    await until(async () => Number(await replicas.redis.command('EXISTS', `{sallyport}:runtime:${HOST}`)) === 1)
    expect([await whose(near), await whose(far)]).toEqual(['a', 'a'])
  })

  test('goes to a runtime that lost the race for it, even if Redis was emptied in between', async () => {
    await start(0)
    const before = [near, far].map(server => server.stats().directory.operations)
    replicas.redis.pause()
    const joining = [join(near, 'a'), join(far, 'b')]
    // Both runtimes are announced, and both ask who has the host: nobody, but they will hear.
    await until(() => [near, far].every((server, i) => server.stats().directory.operations >= before[i]! + 2))
    replicas.redis.resume()
    const clients = await Promise.all(joining)
    await until(() => held(near) + held(far) === 1 && [near, far].some(server => server.stats().hosts!.contested === 1))
    await replicas.redis.command('FLUSHALL')
    await until(async () => Number(await replicas.redis.command('EXISTS', `{sallyport}:runtime:${HOST}`)) === 1)
    const [winner, loser] = held(near) === 1 ? ['a', 'b'] : ['b', 'a']
    await until(async () => (await whose(near)) === winner)
    clients[winner === 'a' ? 0 : 1]!.ws.terminate()
    await until(async () => (await whose(near)) === loser && (await whose(far)) === loser)
  })

  test('is served where sessions claim it, from all replicas', async () => {
    await start()
    const third = await replicas.add({
      ...{ ownHosts: true, hold: { holdMs: 0 }, directory: { url: replicas.redis.url, leaseMs: LEASE_MS } },
    })
    const answers = async (server: Server, name: string, hosts: string[]) =>
      dial(server, { token: await token('a', { hosts }), handler: always(name), hello: { instance: 'one' } })
    await answers(far, 'with', [HOST])
    await answers(near, 'without', [])
    await until(async () => (await whose(third)) === 'with' && (await whose(near)) === 'with')
    for (let i = 0; i < 10; i++)
      expect([await whose(near), await whose(far), await whose(third)]).toEqual(Array(3).fill('with'))
    expect(await whose(near, 'a.tunnels.example.com')).toBe('without')
  })

  test.each(['hop', 'here'])(
    'D3: anyone who writes to Redis can lead it only to a runtime whose token names it: %s',
    async to => {
      await start()
      const asked: Array<string | undefined> = []
      const third = await replicas.add({
        ...{ ownHosts: true, hold: { holdMs: 0 }, directory: { url: replicas.redis.url, leaseMs: LEASE_MS } },
        onExchange: ({ host, runtime }) => {
          if (host === HOST) asked.push(runtime)
        },
      })
      await join(to === 'hop' ? far : third, 'evil', ['evil.example'])
      await until(async () => (await whose(third, 'evil.example')) === 'evil')
      const key = (name: string) => `{sallyport}:runtime:${name}`
      // As if evil had claimed it. Its own replica corrects that once it hears of it.
      const forge = () => replicas.redis.command('COPY', key('evil.example'), key(HOST), 'REPLACE')
      const said = new Set<string>()
      await until(async () => {
        await forge()
        said.add(await whose(third))
        return asked.includes('evil')
      })
      expect([...said].filter(one => one !== 'runtime-offline' && one !== 'unknown-host')).toEqual([])
      expect(await whose(third, 'evil.example')).toBe('evil')
    },
  )

  test('D9: hosts that nobody has cost the directory a bounded amount, and nobody else anything', async () => {
    await start()
    await join(far, 'a')
    await until(() => held(far) === 1)
    const before = near.stats().directory.operations
    const begunMs = performance.now()
    const said = new Map<string, number>()
    for (let i = 0; i < 1000; i += 50) {
      const some = Array.from({ length: 50 }, (_, j) => whose(near, `made-up-${i + j}.example`, '192.0.2.9'))
      for (const one of await Promise.all(some)) said.set(one, (said.get(one) ?? 0) + 1)
    }
    expect([...said.keys()].sort()).toEqual(['too-many-requests', 'unknown-host'])
    const seconds = (performance.now() - begunMs) / 1000
    expect(said.get('unknown-host')).toBeLessThanOrEqual(200 + 20 * seconds + 50)
    expect(near.stats().directory.operations - before).toBeLessThan(said.get('unknown-host')! + 200 + 20 * seconds)
    expect(await whose(near)).toBe('a')
  })
})
