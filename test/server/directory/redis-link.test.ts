/** What may be found in place of Redis, and what the operator is told. */
import { getEventListeners, once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { RedisLink } from '../../../server/directory/redis-link.ts'
import { ClosedByStore } from '../../../server/directory/store.ts'
import { unhurried } from '../../support/busy.ts'
import { needs } from '../../support/needs.ts'
import { freePort } from '../../support/proxy-program.ts'
import { Redis, type RedisProgramOptions } from '../../support/redis.ts'
import { Relay } from '../../support/relay.ts'
import { until } from '../../support/until.ts'

describe.runIf(needs('redis'))('a link to the directory is refused', () => {
  const nodes: Redis[] = []
  const servers: Server[] = []
  afterEach(async () => {
    for (const server of servers.splice(0)) server.close()
    await Promise.all(nodes.splice(0).map(node => node.stop()))
  })

  async function node(options: RedisProgramOptions): Promise<Redis> {
    const made = await Redis.start(options)
    nodes.push(made)
    return made
  }

  /** A Sentinel that names this primary once `may` lets it. Resolves to its port. */
  async function sentinelNaming(primary: number | string, may: () => Promise<void> | void = () => {}): Promise<number> {
    const server = createServer(socket => {
      socket.on('error', () => {})
      socket.on('data', async bytes => {
        const text = bytes.toString()
        if (text.includes('HELLO')) socket.write('%1\r\n$5\r\nproto\r\n:3\r\n')
        if (!text.includes('GET-MASTER-ADDR-BY-NAME')) return
        await may()
        socket.write(`*2\r\n$9\r\n127.0.0.1\r\n$${String(primary).length}\r\n${primary}\r\n`)
      })
    })
    servers.push(server)
    await once(server.listen(0, '127.0.0.1'), 'listening')
    return (server.address() as AddressInfo).port
  }

  const open = (url: string, deadlineMs = 5000, signal?: AbortSignal) => {
    const place = { channel: 'sallyport:changes', key: '{sallyport}:replicas' }
    return RedisLink.open({ url }, place, deadlineMs, { message() {}, closed() {} }, signal)
  }

  /** The first attempt waits for a node that never answers; the next ones begin with another one. */
  async function failsOnce(url: string): Promise<void> {
    await expect(open(url, unhurried(1000))).rejects.toThrow(new Error('Redis does not answer'))
    for (let attempts = 0; attempts < 2; attempts++) {
      const link = await open(url)
      link.close()
    }
  }

  test('by a standby, which would refuse writes', async () => {
    const standby = await node({ lines: ['replicaof 127.0.0.1 1'] })
    await expect(open(standby.url)).rejects.toThrow(new Error('this Redis is a standby'))
  })

  test("by a Sentinel whose URL is not a Sentinel's", async () => {
    const { url } = await node({ sentinel: true })
    const told = 'this is a Sentinel: use redis+sentinel://HOST:PORT/NAME'
    await expect(open(url)).rejects.toThrow(new Error(told))
  })

  test('by Sentinels that do not know the name or are unreachable', async () => {
    const { port } = await node({ sentinel: true })
    const url = `redis+sentinel://127.0.0.1:${port},127.0.0.1:${await freePort()}/main`
    await expect(open(url)).rejects.toThrow(/^no Sentinel knows main: it is not monitored; connect ECONNREFUSED /)
  })

  test.each<[string, () => Promise<number>]>([
    ['now a standby', async () => (await node({ lines: ['replicaof 127.0.0.1 1'] })).port],
    ['gone', freePort],
  ])('not by a primary that is %s, if only the Sentinel that answers first names it', async (_, start) => {
    const [old, primary] = [await start(), await node({})]
    const answered = Promise.withResolvers<void>()
    const stale = await sentinelNaming(old, answered.resolve)
    const others = [await sentinelNaming(primary.port, () => answered.promise), await freePort()]
    const hosts = [stale, ...others].map(port => `127.0.0.1:${port}`)
    const link = await open(`redis+sentinel://${hosts.join(',')}/main`)
    await link.publish('')
    link.close()
  })

  test('once by an old primary that never answers, if the Sentinel that answers first names it', async () => {
    const [old, primary] = [await Relay.start({ port: 0 }), await node({})]
    old.target = primary.port
    old.silent = true
    const answered = Promise.withResolvers<void>()
    const stale = await sentinelNaming(old.port, answered.resolve)
    const other = await sentinelNaming(primary.port, () => answered.promise)
    const url = `redis+sentinel://127.0.0.1:${stale},127.0.0.1:${other}/main`
    await failsOnce(url)
    await old.stop()
  })

  test('once by each of two primaries that were silent, whichever Sentinel answers first', async () => {
    const primary = await node({})
    const relays = [await Relay.start({ port: 0 }), await Relay.start({ port: 0 })]
    for (const relay of relays) {
      relay.target = primary.port
      relay.silent = true
    }
    const [old, now] = relays.map(({ port }) => port)
    const answered = Promise.withResolvers<void>()
    const stale = await sentinelNaming(old!, answered.resolve)
    const other = await sentinelNaming(now!, () => answered.promise)
    const url = `redis+sentinel://127.0.0.1:${stale},127.0.0.1:${other}/main`
    const silent = new Error('Redis does not answer')
    await expect(open(url, unhurried(1000))).rejects.toThrow(silent)
    await expect(open(url, unhurried(1000))).rejects.toThrow(silent)
    relays[1]!.silent = false
    await expect(open(url, unhurried(1000))).rejects.toThrow(silent)
    for (let attempts = 0; attempts < 2; attempts++) {
      const link = await open(url)
      link.close()
    }
    await Promise.all(relays.map(relay => relay.stop()))
  })

  test('by an old primary, within the deadline, if the other Sentinels never answer', async () => {
    const standby = await node({ lines: ['replicaof 127.0.0.1 1'] })
    const [stale, silent] = [await sentinelNaming(standby.port), await sentinelNaming(1, () => new Promise(() => {}))]
    const url = `redis+sentinel://127.0.0.1:${stale},127.0.0.1:${silent}/main`
    await expect(open(url)).rejects.toThrow(new Error('Error: this Redis is a standby'))
  })

  test.each(['99999', 'x', '1/2', ''])(
    'by an address that a Sentinel makes up, which is named: port %j',
    async port => {
      const sentinel = await sentinelNaming(port)
      const told = `Error: "127.0.0.1:${port}", which Redis or a Sentinel named, is no address`
      await expect(open(`redis+sentinel://127.0.0.1:${sentinel}/main`)).rejects.toThrow(new Error(told))
    },
  )

  test('once it is aborted; and one that has ended keeps nothing of what would abort it', async () => {
    const { url } = await node({})
    const { signal } = new AbortController()
    const link = await open(url, 5000, signal)
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    link.close()
    await until(() => getEventListeners(signal, 'abort').length === 0)
    await expect(open(url, 5000, AbortSignal.abort())).rejects.toThrow('closed')
  })

  test('by one of several nodes that never answers; the next attempts begin with another one', async () => {
    const [silent, other] = [await Relay.start({ port: 0 }), await node({})]
    silent.target = other.port
    silent.silent = true
    const url = `redis://127.0.0.1:${silent.port},127.0.0.1:${other.port}`
    await failsOnce(url)
    await silent.stop()
  })

  test('by all of several nodes: each reason is given once', async () => {
    const [first, second] = [await node({ lines: ['replicaof 127.0.0.1 1'] }), await freePort()]
    const url = `redis://127.0.0.1:${first.port},127.0.0.1:${first.port},127.0.0.1:${second}`
    const error = await open(url).catch((reason: Error & { code?: string }) => reason)
    expect((error as Error).message).toMatch(/^Error: this Redis is a standby; Error: connect ECONNREFUSED [^;]+$/)
    // That nobody listens at one of them does not mean that Redis is gone.
    expect(error).not.toHaveProperty('code')
  })
})

describe.runIf(needs('redis'))('a link to the directory that ends', () => {
  let redis: Redis
  afterEach(async () => {
    redis.resume()
    await redis.stop()
  })

  test("because its owner's signal is aborted: its connection is closed", async () => {
    redis = await Redis.start()
    const [owner, closed] = [new AbortController(), Promise.withResolvers<Error>()]
    const place = { channel: 'sallyport:changes', key: '{sallyport}:replicas' }
    const listener = { message() {}, closed: closed.resolve }
    const link = await RedisLink.open({ url: redis.url }, place, unhurried(1000), listener, owner.signal)
    owner.abort()
    expect(await closed.promise).toEqual(new Error('closed'))
    await expect(link.check(place.key)).rejects.toThrow(new Error('closed'))
  })

  test.each<[string, (relay: Relay) => Promise<void> | void, boolean]>([
    ['with Redis: was closed by it', () => redis.kill(), true],
    ['on the way: may have lost something', relay => void relay.cut(), false],
    ['because no answer comes: may have lost something', () => redis.pause(), false],
  ])('%s', async (_name, end, isClosedByStore) => {
    redis = await Redis.start()
    const relay = await Relay.start({ port: redis.port })
    const closed = Promise.withResolvers<Error>()
    const place = { channel: 'sallyport:changes', key: '{sallyport}:replicas' }
    const url = isClosedByStore ? redis.url : `redis://127.0.0.1:${relay.port}`
    const link = await RedisLink.open({ url }, place, unhurried(1000), { message() {}, closed: closed.resolve })
    await end(relay)
    await link.check(place.key).catch(() => {})
    expect((await closed.promise) instanceof ClosedByStore).toBe(isClosedByStore)
    redis.resume()
    await relay.stop()
  })
})
