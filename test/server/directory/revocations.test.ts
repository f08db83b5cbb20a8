// @module-tag slow
/** Revocations that several servers share, in a real Redis. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Revocation } from '../../../server/auth/revocations.ts'
import { RedisRevocations } from '../../../server/directory/redis-revocations.ts'
import type { Server } from '../../../server/server.ts'
import { needs } from '../../support/needs.ts'
import { freePort } from '../../support/proxy-program.ts'
import { Redis } from '../../support/redis.ts'
import { Relay } from '../../support/relay.ts'
import { eventually, until } from '../../support/until.ts'
import { dial, makeWorld, openWebSocket, startServer, token } from '../fixture.ts'

/** Days after which nobody keeps an expired rule. */
const LATE_MS = 3 * 86_400_000

describe.runIf(needs('redis'))('revocations in Redis', () => {
  let redis: Redis
  const servers: Server[] = []
  beforeAll(async () => {
    redis = await Redis.start()
  })
  afterAll(() => redis.stop())
  afterEach(async () => {
    await Promise.all(servers.splice(0).map(server => server.close({ graceMs: 0 })))
    await redis.kill()
    await redis.start()
  })

  async function start(url = redis.url): Promise<Server> {
    const server = await startServer({ directory: { url } })
    servers.push(server)
    return server
  }

  const refused = async (server: Server, id: string) =>
    expect(await openWebSocket(server, { token: await token('demo', { id }) }).catch(error => error.status)).toBe(401)

  /** Resolves once the server knows this many rules. */
  async function knows(server: Server, count: number): Promise<void> {
    await until(() => server.revocations().length === count)
  }

  test('end sessions on all replicas, and apply on one that starts later', async () => {
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
    expect(c.revocations().map(({ id }) => id)).toEqual(a.revocations().map(({ id }) => id))
  })

  test('are written back when Redis has lost them; one made meanwhile reports that, applies here, and elsewhere later', async () => {
    const [a, b] = [await start(), await start()]
    await a.revoke({ tokenId: 'first' })
    await knows(b, 1)
    await redis.kill()
    await expect(a.revoke({ tokenId: 'second', until: Date.now() / 1000 + 600 })).rejects.toThrow(
      /^the rule is in force on this server, but the other replicas do not have it yet, and it is lost if /,
    )
    await refused(a, 'second')
    await redis.start()
    await knows(b, 2)
    await refused(b, 'second')
    const c = await start()
    await knows(c, 2)
  })

  test('A9: say what holds if they cannot be written to the file, to Redis, or to both', async () => {
    const file = join(await mkdtemp(join(tmpdir(), 'sallyport-')), 'revocations.json')
    await writeFile(file, '')
    const { jwks } = (await makeWorld()).keys
    const server = await startServer({ directory: { url: redis.url }, auth: { jwks, revocations: { file } } })
    servers.push(server)
    const revoked = (tokenId: string) => server.revoke({ tokenId }).then(String, (error: Error) => error.message)
    await rm(file)
    expect(await revoked('one')).toMatch(/^the rule is in force and in the directory, but .* the file: ENOENT/)
    redis.pause()
    expect(await revoked('two')).toMatch(/yet, and it is lost if .*: ENOENT.*; Redis does not answer$/)
    await writeFile(file, '{ "revocations": [] }')
    expect(await revoked('three')).toMatch(/yet, and do not get it if this server stops before: Redis does not answer$/)
    redis.resume()
    await rm(dirname(file), { recursive: true })
  })

  test('D8: come from the new primary once theirs has become a standby', async () => {
    const next = await Redis.start()
    const [a, b] = [await start(`${redis.url},127.0.0.1:${next.port}`), await start(next.url)]
    await redis.command('REPLICAOF', '127.0.0.1', '1')
    await b.revoke({ tokenId: 'stolen' })
    await knows(a, 1)
    await refused(a, 'stolen')
    await next.stop()
  })

  describe('D7: are read before sessions that a replica has without Redis are entered in the directory', () => {
    let relay: Relay
    beforeEach(async () => {
      await redis.age()
      relay = await Relay.start({ port: 0 })
    })
    afterEach(() => relay.stop())

    /** With a later epoch than any, the instance would be active as soon as it is entered. */
    async function isNeverEntered(b: Server): Promise<void> {
      const client = await dial(b, { token: await token('demo', { id: 'stolen' }), hello: { lastEpoch: 1e9 } })
      client.session.control({ type: 'ready' })
      await until(() => b.stats().directory.state === 'lost')
      relay.target = redis.port
      expect((await client.closed).code).toBe(4401)
      await until(() => b.stats().directory.state === 'connected')
      expect(await redis.command('EXISTS', '{sallyport}:runtime:demo')).toBe(0)
    }

    test('by one that starts', async () => {
      const a = await start()
      await a.revoke({ tokenId: 'stolen' })
      await isNeverEntered(await start(`redis://127.0.0.1:${relay.port}`))
    })

    test('by one that was cut off meanwhile', async () => {
      relay.target = redis.port
      const [a, b] = [await start(), await start(`redis://127.0.0.1:${relay.port}`)]
      await becomes(true, a, b)
      relay.target = 0
      relay.cut()
      await a.revoke({ tokenId: 'stolen' })
      await isNeverEntered(b)
    })
  })

  test('hold to the end of time, on a replica that starts later, too', async () => {
    const a = await start()
    for (const until of [1e21, Number.MAX_VALUE]) await a.revoke({ tokenId: `until ${until}`, until })
    expect(Number(await redis.command('HLEN', KEY))).toBe(2)
    const b = await start()
    await knows(b, 2)
    await refused(b, 'until 1e+21')
    expect(await a.removeRevocation(a.revocations()[0]!.id)).toBe(true)
    await knows(b, 1)
  })

  async function becomes(ready: boolean, ...all: Server[]): Promise<void> {
    await until(() => all.every(server => server.ready() === ready))
  }

  const KEY = '{sallyport}:revocations'
  /** As an earlier version, or somebody else, may have written it. */
  async function write(...texts: string[]): Promise<void> {
    if (texts.length > 0) await redis.command('HSET', KEY, ...texts.flatMap(text => [text, '']))
    await redis.command('PUBLISH', 'sallyport:revocations', '')
  }
  const many = (count: number, from = 0) =>
    Array.from({ length: count }, (_, i) => JSON.stringify({ jti: `t${from + i}` }))

  test('D7: more than 10,000 still apply, even at a replica that starts; one more is refused with a reason', async () => {
    await redis.age()
    const a = await start()
    await write(...many(10_005))
    await knows(a, 10_005)
    const b = await start()
    await refused(a, 't10004')
    await refused(b, 't10004')
    await becomes(true, a, b)
    await expect(a.revoke({ tokenId: 'one more' })).rejects.toThrow('the directory can hold 10000 revocations')
    await refused(a, 'one more')
    const { id } = a.revocations().find(({ tokenId }) => tokenId === 't0')!
    expect(await a.removeRevocation(id)).toBe(true)
    await knows(b, 10_004)
  })

  test('D7: the list is bounded in bytes when it is written', async () => {
    const a = await start()
    await write(...Array.from({ length: 9_000 }, (_, i) => JSON.stringify({ jti: `${i}`.padEnd(224, 'x') })))
    await knows(a, 9_000)
    await expect(a.revoke({ tokenId: 'x'.repeat(250) })).rejects.toThrow('2097152 bytes: remove some')
    expect(Number(await redis.command('HLEN', KEY))).toBe(9_000)
  })

  test('D7: a full list gets room from taking a rule back, even a rule that it does not have', async () => {
    const a = await start()
    await write(...many(10_000))
    await knows(a, 10_000)
    await expect(a.revoke({ tokenId: 'one more' })).rejects.toThrow('remove some')
    const idOf = (name: string) => a.revocations().find(({ tokenId }) => tokenId === name)!.id
    expect(await a.removeRevocation(idOf('one more'))).toBe(true)
    expect(await a.removeRevocation(idOf('t0'))).toBe(true)
    expect(await a.revoke({ tokenId: 'another' })).toEqual({ ended: 0, kept: true })
    await knows(await start(), 10_000)
    await refused(a, 'another')
    await openWebSocket(a, { token: await token('demo', { id: 'one more' }) })
  })

  test('D7: as many taken-back rules are remembered as there may be rules, the latest ones', async () => {
    const a = await start()
    const inAnHour = Math.floor(Date.now() / 1000) + 3600
    await redis.command('HSET', KEY, ...many(10_000).flatMap((text, i) => [text, `removed ${inAnHour + i}`]))
    await a.revoke({ tokenId: 'mine' })
    expect(await a.removeRevocation(a.revocations()[0]!.id)).toBe(true)
    expect(Number(await redis.command('HLEN', KEY))).toBe(10_000)
    const ends = (name: string) => redis.command('HGET', KEY, JSON.stringify({ jti: name }))
    expect(await ends('mine')).toEqual(expect.stringContaining('removed'))
    expect([await ends('t0'), await ends('t1')]).toEqual([null, `removed ${inAnHour + 1}`])
  })

  test('D7: many at a time are all kept, however long the list is', async () => {
    const a = await start()
    await write(...Array.from({ length: 9_000 }, (_, i) => JSON.stringify({ jti: `${i}`.padEnd(200, 'x') })))
    await knows(a, 9_000)
    const revoking = Array.from({ length: 100 }, (_, i) => a.revoke({ tokenId: `t${i}` }))
    for (const { kept } of await Promise.all(revoking)) expect(kept).toBe(true)
    await knows(await start(), 9_100)
  })

  const ODD = ['garbage', '{}', '[]', 'null', '{"jti":7}', '{"jti":"a","other":1}', '{"jti":"a","until":"never"}', '"']
  test.each(ODD)('D7: an invalid entry (%s) lets nobody in until it is removed', async text => {
    await redis.age()
    const a = await start()
    await becomes(true, a)
    const live = await dial(a, { token: await token('demo', { id: 'live' }) })
    await write(text, JSON.stringify({ jti: 'stolen' }))
    await becomes(false, a)
    const b = await start()
    for (const server of [a, b]) {
      expect(server.ready()).toBe(false)
      await expect(openWebSocket(server, {})).rejects.toMatchObject({ status: 503 })
    }
    expect(live.session.closed).toBe(false)
    const odd = b.revocations().find(({ unreadable }) => unreadable !== undefined)!
    expect([odd.unreadable, odd.from]).toEqual([text, ['directory']])
    expect(await b.removeRevocation(odd.id)).toBe(true)
    await becomes(true, a, b)
    await refused(a, 'stolen')
    await dial(b)
  })

  test('D7, A9: entries that are not UTF-8 let nobody in until they are removed, even if they look alike', async () => {
    await redis.age()
    const a = await start()
    await becomes(true, a)
    const bytes = [Buffer.from([0x7b, 0xff]), Buffer.from([0x7b, 0xfe]), Buffer.from('{"jti":"\xff"}', 'latin1')]
    for (const field of bytes) await redis.command('HSET', KEY, field, '')
    await write()
    await becomes(false, a)
    const b = await start()
    await knows(b, 2)
    const shown = () => b.revocations().map(({ unreadable }) => unreadable)
    expect(shown().sort()).toEqual(['{"jti":"\ufffd"}', '{\ufffd'])
    for (const { id } of b.revocations()) expect(await b.removeRevocation(id)).toBe(true)
    expect(shown()).toEqual([])
    await becomes(true, a, b)
  })

  test('A9: rules that were written by hand are taken back, however they are spelt', async () => {
    await redis.age()
    const [a, b] = [await start(), await start()]
    await becomes(true, a, b)
    await write(
      '{"runtime": "demo"}',
      '{"runtime":"demo"}',
      '{"issuedBefore":1e3,"jti":"a"}',
      '{"jti":"b","until":"2100-01-01T00:00:00Z"}',
    )
    await knows(a, 3)
    await refused(a, 'any')
    for (const { id } of a.revocations()) expect(await a.removeRevocation(id)).toBe(true)
    for (const server of [a, b]) {
      await knows(server, 0)
      await dial(server)
    }
  })

  test('D7, A9: a rule of an older version for a runtime that no token can name keeps nobody out, and is taken back', async () => {
    await redis.age()
    const [a, b] = [await start(), await start()]
    await becomes(true, a, b)
    await write('{"runtime":"Demo"}', '{"jti":"stolen"}')
    await knows(a, 2)
    await refused(a, 'stolen')
    await dial(a)
    for (const { id } of a.revocations()) expect(await a.removeRevocation(id)).toBe(true)
    await knows(b, 0)
  })

  test('D7: a key of another type lets nobody in', async () => {
    await redis.age()
    const a = await start()
    await becomes(true, a)
    await redis.command('SET', KEY, 'text')
    await redis.command('PUBLISH', 'sallyport:revocations', '')
    await becomes(false, a)
    await expect(openWebSocket(a, {})).rejects.toMatchObject({ status: 503 })
    await a.removeRevocation(a.revocations()[0]!.id)
    await becomes(true, a)
  })

  test('A9: a rule taken back on one replica applies on none, and no replica that missed it writes it back', async () => {
    const relay = await Relay.start({ port: redis.port })
    const [a, b] = [await start(), await start(`redis://127.0.0.1:${relay.port}`)]
    await a.revoke({ tokenId: 'mine' })
    await knows(b, 1)
    relay.silent = true
    const [rule] = a.revocations()
    expect(await a.removeRevocation(rule!.id)).toBe(true)
    expect(await a.removeRevocation(rule!.id)).toBe(false)
    relay.cut()
    relay.silent = false
    await knows(b, 0)
    await knows(a, 0)
    for (const server of [a, b, await start()]) await dial(server, { token: await token('demo', { id: 'mine' }) })
    // And it can be revoked again.
    await a.revoke({ tokenId: 'mine' })
    await knows(b, 1)
    await relay.stop()
  })

  test('A9: a rule that never reached Redis is taken back without it, and no other', async () => {
    const [a, b] = [await start(), await start()]
    await a.revoke({ tokenId: 'early' })
    await knows(b, 1)
    await redis.kill()
    await expect(a.revoke({ tokenId: 'late' })).rejects.toThrow(/^the rule is in force on this server, /)
    await refused(a, 'late')
    const [early, late] = ['early', 'late'].map(id => a.revocations().find(({ tokenId }) => tokenId === id))
    await expect(a.removeRevocation(early!.id)).rejects.toThrow(/Redis|ECONNREFUSED/)
    expect(await a.removeRevocation(late!.id)).toBe(true)
    await redis.start()
    await until(async () => Number(await redis.command('HLEN', KEY)) > 0)
    const c = await start()
    await knows(c, 1)
    for (const server of [a, b, c]) {
      expect(server.revocations()).toMatchObject([{ tokenId: 'early' }])
      await dial(server, { token: await token('demo', { id: 'late' }) })
    }
  })

  test('A9: a rule taken back without Redis, which has it all the same, applies nowhere once Redis is back', async () => {
    const [a, b] = [await start(), await start()]
    redis.pause()
    for (let i = 0; i < 2; i++) await expect(a.revoke({ tokenId: 'late' })).rejects.toThrow(/Redis does not answer/)
    expect(await a.removeRevocation(a.revocations()[0]!.id)).toBe(true)
    redis.resume()
    await until(async () => String(await redis.command('HVALS', KEY)).startsWith('removed'))
    await until(() => a.revocations().length + b.revocations().length === 0)
  })

  /** Two servers with a rule. The first one reaches Redis over the relay. */
  async function startRelayed(tokenId: string) {
    const relay = await Relay.start({ port: redis.port })
    const [a, b] = [await start(`redis://127.0.0.1:${relay.port}`), await start()]
    await b.revoke({ tokenId })
    await knows(a, 1)
    const cut = () => {
      relay.target = 0
      relay.cut()
    }
    const heal = () => {
      relay.target = redis.port
    }
    const stop = () => relay.stop()
    return { a, b, cut, heal, stop }
  }

  const removeOnly = async (server: Server) =>
    expect(await server.removeRevocation(server.revocations()[0]!.id)).toBe(true)

  test.each(['before', 'while'])(
    'A9: a rule that was taken back %s Redis was away, and is added again without it, applies everywhere',
    async when => {
      const { a, b, cut, heal, stop } = await startRelayed('again')
      if (when === 'while') cut()
      await removeOnly(b)
      if (when === 'before') await knows(a, 0)
      cut()
      await expect(a.revoke({ tokenId: 'again' })).rejects.toThrow(/^the rule is in force on this server, /)
      heal()
      await knows(b, 1)
      await refused(b, 'again')
      await stop()
    },
  )

  test('A9: a rule that never reached Redis, and was taken back, stays in force if another replica adds it meanwhile', async () => {
    const { a, b, cut, heal, stop } = await startRelayed('both')
    await removeOnly(b)
    await knows(a, 0)
    cut()
    await expect(a.revoke({ tokenId: 'both' })).rejects.toThrow(/^the rule is in force on this server, /)
    await removeOnly(a)
    await b.revoke({ tokenId: 'both' })
    heal()
    await knows(a, 1)
    for (const server of [a, b]) await refused(server, 'both')
    await stop()
  })

  test('A9: several rules that were added without Redis can be taken back without it, one after another', async () => {
    const { a, b, cut, heal, stop } = await startRelayed('first')
    cut()
    for (const tokenId of ['one', 'two', 'three']) {
      await expect(a.revoke({ tokenId })).rejects.toThrow(/^the rule is in force on this server, /)
    }
    for (const tokenId of ['one', 'two']) {
      expect(await a.removeRevocation(a.revocations().find(rule => rule.tokenId === tokenId)!.id)).toBe(true)
    }
    heal()
    await knows(b, 2)
    for (const server of [a, b]) {
      expect(server.revocations().map(({ tokenId }) => tokenId)).toEqual(expect.arrayContaining(['first', 'three']))
    }
    await stop()
  })

  test('A9: a rule that Redis has, and that is added again without it, can be taken back on another replica', async () => {
    const { a, b, cut, heal, stop } = await startRelayed('twice')
    cut()
    await expect(a.revoke({ tokenId: 'twice' })).rejects.toThrow(/^the rule is in force on this server, /)
    await expect(a.removeRevocation(a.revocations()[0]!.id)).rejects.toThrow()
    const before = await redis.command('HVALS', KEY)
    heal()
    await eventually(async () => expect(await redis.command('HVALS', KEY)).not.toEqual(before))
    await removeOnly(b)
    await knows(a, 0)
    await stop()
  })

  test('A9: a rule taken back on another replica than the one that added it applies on none', async () => {
    const [a, b] = [await start(), await start()]
    await a.revoke({ tokenId: 'mine' })
    await knows(b, 1)
    expect(await b.removeRevocation(b.revocations()[0]!.id)).toBe(true)
    await knows(a, 0)
    for (const server of [a, b]) await dial(server, { token: await token('demo', { id: 'mine' }) })
  })

  test('A9: a rule that was added twice, here and on another replica, can be taken back on either', async () => {
    const [a, b] = [await start(), await start()]
    await a.revoke({ tokenId: 'mine' })
    await knows(b, 1)
    for (const server of [a, b]) await server.revoke({ tokenId: 'mine' })
    expect(await b.removeRevocation(b.revocations()[0]!.id)).toBe(true)
    await knows(a, 0)
    for (const server of [a, b]) await dial(server, { token: await token('demo', { id: 'mine' }) })
  })

  test('D7: a list too long to read lets nobody in until it is removed, and a replica keeps what it knew', async () => {
    await redis.age()
    const a = await start()
    await a.revoke({ tokenId: 'stolen' })
    await becomes(true, a)
    for (let at = 0; at < 100_000; at += 10_000) {
      await redis.command('HSET', KEY, ...many(10_000, at).flatMap(text => [text, '']))
    }
    await write()
    await becomes(false, a)
    const b = await start()
    await knows(b, 1)
    const odd = b.revocations().find(({ unreadable }) => unreadable !== undefined)!
    expect(odd.unreadable).toBe('a list of over 100000 entries or 16777216 bytes')
    expect(await b.removeRevocation(odd.id)).toBe(true)
    await becomes(true, a, b)
    await knows(b, 1)
    await refused(a, 'stolen')
    await refused(b, 'stolen')
    expect(Number(await redis.command('HLEN', KEY))).toBe(1)
  })

  /** `lateMs`: how far its clock is behind. */
  function alone(lateMs = 0, port = redis.port): RedisRevocations {
    const redisAt = async () => ({ url: `redis://127.0.0.1:${port}` })
    return new RedisRevocations({
      redis: redisAt,
      prefix: 'sallyport',
      logger: noLogger,
      now: () => Date.now() - lateMs,
    })
  }

  test.each(['was there before', 'was lost and is back'])(
    'A9: a rule taken back without Redis, which another replica has added, too, and which %s, stays in force',
    async when => {
      const relay = await Relay.start({ port: redis.port, roundTripMs: 1000 })
      const [one, two] = [alone(0, relay.port), alone()]
      for (const each of [one, two]) await each.open()
      const values = async () => (await redis.command('HVALS', KEY)) as string[]
      await two.add({ tokenId: 'both' })
      const before = await values()
      if (when === 'was lost and is back') relay.target = 0
      const adding = one.add({ tokenId: 'both' }).catch(String)
      // Its answer is lost.
      if (relay.target !== 0) await eventually(async () => expect(await values()).not.toEqual(before))
      relay.target = 0
      relay.cut()
      expect(await adding).toMatch(/Redis|reset|ECONNRESET/)
      await one.remove(() => true)
      relay.target = redis.port
      if (when === 'was lost and is back') await redis.command('FLUSHALL')
      for (const each of [one, two]) await each.open()
      expect(await values()).toEqual([''])
      for (const each of [one, two]) each.close()
      await relay.stop()
    },
  )

  test('A9: a rule that is added while an older list with its removal arrives is not taken back silently', async () => {
    const two = alone()
    for (const tokenId of ['again', 'other']) await two.add({ tokenId })
    await two.remove(text => text.includes('again'))
    two.close()
    const one = alone()
    const list = Promise.withResolvers<void>()
    one.onList = () => {
      redis.pause()
      list.resolve()
    }
    const opening = one.open()
    await Promise.resolve()
    const adding = one.add({ tokenId: 'again' }).catch(String)
    await Promise.all([opening, list.promise])
    expect(await adding).toMatch('Redis does not answer')
    await expect(one.remove(text => text.includes('again'))).rejects.toThrow('Redis does not answer')
    redis.resume()
    one.close()
  })

  test('that cannot be fetched, or read, are logged', async () => {
    const error = vi.fn()
    const openAt = async (url: string) => {
      const logger = { ...noLogger, error }
      const list = new RedisRevocations({ redis: async () => ({ url }), prefix: 'sallyport', logger, now: Date.now })
      await list.open()
      list.close()
    }
    await openAt(`redis://127.0.0.1:${await freePort()}`)
    expect(error).toHaveBeenLastCalledWith(expect.anything(), 'shared revocations: no Redis')
    await redis.command('HSET', KEY, 'odd', '')
    await openAt(redis.url)
    const unreadable = expect.stringContaining('the shared revocations cannot be read')
    expect(error).toHaveBeenLastCalledWith(expect.anything(), unreadable)
  })

  /** How often Redis has read the list. */
  async function reads(): Promise<number> {
    const info = String(await redis.command('INFO', 'commandstats'))
    return Number(/cmdstat_hgetall:calls=(\d+)/.exec(info)?.[1] ?? 0)
  }

  describe('are fetched', () => {
    const both: RedisRevocations[] = []
    const texts: Array<string | undefined> = []
    beforeEach(async () => {
      both.push(alone(), alone())
      both[0]!.onList = rules => texts.splice(0, texts.length, ...rules.map(({ tokenId }) => tokenId))
      for (const one of both) await one.open()
      await both[1]!.add({ tokenId: 'a' })
      while (texts[0] !== 'a') await both[0]!.open()
    })
    afterEach(() => {
      for (const one of both.splice(0)) one.close()
      texts.length = 0
    })

    test('not again while nothing changes', async () => {
      // A connection lost on a busy machine is a change.
      await eventually(async () => {
        const before = await reads()
        for (let round = 0; round < 5; round++) for (const one of both) await one.open()
        expect(await reads()).toBe(before)
      })
    })

    test('when another replica has changed them, even without an announcement', async () => {
      await redis.command('HSET', KEY, '{"jti":"b"}', '')
      await redis.command('HSET', `${KEY}:version`, 'version', '1')
      await both[0]!.open()
      expect(texts.sort()).toEqual(['a', 'b'])
    })

    test('when an earlier version announces that it took one back', async () => {
      await redis.command('HSET', KEY, '{"jti":"a"}', `removed ${Math.floor(Date.now() / 1000) + 60}`)
      await redis.command('PUBLISH', 'sallyport:revocations', '')
      await until(() => texts.length === 0)
    })

    test('when Redis has lost them, and are written back', async () => {
      await redis.command('FLUSHALL')
      await both[0]!.open()
      expect(Object.keys((await redis.command('HGETALL', KEY)) as object)).toEqual(['{"jti":"a"}'])
    })
  })

  test('accept nothing more once closed, whenever that is, and leave no connection behind', async () => {
    const before = alone()
    before.close()
    await expect(before.add({ tokenId: 'late' })).rejects.toThrow(new Error('closed'))
    const asked = Promise.withResolvers<void>()
    const meanwhile = new RedisRevocations({
      redis: async () => {
        asked.resolve()
        return { url: redis.url }
      },
      prefix: 'sallyport',
      logger: noLogger,
      now: Date.now,
    })
    const adding = meanwhile.add({ tokenId: 'late' })
    await asked.promise
    meanwhile.close()
    await expect(adding).rejects.toThrow(/closed|aborted/)
    for (const list of [before, meanwhile]) await list.reread()
    await expect(meanwhile.add({ tokenId: 'later' })).rejects.toThrow(new Error('closed'))
    const listening = async () => String(await redis.command('PUBSUB', 'NUMSUB', 'sallyport:revocations'))
    while (!(await listening()).endsWith(',0'));
  })

  test("D6: that have expired only by Redis's clock apply, also on a replica that starts later", async () => {
    const one = alone(LATE_MS)
    await one.open()
    await one.add({ tokenId: 'over', until: Math.floor((Date.now() - LATE_MS) / 1000) + 60 })
    one.close()
    const later = alone(LATE_MS)
    const known: Revocation[] = []
    later.onList = rules => void known.push(...rules)
    await later.open()
    expect(known).toMatchObject([{ tokenId: 'over' }])
    later.close()
  })

  test('that were removed because they have expired apply where a clock is behind, which does not write them back', async () => {
    const behind = alone(LATE_MS)
    let known: readonly Revocation[] = []
    behind.onList = rules => {
      known = rules
    }
    await behind.open()
    await behind.add({ tokenId: 'over', until: Math.floor((Date.now() - LATE_MS) / 1000) + 60 })
    const right = alone()
    await right.add({ tokenId: 'other' })
    right.close()
    await until(() => known.length === 2)
    // After what it may be writing.
    await behind.open()
    expect(await redis.command('HKEYS', KEY)).toEqual(['{"jti":"other"}'])
    behind.close()
  })

  test('D7: that are over make room for others, and what others may need is not taken up again', async () => {
    const [one, two] = [alone(), alone()]
    const over = Math.floor(Date.now() / 1000) - 60
    const texts = many(10_000).map(text => text.replace('}', `,"until":${over}}`))
    await redis.command('HSET', KEY, ...texts.flatMap(text => [text, String(over)]))
    for (const each of [one, two]) await each.open()
    await one.add({ tokenId: 'new' })
    await two.add({ tokenId: 'newer' })
    await one.open()
    const names = (await redis.command('HKEYS', KEY)) as string[]
    expect(names).toEqual(expect.arrayContaining(['{"jti":"new"}', '{"jti":"newer"}']))
    expect(names.length).toBeLessThanOrEqual(5001)
    for (const each of [one, two]) each.close()
  })

  test('are removed once expired', async () => {
    const one = alone()
    await one.open()
    await one.add({ tokenId: 'over', until: 1 })
    await one.add({ tokenId: 'for ever' })
    const two = alone()
    const seen: unknown[] = []
    two.onList = rules => seen.push(...rules)
    await two.open()
    expect(seen).toMatchObject([{ tokenId: 'for ever' }])
    one.close()
    two.close()
  })
})
