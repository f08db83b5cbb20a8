// @module-tag slow

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import type { Logger } from '../../../protocol/base/log.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Registration, RuntimeState } from '../../../server/directory/directory.ts'
import type { RedisAddress } from '../../../server/directory/redis-link.ts'
import { isRefused, RedisStore } from '../../../server/directory/redis-store.ts'
import { SharedDirectory, type SharedDirectoryOptions } from '../../../server/directory/shared-directory.ts'
import { NoWitnesses } from '../../../server/directory/witnesses.ts'
import { unhurried } from '../../support/busy.ts'
import { needs } from '../../support/needs.ts'
import { DIRECTORY_RIGHTS, Redis } from '../../support/redis.ts'
import { Relay } from '../../support/relay.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { until } from '../../support/until.ts'
import { startServer } from '../fixture.ts'

type ReplicaOptions = Partial<SharedDirectoryOptions> & { readonly prefix?: string }

/** Where the end of a lease is waited for. */
const QUICK = { leaseMs: unhurried(1000) }

const LEASE_MS = unhurried(8000)
const SLOWER = { leaseMs: unhurried(2000) }
const SLOW = { leaseMs: unhurried(5000) }

/** A directory, with a stand-in for its registry that remembers what it was told, and what is live. */
class Replica {
  readonly directory: SharedDirectory
  readonly changes: RuntimeState[] = []
  readonly live = new Map<string, Registration>()
  #waiting: (() => void)[] = []

  constructor(redis: RedisAddress, name: string, options: ReplicaOptions = {}) {
    const { leaseMs = LEASE_MS, prefix = 'sallyport', ...rest } = options
    const store = new RedisStore({ redis: async () => redis, replica: name, address: '', leaseMs, prefix })
    this.directory = new SharedDirectory({ store, replica: name, leaseMs, logger: noLogger, ...rest })
    this.directory.listen({
      changed: standing => {
        this.changes.push(standing)
        for (const [key, claim] of this.live) {
          const lastEpoch = standing.instances.get(claim.instance)?.epoch ?? claim.lastEpoch
          this.live.set(key, { ...claim, lastEpoch })
        }
        this.#wake()
      },
      regained: () => this.#wake(),
      live: () => this.live.values(),
    })
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }

  async join(instance: string, lastEpoch = 0, runtime = 'demo'): Promise<RuntimeState> {
    const claim = { runtime, instance, lastEpoch }
    this.live.set(`${runtime} ${instance}`, claim)
    return this.directory.ready(claim)
  }

  leave(instance: string, runtime = 'demo'): void {
    this.live.delete(`${runtime} ${instance}`)
    this.directory.gone(runtime, instance)
  }

