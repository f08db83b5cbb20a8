/**
 * The stores that several servers can share, by the scheme of the URL. A store is loaded when it is used, so a server on its
 * own pays for none.
 */
import type { Logger } from '../../protocol/base/log.ts'
import type { SharedRevocations } from '../auth/revocation-store.ts'
import type { AskingReplica, SharedOperators } from './operators.ts'
import { checkRedis, type RedisOptions } from './redis-options.ts'
import type { DirectoryStore, StoreMember, StoreOptions } from './store.ts'

/** A row of the table; its methods take the options that the kind has. */
interface StoreKind {
  /** Throws a TypeError that names the option that is wrong. */
  check(options: StoreOptions): void
  /** Makes the store, which is not connected yet. */
  make(options: StoreOptions, prefix: string, member: StoreMember): Promise<DirectoryStore>
  /** Lets operators ask all replicas at once. If absent, they must ask each one. */
  operators?(options: StoreOptions, prefix: string, asking: AskingReplica): Promise<SharedOperators>
  /** The revocations that all replicas share. If absent, each has its own. */
  revocations?(
    options: StoreOptions,
    prefix: string,
    { logger, keptClock }: { readonly logger: Logger; readonly keptClock: () => number },
  ): Promise<SharedRevocations>
}

/** Read anew for each connection. */
async function addressOf(options: RedisOptions) {
  const { readAddress } = await import('./redis-address.ts')
  return () => readAddress(options)
}

const redis: StoreKind = {
  check: checkRedis,
  async make(options: RedisOptions, prefix, member) {
    const { RedisStore } = await import('./redis-store.ts')
    return new RedisStore({ ...member, redis: await addressOf(options), prefix })
  },
  async operators(options: RedisOptions, prefix, asking) {
    const { RedisOperators } = await import('./redis-operators.ts')
    return new RedisOperators({ ...asking, redis: await addressOf(options), prefix })
  },
  async revocations(options: RedisOptions, prefix, { logger, keptClock }) {
    const { RedisRevocations } = await import('./redis-revocations.ts')
    return new RedisRevocations({ redis: await addressOf(options), prefix, logger, now: keptClock })
  },
}

export const STORES: Readonly<Record<string, StoreKind>> = {
  redis,
  rediss: redis,
  'redis+sentinel': redis,
  'rediss+sentinel': redis,
}

/** Throws a TypeError if no store has that scheme. */
export function storeKindOf(url: string): StoreKind {
  const [, scheme = ''] = /^([a-z+]+):\/\//.exec(url) ?? []
  if (Object.hasOwn(STORES, scheme)) return STORES[scheme]!
  const schemes = Object.keys(STORES).map(each => `${each}://`)
  throw new TypeError(`directory.url must begin with ${schemes.slice(0, -1).join(', ')} or ${schemes.at(-1)}`)
}
