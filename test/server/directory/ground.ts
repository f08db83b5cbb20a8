/**
 * What the suite for the directory's algorithm runs on: a store and its clock, either in memory with a fake clock, or a
 * real Redis.
 */
import { vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Registration, RuntimeState } from '../../../server/directory/directory.ts'
import { RedisStore } from '../../../server/directory/redis-store.ts'
import { SharedDirectory, type SharedDirectoryOptions } from '../../../server/directory/shared-directory.ts'
import type { DirectoryStore, StoreMember } from '../../../server/directory/store.ts'
import { unhurried } from '../../support/busy.ts'
import { FaultyStore } from '../../support/faulty-store.ts'
import { MemoryStore } from '../../support/memory-store.ts'
import { Redis } from '../../support/redis.ts'
import { setClock } from '../../support/redis-clock.ts'

export interface Ground {
  readonly leaseMs: number
  storeFor(member: StoreMember): DirectoryStore
  /** The store loses all its data. */
  forget(): Promise<void>
  /**
   * Resolves to a function that restores the current state, as a failover or a restart that loses the last writes does.
   */
  keep(): Promise<() => Promise<void>>
  /** It is no longer young. */
  age(): Promise<void>
  setClock(seconds: number): Promise<void>
  /** A little time passes. */
  pass(): Promise<void>
  stop(): Promise<void>
}

export async function inMemory(): Promise<Ground> {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  const store = new MemoryStore()
  return {
    leaseMs: 1000,
    storeFor: member => store.for(member),
    forget: async () => store.forget(),
    keep: async () => {
      const restore = store.keep()
      return async () => restore()
    },
    age: async () => store.age(),
    setClock: async seconds => {
      store.skewMs = seconds * 1000
    },
    pass: async () => void (await vi.advanceTimersByTimeAsync(7)),
    stop: async () => void vi.useRealTimers(),
  }
}

/** The time in its scripts must be mocked by `skewed`. */
export async function inRedis(): Promise<Ground> {
  const redis = await Redis.start()
  return {
    leaseMs: unhurried(3000),
    storeFor: member => new RedisStore({ ...member, redis: async () => ({ url: redis.url }), prefix: 'sallyport' }),
    forget: async () => void (await redis.command('FLUSHALL')),
    keep: () => keep(redis),
    age: () => redis.age(),
    setClock: seconds => setClock(redis, seconds),
    pass: () => new Promise(resolve => setTimeout(resolve, 10)),
    stop: () => redis.stop(),
  }
}

async function keep(redis: Redis): Promise<() => Promise<void>> {
  const kept: string[][] = []
  for (const key of (await redis.command('KEYS', '*')) as string[]) {
    kept.push([key, ...Object.entries((await redis.command('HGETALL', key)) as Record<string, string>).flat()])
  }
  return async () => {
    await redis.command('FLUSHALL')
    for (const hash of kept) await redis.command('HSET', ...hash)
  }
}

type ReplicaOptions = Partial<Pick<SharedDirectoryOptions, 'logger' | 'record' | 'witnesses'>>

/**
 * A directory on a path that fails, with a stand-in for its registry that remembers what it was told, and what is live.
 */
export class Replica {
  readonly directory: SharedDirectory
  readonly path: FaultyStore
  readonly changes: RuntimeState[] = []
  readonly #live = new Map<string, Registration>()

  constructor(ground: Ground, replica: string, options: ReplicaOptions = {}) {
    const { leaseMs } = ground
    this.path = new FaultyStore(ground.storeFor({ replica, address: '', leaseMs }))
    this.directory = new SharedDirectory({ store: this.path, replica, leaseMs, logger: noLogger, ...options })
    this.directory.listen({
      changed: state => {
        this.changes.push(state)
        for (const [key, one] of this.#live) {
          if (one.runtime !== state.runtime) continue
          this.#live.set(key, { ...one, lastEpoch: state.instances.get(one.instance)?.epoch ?? one.lastEpoch })
        }
        options.record?.('learned', state.runtime, state.active, state.epoch)
      },
      regained: () => {},
      live: () => this.#live.values(),
    })
  }

  has(instance: string): boolean {
    return this.#live.has(`demo ${instance}`)
  }

  join(instance: string, lastEpoch = 0, runtime = 'demo'): Promise<RuntimeState> {
    const registration = { runtime, instance, lastEpoch }
    this.#live.set(`${runtime} ${instance}`, registration)
    return this.directory.ready(registration)
  }

  leave(instance: string): void {
    this.#live.delete(`demo ${instance}`)
    this.directory.gone('demo', instance)
  }

  /** What may be acted on. Like the edge, it asks for what is unknown. */
  get state(): RuntimeState | undefined {
    const found = this.directory.find('demo')
    if (found === 'unknown') void this.directory.refresh('demo')
    return found === 'unknown' ? undefined : found
  }

  /** Who is active, and under which epoch. */
  get active(): string {
    return `${this.state?.active} ${this.state?.epoch}`
  }

  replicasOf(instance: string): string {
    return [...(this.state?.instances.get(instance)?.replicas ?? [])].sort().join()
  }
}