  /** Resolves once `holds` does, checked after each change and now and then. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      await new Promise<void>(resolve => {
        const timer = setTimeout(resolve, 50)
        this.#waiting.push(() => {
          clearTimeout(timer)
          resolve()
        })
      })
    }
  }

  get standing(): RuntimeState | undefined {
    const found = this.directory.find('demo')
    return found === 'unknown' ? undefined : found
  }

  get active(): string {
    return `${this.standing?.active} ${this.standing?.epoch}`
  }
}

describe.runIf(needs('redis'))('the directory in Redis', () => {
  let redis: Redis
  const replicas: Replica[] = []
  beforeAll(async () => {
    redis = await Redis.start()
    await redis.age()
  })
  afterAll(() => redis.stop())
  afterEach(async () => {
    await Promise.all(replicas.splice(0).map(({ directory }) => directory.close()))
    await redis.command('FLUSHALL')
    await redis.age()
  })

  async function open(name: string, options: ReplicaOptions = {}, url = redis.url): Promise<Replica> {
    const replica = new Replica({ url }, name, options)
    replicas.push(replica)
    await replica.directory.open()
    return replica
  }

  describe('several replicas', () => {
    test("share an instance's epoch, and each hears of a newer instance at the other", async () => {
      const [a, b] = [await open('a'), await open('b')]
      expect((await a.join('one')).epoch).toBe(1)
      const standing = await b.join('one', 0)
      expect([standing.epoch, [...standing.instances.get('one')!.replicas]]).toEqual([1, ['a', 'b']])
      await b.join('two')
      await a.until(() => a.active === 'two 2')
      expect(a.standing!.instances.get('two')!.replicas).toEqual(['b'])
    })

    test('a standby takes over when the active instance has left all of them, not before', async () => {
      const [a, b] = [await open('a'), await open('b')]
      await a.join('one')
      await a.join('two')
      await b.join('two')
      a.leave('two')
      await b.until(() => b.standing!.instances.get('two')!.replicas.length === 1)
      expect(b.active).toBe('two 2')
      b.leave('two')
      await b.until(() => b.active === 'one 3')
      await a.until(() => a.active === 'one 3')
    })

    test('an instance that loses all its sessions for a moment keeps its epoch', async () => {
      const [a, b] = [await open('a'), await open('b')]
      await a.join('one')
      a.leave('one')
      await a.until(() => a.standing!.instances.get('one')!.replicas.length === 0)
      expect((await b.join('one')).epoch).toBe(1)
      expect(b.active).toBe('one 1')
    })

    test('what a dead replica left behind is removed, and a standby elsewhere takes over', async () => {
      const a = await open('a')
      const relay = await Relay.start({ port: redis.port })
      const b = await open('b', QUICK, `redis://127.0.0.1:${relay.port}`)
      await a.join('one')
      await b.join('two')
      await a.until(() => a.standing?.active === 'two')
      const { epoch } = a.standing!
      relay.silent = true
      // On a busy machine b's lease may have ended before, once or more, each time for another epoch.
      await a.until(() => a.standing?.active === 'one' && a.standing.instances.get('two')?.replicas.length === 0)
      expect(a.standing!.epoch).toBeGreaterThan(epoch)
      await relay.stop()
    })

    test("another replica's runtime is found by asking, and an unknown one is not", async () => {
      const [a, b] = [await open('a'), await open('b', QUICK)]
      await a.join('one')
      expect(b.directory.find('demo')).toBe('unknown')
      // On a busy machine b's lease may end now and then. Meanwhile it does not know.
      await expect.poll(() => b.directory.refresh('demo')).toMatchObject({ epoch: 1, active: 'one' })
      // A young directory may have forgotten; later, what is not in it does not exist.
      await b.until(() => !b.directory.young)
      await expect.poll(() => b.directory.refresh('nobody')).toBeUndefined()
      await a.join('one', 0, 'nobody')
      await expect.poll(() => b.directory.refresh('nobody')).toMatchObject({ epoch: 1 })
      expect(b.directory.find('nobody')).toMatchObject({ epoch: 1 })
    })
  })

  test('a new directory does not count as unreachable', async () => {
    await redis.command('FLUSHALL')
    const lines: string[] = []
    const note = (level: string) => (_fields: object, text: string) => void lines.push(`${level} ${text}`)
    const logger: Logger = { debug: note('debug'), info: note('info'), warn: note('warn'), error: note('error') }
    const a = await open('a', { ...QUICK, logger })
    await a.until(() => a.directory.state === 'connected' && lines.length > 1)
    expect(lines).toEqual([
      'info the directory is new, was emptied or lost writes; nothing is routed until it is as old as a lease',
      'info the directory is reachable',
    ])
  })

  test('however many instances leave at once, none stays behind', async () => {
    const a = await open('a')
    const write =
      "for i = 1, 12000 do redis.call('HSET', KEYS[1] .. i, '@epoch', '1', '@active', 'one', 'one', '1 a') end"
    await redis.command('EVAL', write, '1', '{sallyport}:runtime:r')
    for (let i = 1; i <= 12_000; i++) a.directory.gone(`r${i}`, 'one')
    for (const name of ['r1', 'r10000', 'r10001', 'r12000']) {
      const held = () => redis.command('HGET', `{sallyport}:runtime:${name}`, 'one')
      await until(async () => (await held()) === '1')
    }
  })

  const LATE = String(2 ** 53 - 1)
  const filler = Array.from({ length: 40_000 }, (_, i) => [`i${i}`, `1 ${'r'.repeat(60)}`]).flat()
  test.each([
    ['a version that nothing later reaches', ['1', 'one', LATE, '0', 'one', '1 nobody']],
    ['a version of the moment after', ['1', 'one', String((Date.now() + 60_000) * 1000), '0', 'one', '1 nobody']],
    ['another instance in the same epoch', ['1', 'two', LATE, '0', 'two', '1 nobody']],
    ['nobody in the same epoch', ['1', '', LATE, '0']],
    ['the next epoch', ['2', 'two', LATE, '0', 'two', '2 nobody']],
    ['an epoch of which a client may tell', [String(2 ** 48), 'two', LATE, '0', 'two', `${2 ** 48} nobody`]],
    ['the last epoch that is believed', [String(2 ** 49), 'two', LATE, '0', 'two', `${2 ** 49} nobody`]],
    ['the last epoch of all', ['999999999999999', 'two', LATE, '0', 'two', '999999999999999 nobody']],
    ['more than there can be', ['1', 'one', LATE, '0', 'one', '1 nobody', ...filler]],
  ])('D3: anyone who can only publish, and announces %s, stops a runtime for a lease at most', async (_what, told) => {
    const [a, b] = [await open('a', SLOWER), await open('b', SLOWER)]
    // As the edge does if a busy machine has lost the connection.
    const standing = ({ directory }: Replica) => {
      const found = directory.find('demo')
      if (found === 'unknown') void directory.refresh('demo')
      return found === 'unknown' ? undefined : found
    }
    await b.join('one')
    await a.directory.refresh('demo')
    await redis.command('PUBLISH', 'sallyport:changes', JSON.stringify(['demo', ...told]))
    // What was sent after it on both connections has arrived.
    await Promise.all([a, b].map(each => each.directory.refresh('another')))
    const both = async (holds: (each: RuntimeState) => boolean) => {
      for (const each of [a, b]) {
        await each.until(() => {
          const found = standing(each)
          return found !== undefined && holds(found)
        })
      }
    }
    await both(({ active, instances }) => active === 'one' && instances.get('one')?.replicas.join() === 'b')
    // And changes from then on are heard.
    await a.join('one', standing(b)?.epoch)
    await both(({ instances }) => instances.get('one')?.replicas.length === 2)
    await a.join('two')
    await both(({ active }) => active === 'two')
  })

  describe('D4: Redis is', () => {
    test('killed and comes back empty: what is live is written back with its epochs', async () => {
      const [a, b] = [await open('a', SLOW), await open('b', SLOW)]
      await a.join('one')
      await b.join('two')
      await a.until(() => a.active === 'two 2')
      await redis.kill()
      // The lease on what was known has not ended, so it is acted on.
      expect([a.active, b.active]).toEqual(['two 2', 'two 2'])
      await redis.start()
      await Promise.all(
        [a, b].map(one => one.until(() => one.directory.stats().operations > 4 && one.directory.state === 'connected')),
      )
      const fresh = await open('fresh')
      await fresh.until(() => fresh.directory.state === 'connected')
      await fresh.until(() => {
        void fresh.directory.refresh('demo')
        return fresh.active === 'two 2' && fresh.standing!.instances.size === 2
      })
      expect(fresh.active).toBe('two 2')
    })

    test('flushed: the same, and the highest epoch that anybody presents wins', async () => {
      const [a, b] = [await open('a', SLOW), await open('b', SLOW)]
      await a.join('one')
      await b.join('two')
      await a.until(() => a.active === 'two 2')
      await redis.command('FLUSHALL')
      // A third instance connects before anything is written back: it waits until the directory is no longer young.
      const standing = await a.join('three')
      expect([standing.epoch, standing.active]).toEqual([2, 'two'])
      await b.until(() => b.active === 'three 3')
      // The lost ones are announced to the directory again.
      await a.until(() => a.standing!.instances.get('one')?.replicas.includes('a') ?? false)
      await b.until(() => b.standing!.instances.get('two')?.replicas.includes('b') ?? false)
      await a.until(() => a.standing!.instances.get('two')?.epoch === 2)
    })

    test('paused: nothing waits forever, no new epoch is granted, and an instance that had one is served at once', async () => {
      const witnesses = new NoWitnesses('a')
      const a = await open('a', { ...QUICK, witnesses })
      await a.join('one')
      await a.until(() => witnesses.vouchedUntilMs() > 0)
      redis.pause()
      const startedMs = performance.now()
      const newer = await a.join('two')
      const waitedMs = performance.now() - startedMs
      console.log(`an instance waited ${Math.round(waitedMs)} ms for a directory that does not answer`)
      expect([newer.active, newer.epoch, newer.instances.get('two')!.epoch]).toEqual(['one', 1, 0])
      a.leave('one')
      const again = await a.join('one', 1)
      expect([again.active, again.epoch]).toEqual(['one', 1])
      // As the only replica, it goes on after its lease has ended.
      await a.until(() => a.directory.state === 'presumed')
      expect(a.active).toBe('one 1')
      redis.resume()
      await a.until(() => a.directory.state === 'connected' && a.standing?.active === 'two')
      expect(a.active).toBe('two 2')
    })

    test('unreachable for one of two: that one stops at the end of its lease, and goes on once it is back', async () => {
      const a = await open('a', QUICK)
      const relay = await Relay.start({ port: redis.port })
      const b = await open('b', QUICK, `redis://127.0.0.1:${relay.port}`)
      await b.join('one')
      await b.until(() => b.directory.stats().replicas === 2)
      relay.silent = true
      await b.until(() => b.directory.state === 'lost')
      expect(b.directory.find('demo')).toBe('unknown')
      await a.join('two')
      relay.silent = false
      await b.until(() => b.active === 'two 2')
      await relay.stop()
    })
  })

  test('more instances than can wait for Redis: the directory is asked once it has room, and nothing is presumed', async () => {
    const a = await open('a')
    await a.until(() => a.directory.state === 'connected')
    redis.pause()
    const joining = Array.from({ length: 10_001 }, (_, i) =>
      a.directory.ready({ runtime: `r${i}`, instance: 'one', lastEpoch: 0 }),
    )
    const last = joining.at(-1)!
    const first = await Promise.race([last, new Promise(resolve => setImmediate(resolve, 'it waits'))])
    redis.resume()
    expect(first).toBe('it waits')
    await Promise.all(joining)
  })

  test('that nobody listens is concluded only from refused connections, at each address', () => {
    const errorOf = (code: string, errors?: Error[]) => Object.assign(new Error(code), { code, errors })
    const refused = errorOf('ECONNREFUSED')
    expect([refused, errorOf('ECONNREFUSED', [refused, refused])].map(isRefused)).toEqual([true, true])
    const codes = [
      'ENOENT',
      'ENOTFOUND',
      'EAI_AGAIN',
      'ECONNRESET',
      'ETIMEDOUT',
      'EHOSTUNREACH',
      'ENETUNREACH',
      'EACCES',
    ]
    expect(codes.filter(code => isRefused(errorOf(code)))).toEqual([])
    expect(isRefused(errorOf('ECONNREFUSED', [refused, errorOf('ETIMEDOUT')]))).toBe(false)
  })

  test('a replica that was frozen does not act on what it knew', async () => {
    let stoodStillMs = 0
    const a = await open('a', { now: () => performance.now() + stoodStillMs })
    await open('b')
    await a.join('one')
    await a.until(() => a.directory.stats().replicas === 2)
    stoodStillMs = 4 * LEASE_MS
    expect(a.directory.find('demo')).toBe('unknown')
    await a.until(() => a.standing !== undefined)
    expect(a.active).toBe('one 1')
  })

  test("D1: no name reaches another name's key", async () => {
    const a = await open('a', { prefix: 'sallyport:x' })
    await a.join('one', 0, 'demo')
    await a.join('one', 0, 'a}:runtime:{b')
    expect(((await redis.command('KEYS', '*')) as string[]).sort()).toEqual([
      '{sallyport:x}:replicas',
      '{sallyport:x}:runtime:a%7D%3Aruntime%3A%7Bb',
      '{sallyport:x}:runtime:demo',
      '{sallyport}:replicas',
    ])
  })

  test("D6: a record with sessions outlasts any jump of Redis's clock; others expire", async () => {
    const a = await open('a')
    await a.join('one')
    const ttl = Number(await redis.command('PTTL', '{sallyport}:runtime:demo'))
    // A machine without a battery begins in 1970.
    expect(ttl).toBeGreaterThan(Date.now())
    a.leave('one')
    await a.until(() => a.standing!.instances.get('one')!.replicas.length === 0)
    // What nobody serves is remembered for a day.
    await a.directory.ready({ runtime: 'demo', instance: 'one', lastEpoch: 0 })
    a.directory.gone('demo', 'one')
    await a.until(() => a.standing!.instances.get('one')!.replicas.length === 0)
    const left = Number(await redis.command('PTTL', '{sallyport}:runtime:demo'))
    expect([left > 0, left <= 86_400_000]).toEqual([true, true])
  })

  test('emptied between two renewals: who asks for a runtime just then does not take it for unknown', async () => {
    const [a, b] = [await open('a'), await open('b')]
    await a.join('one')
    await redis.command('FLUSHALL')
    expect(await b.directory.refresh('demo')).toBeDefined()
  })

  test('a replica that closes is gone at once', async () => {
    const [a, b] = [await open('a'), await open('b')]
    await a.until(() => a.directory.stats().replicas === 2)
    await b.directory.close()
    await a.until(() => a.directory.stats().replicas === 1)
  })
})

describe.runIf(needs('redis'))('D2: TLS and an ACL user', () => {
  const user = { name: 'sallyport', password: 'a password of this test' }
  let redis: Redis
  let ca: string
  let folder: string
  beforeAll(async () => {
    const secrets = await makeSecrets()
    ca = secrets.ca
    folder = await mkdtemp(join(tmpdir(), 'sallyport-acl-'))
    redis = await Redis.start({ tls: secrets, user })
  })
  afterAll(async () => {
    await redis.stop()
    await rm(folder, { recursive: true, force: true })
  })

  async function attempt(address: Partial<RedisAddress>): Promise<{ replica: Replica; logged: string }> {
    const lines: string[] = []
    const note = (fields: object, text: string) =>
      lines.push(JSON.stringify({ text, ...fields }), String((fields as { err?: Error }).err))
    const logger: Logger = { debug: note, info: note, warn: note, error: note }
    const replica = new Replica({ url: redis.url, ca, user: user.name, ...address }, 'a', { logger })
    await replica.directory.open()
    const logged = lines.join('\n')
    return { replica, logged }
  }

  test('the documented rights are enough', async () => {
    const { replica } = await attempt({ password: user.password })
    await replica.join('one')
    await replica.until(() => replica.active === 'one 1')
    replica.leave('one')
    await replica.until(() => replica.standing!.instances.get('one')!.replicas.length === 0)
    expect(replica.directory.state).toBe('connected')
    await replica.directory.close()
  })

  test.each([
    ['a wrong password', { password: 'another one' }],
    ['no password', { user: undefined, password: undefined }],
    ['an authority that did not sign its certificate', { password: user.password, ca: undefined }],
    ['no TLS', { password: user.password, url: 'plain' }],
  ])('%s: it is refused, and the message reveals nothing secret', async (_name, change) => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    const url = 'url' in change ? redis.url.replace('rediss:', 'redis:') : redis.url
    const { replica, logged } = await attempt({ ...change, url } as Partial<RedisAddress>)
    expect(replica.directory.state).toBe('lost')
    expect(replica.directory.stats().failures).toBeGreaterThan(0)
    expect(logged).not.toMatch(/a password of this test|another one/)
    await replica.directory.close()
  })

  const CHANNELS = ['changes', 'operators', 'revocations']
  test.each([
    ...DIRECTORY_RIGHTS.split(' ')
      .filter(right => /^[+](?!hello|auth|client|select|ping|unsubscribe)/.test(right))
      .map(
        right =>
          [right, DIRECTORY_RIGHTS.replace(right, ''), new RegExp(right.slice(1).replace('|', '.'), 'i')] as const,
      ),
    ['the keys', DIRECTORY_RIGHTS.replace('~{sallyport}:*', '~other:*'), /NOPERM.*key/] as const,
    ...CHANNELS.map(channel => {
      const others = CHANNELS.filter(other => other !== channel).map(other => `&sallyport:${other}`)
      const rights = DIRECTORY_RIGHTS.replace('&sallyport:*', others.join(' '))
      return [`the channel ${channel}`, rights, new RegExp(`PUBLISH sallyport:${channel}|NOPERM.*channel`)] as const
    }),
  ])('without the right to %s no server starts, and the error says why', async (_name, rights, reason) => {
    const poor = { name: 'poor', password: 'another password' }
    const at = await Redis.start({ user: { ...poor, rights } })
    const address = { url: at.url, user: poor.name, password: poor.password }
    const opened = async () => {
      const { directory } = new Replica(address, 'a')
      await directory.open()
      return directory
    }
    await expect(connected(opened)).rejects.toThrow(reason)
    const started = async () => {
      const server = await startServer({ control: 'off', directory: address })
      return { ...server.stats().directory, close: () => server.close({ graceMs: 0 }) }
    }
    await expect(connected(started)).rejects.toThrow(reason)
    await at.stop()
  })

  /** If a busy machine takes too long to reach Redis, its rights stay unknown, and it is opened again. */
  async function connected(open: () => Promise<{ state: string; close(): Promise<unknown> }>): Promise<void> {
    for (;;) {
      const one = await open()
      const { state } = one
      await one.close()
      if (state !== 'lost') return
    }
  }

  test('a password that changed in its file is used at the next connect', async () => {
    const file = join(folder, 'password')
    await writeFile(file, 'not yet\n')
    const server = await startServer({
      control: 'off',
      directory: { url: redis.url, user: user.name, password: { file }, ca },
    })
    expect(server.stats().directory.state).toBe('lost')
    expect(server.ready()).toBe(false)
    await writeFile(file, `${user.password}\n`)
    await until(() => server.stats().directory.state === 'connected')
    await server.close()
  })
})
