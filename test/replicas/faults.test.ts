// @module-tag slow
/**
 * What callers lose when Redis, the path to it, or the path between replicas fails. Two replicas, an instance with
 * sessions at one or both of them, and callers at both all the time.
 */
import { afterEach, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { always, call, DOMAIN, dial } from '../server/fixture.ts'
import { long, needs } from '../support/needs.ts'
import { Relay } from '../support/relay.ts'
import { until } from '../support/until.ts'
import { LEASE_MS, peerOptions, ReplicaGroup } from './fixture.ts'

const HOST = `demo.${DOMAIN}`
/** How long a fault lasts: a few leases, or a minute in the long run. */
const FAULT_MS = long ? 60_000 : 2 * LEASE_MS

/** Callers at every replica, each sending one request after the other. */
class Callers {
  readonly answers: { replica: number; status: number; text: string; atMs: number; tookMs: number }[] = []
  #stopped = false
  readonly #loops: Promise<void>[]

  constructor(servers: readonly Server[]) {
    this.#loops = servers.flatMap((server, replica) => [this.#run(server, replica), this.#run(server, replica)])
  }

  async #run(server: Server, replica: number): Promise<void> {
    while (!this.#stopped) {
      const startedMs = performance.now()
      const { status, text } = await call(server, HOST).catch(() => ({ status: 0, text: '' }))
      const nowMs = performance.now()
      this.answers.push({ replica, status, text, atMs: nowMs, tookMs: nowMs - startedMs })
      await new Promise(resolve => setTimeout(resolve, 5))
    }
  }

  /** Checks their answers; returns how many were lost, per replica. */
  async stop(name: string): Promise<number[]> {
    this.#stopped = true
    await Promise.all(this.#loops)
    const lost = [0, 1].map(
      one => this.answers.filter(({ replica, status }) => replica === one && status !== 200).length,
    )
    const longest = Math.round(Math.max(...this.answers.map(({ tookMs }) => tookMs)))
    console.log(`${name}: ${this.answers.length} requests, lost ${lost.join(' and ')}, the longest took ${longest} ms`)
    for (const { replica, status, text, tookMs } of this.answers) {
      if (status !== 200) console.log(`  at replica ${replica + 1} after ${Math.round(tookMs)} ms: ${status} ${text}`)
    }
    return lost
  }
}

const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

describe.runIf(needs('redis'))('with two replicas, callers lose nothing while', () => {
  let replicas: ReplicaGroup
  const relays: Relay[] = []
  let paths: { redis: Relay; peers: [Relay, Relay] }
  let first: Server
  let second: Server
  afterEach(async () => {
    replicas.redis.resume()
    for (const relay of relays) relay.silent = false
    await replicas.stop()
    await Promise.all(relays.splice(0).map(relay => relay.stop()))
  })

  /** The second replica reaches Redis, and each replica the other, through a relay. */
  async function start(): Promise<void> {
    replicas = await ReplicaGroup.start()
    const relay = async (port: number) => {
      const made = await Relay.start({ port })
      relays.push(made)
      return made
    }
    paths = { redis: await relay(replicas.redis.port), peers: [await relay(0), await relay(0)] }
    const add = async (index: 0 | 1, url: string) => {
      const relay = paths.peers[index]
      const peer = await peerOptions()
      const port = await reserve()
      relay.target = port
      return replicas.add({
        peer: { ...peer, port, advertise: `127.0.0.1:${relay.port}` },
        directory: { url, leaseMs: LEASE_MS },
      })
    }
    first = await add(0, replicas.redis.url)
    second = await add(1, `redis://127.0.0.1:${paths.redis.port}`)
  }

  async function reserve(): Promise<number> {
    const { freePort } = await import('../support/proxy-program.ts')
    return freePort()
  }

  const settled = (state: string) => until(() => second.stats().directory.state === state)

  describe.each([
    ['of one replica', [0]],
    ['of both', [0, 1]],
  ])('the client has sessions %s, and', (where, at) => {
    // Always tests the harder case: every request of the other replica's callers takes the hop.
    const testAll = test.runIf(long || at.length === 1)

    async function serve(): Promise<void> {
      await start()
      const servers = [first, second]
      for (const index of at) await dial(servers[index]!, { hello: { instance: 'one', connection: index } })
    }

    test('Redis is killed and comes back empty', async () => {
      await serve()
      const callers = new Callers([first, second])
      await sleep(200)
      await replicas.redis.kill()
      await sleep(FAULT_MS)
      await replicas.redis.start()
      await settled('connected')
      await sleep(LEASE_MS)
      expect(await callers.stop(`Redis killed and restarted, sessions ${where}`)).toEqual([0, 0])
    })

    testAll('Redis stands still', async () => {
      await serve()
      const callers = new Callers([first, second])
      await sleep(200)
      replicas.redis.pause()
      await sleep(FAULT_MS)
      replicas.redis.resume()
      await settled('connected')
      await sleep(LEASE_MS)
      expect(await callers.stop(`Redis paused, sessions ${where}`)).toEqual([0, 0])
    })

    testAll('Redis stands still, and then is killed', async () => {
      await serve()
      const callers = new Callers([first, second])
      await sleep(200)
      replicas.redis.pause()
      await sleep(FAULT_MS)
      await replicas.redis.kill()
      await sleep(FAULT_MS)
      expect([first, second].map(one => one.stats().directory.state)).toEqual(['presumed', 'presumed'])
      await replicas.redis.start()
      await settled('connected')
      await sleep(LEASE_MS)
      expect(await callers.stop(`Redis paused and killed, sessions ${where}`)).toEqual([0, 0])
    })

    testAll('Redis is flushed, again and again', async () => {
      await serve()
      const callers = new Callers([first, second])
      for (let i = 0; i < 5; i++) {
        await sleep(LEASE_MS / 3)
        await replicas.redis.command('FLUSHALL')
      }
      await sleep(LEASE_MS)
      expect(await callers.stop(`Redis flushed 5 times, sessions ${where}`)).toEqual([0, 0])
    })

    testAll('one replica cannot reach Redis, but the other one', async () => {
      await serve()
      const callers = new Callers([first, second])
      await sleep(200)
      paths.redis.silent = true
      await sleep(FAULT_MS)
      expect(second.stats().directory.state).toBe('presumed')
      paths.redis.silent = false
      await settled('connected')
      await sleep(LEASE_MS)
      expect(await callers.stop(`a replica cut off from Redis, sessions ${where}`)).toEqual([0, 0])
    })
  })

  test('replicas cannot reach each other, and both have sessions', async () => {
    await start()
    for (const server of [first, second]) await dial(server, { hello: { instance: 'one' } })
    const callers = new Callers([first, second])
    for (const relay of paths.peers) relay.silent = true
    await sleep(FAULT_MS)
    for (const relay of paths.peers) relay.silent = false
    await until(() => first.stats().peers!.connected === 1 && second.stats().peers!.connected === 1)
    expect(await callers.stop('replicas cut off from each other')).toEqual([0, 0])
  })

  test('(exception) replicas cannot reach each other, and only one has sessions: requests are held, then refused', async () => {
    await start()
    await dial(first, { hello: { instance: 'one' } })
    const callers = new Callers([first, second])
    await sleep(200)
    for (const relay of paths.peers) relay.silent = true
    await sleep(LEASE_MS)
    for (const relay of paths.peers) relay.silent = false
    await until(() => first.stats().peers!.connected === 1 && second.stats().peers!.connected === 1)
    await sleep(LEASE_MS)
    const [here] = await callers.stop('replicas cut off from each other, sessions of one')
    expect(here).toBe(0)
    expect(callers.answers.at(-1)!.status).toBe(200)
  })

  test('Redis freezes, a moment after a third replica was killed', async () => {
    await start()
    await dial(second, { hello: { instance: 'one' } })
    // What it leaves behind: the rest of a lease, and an address where nobody listens.
    const lease = `${Date.now() + LEASE_MS} 127.0.0.1:${await reserve()}`
    await replicas.redis.command('HSET', '{sallyport}:replicas', 'killed', lease)
    const known = (count: number) => until(() => [first, second].every(one => one.stats().peers?.known === count))
    await known(2)
    await known(1)
    const callers = new Callers([first, second])
    await sleep(200)
    replicas.redis.pause()
    await settled('presumed')
    await sleep(FAULT_MS)
    expect([first, second].map(one => one.stats().directory.state)).toEqual(['presumed', 'presumed'])
    replicas.redis.resume()
    await settled('connected')
    expect(await callers.stop('Redis paused, a replica killed before')).toEqual([0, 0])
  })

  describe('and what must not be routed is not', () => {
    test('a replica cut off from Redis hears of a newer instance from the other one', async () => {
      await start()
      await dial(second, { hello: { instance: 'one' }, handler: always('one') })
      paths.redis.silent = true
      await settled('presumed')
      await dial(first, { hello: { instance: 'two' }, handler: always('two') })
      await until(async () => (await call(second, HOST)).text === 'two')
      for (let i = 0; i < 10; i++) expect((await call(second, HOST)).text).toBe('two')
    })

    test('a replica that has long been cut off from Redis hears of a newer instance from a new replica', async () => {
      await start()
      await dial(second, { hello: { instance: 'one' }, handler: always('one') })
      await until(async () => (await call(second, HOST)).text === 'one')
      paths.redis.silent = true
      await settled('presumed')
      await until(() => first.stats().directory.replicas === 1)
      const third = await replicas.add()
      await dial(third, { hello: { instance: 'two' }, handler: always('two') })
      await until(async () => (await call(second, HOST)).text === 'two')
      expect(second.stats().directory.state).toBe('presumed')
    })

    test('a replica cut off from everybody stops at the end of its lease, and goes on once it is back', async () => {
      await start()
      await dial(second, { hello: { instance: 'one' }, handler: always('one') })
      for (const relay of [paths.redis, ...paths.peers]) relay.silent = true
      const cutMs = performance.now()
      const newer = await dial(first, { hello: { instance: 'two' }, handler: always('two') })
      const grantedMs = performance.now()
      expect(newer.messages.find(({ type }) => type === 'ready')).toMatchObject({ epoch: 2, active: true })
      const callers = new Callers([first, second])
      await settled('lost')
      console.log(`cut off, it stopped after ${Math.round(performance.now() - cutMs)} ms (lease ${LEASE_MS})`)
      expect(second.ready()).toBe(false)
      await sleep(LEASE_MS)
      for (const relay of [paths.redis, ...paths.peers]) relay.silent = false
      await settled('connected')
      await until(async () => (await call(second, HOST)).text === 'two')
      const [here] = await callers.stop('a replica cut off from all')
      expect(here).toBe(0)
      const late = callers.answers.filter(
        ({ text, atMs, tookMs }) => text === 'one' && atMs - tookMs > grantedMs + LEASE_MS,
      )
      expect(late).toEqual([])
    })

    test('no instance becomes active while no epoch can be granted; one that comes back is served at once', async () => {
      await start()
      const one = await dial(second, { hello: { instance: 'one' }, handler: always('one') })
      await replicas.redis.kill()
      await settled('presumed')
      const two = await dial(first, { hello: { instance: 'two' }, handler: always('two') })
      expect(two.messages.find(({ type }) => type === 'ready')).toMatchObject({ active: false })
      one.ws.terminate()
      await until(() => second.sessions().length === 0)
      const back = await dial(first, { hello: { instance: 'one', lastEpoch: 1 }, handler: always('back') })
      expect(back.messages.find(({ type }) => type === 'ready')).toMatchObject({ epoch: 1, active: true })
      for (const server of [first, second]) expect((await call(server, HOST)).text).toBe('back')
      await replicas.redis.start()
      await settled('connected')
      // Both are still connected: the newer one takes over, now that it can be granted an epoch.
      await until(async () => (await call(second, HOST)).text === 'two')
    })
  })
})
