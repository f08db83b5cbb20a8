/** The directory's store in Redis: two scripts, a hash for each runtime, a hash for the replicas, and a channel. */
import { MAX_INSTANCES } from './directory.ts'
import { type RedisAddress, RedisLink } from './redis-link.ts'
import { channelOf } from './redis-url.ts'
import { CHANGE, RENEW } from './scripts.ts'
import {
  type DirectoryChange,
  type DirectoryStore,
  KEEP_DEAD_MS,
  KEEP_EMPTY_MS,
  KEEP_LIVE_MS,
  type StoreLink,
  type StoreListener,
  type StoreMember,
} from './store.ts'

export interface RedisStoreOptions extends StoreMember {
  /** Called for each connection, so that a changed password takes effect. */
  readonly redis: () => Promise<RedisAddress>
  readonly prefix: string
}

export class RedisStore implements DirectoryStore {
  readonly kind = 'redis'
  readonly #options: RedisStoreOptions
  /** There are standbys, one of which may have taken over if nobody listens at the address. */
  #several = false

  constructor(options: RedisStoreOptions) {
    this.#options = options
  }

  async open(listener: StoreListener, deadlineMs: number, signal: AbortSignal): Promise<StoreLink> {
    const { redis, prefix } = this.#options
    const address = await redis()
    const place = placeOf(address.url, prefix)
    const told = {
      message: (text: string) => listener.notice(text),
      closed: (error: Error) => listener.closed(error),
    }
    const link = await RedisLink.open(address, place, deadlineMs, told, signal)
    await link.checkRights(place.key, prefix)
    this.#several = link.several
    return new RedisStoreLink(link, this.#options)
  }

  isAbsent(error: unknown): boolean {
    return !this.#several && isRefused(error)
  }
}

class RedisStoreLink implements StoreLink {
  readonly #link: RedisLink
  readonly #options: RedisStoreOptions

  constructor(link: RedisLink, options: RedisStoreOptions) {
    this.#link = link
    this.#options = options
  }

  change({ operation, runtime, instance, presented, seen, seenActive }: DirectoryChange): Promise<string | null> {
    const { prefix, replica, leaseMs } = this.#options
    return this.#link.run(
      CHANGE,
      [keyOf(prefix, `runtime:${encodeURIComponent(runtime)}`), keyOf(prefix, 'replicas')],
      [
        operation,
        runtime,
        instance,
        replica,
        String(presented),
        String(seen),
        seenActive,
        String(leaseMs),
        String(KEEP_LIVE_MS),
        String(KEEP_EMPTY_MS),
        String(MAX_INSTANCES),
        this.#link.channel,
      ],
    )
  }

  renew(leaseMs: number, isTelling: boolean, latest: number): Promise<string> {
    const { prefix, replica, address } = this.#options
    const args = [leaseMs, KEEP_DEAD_MS, isTelling ? 1 : 0, latest].map(String)
    return this.#link.run<string>(RENEW, keyOf(prefix, 'replicas'), [replica, address, ...args])
  }

  close(): void {
    this.#link.close()
  }
}

/** The channel of the directory with this prefix, and the key that determines the node to connect to. */
export function placeOf(url: string, prefix: string): { channel: string; key: string } {
  return { channel: channelOf(url, prefix, 'changes'), key: keyOf(prefix, 'replicas') }
}

/** A cluster chooses the node by the part in braces, so that a script has all its keys on one node. */
function keyOf(prefix: string, name: string): string {
  return `{${prefix}}:${name}`
}

/**
 * Whether nobody listens at the address, for any replica. All other errors may be local to us: no route, a name that does not
 * resolve, a reset, a timeout, an unreadable file. If there are several addresses, each must have refused.
 */
export function isRefused(error: unknown): boolean {
  const { code, errors } = error as { code?: string; errors?: unknown[] }
  return errors?.every(isRefused) ?? code === 'ECONNREFUSED'
}
