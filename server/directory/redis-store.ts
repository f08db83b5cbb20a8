/** The directory's store in Redis: two scripts, a hash for each runtime, one for the replicas, and a channel. */
import { MAX_INSTANCES } from './directory.ts'
import { type RedisAddress, RedisLink } from './redis-link.ts'
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
  /** Read at each connect, so that a changed password counts. */
  readonly redis: () => Promise<RedisAddress>
  readonly prefix: string
}

export class RedisStore implements DirectoryStore {
  readonly kind = 'redis'
  readonly #options: RedisStoreOptions
  /** There are standbys, which may have taken over when nobody listens. */
  #several = false

  constructor(options: RedisStoreOptions) {
    this.#options = options
  }

  async open(listener: StoreListener, deadlineMs: number, signal: AbortSignal): Promise<StoreLink> {
    const { redis, prefix } = this.#options
    const place = placeOf(prefix)
    const told = {
      message: (text: string) => listener.notice(text),
      closed: (error: Error) => listener.closed(error),
    }
    const link = await RedisLink.open(await redis(), place, deadlineMs, told, signal)
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
        `${prefix}:changes`,
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

/** What a link to the directory of that prefix needs: its channel, and the key that decides which node it talks to. */
export function placeOf(prefix: string): { channel: string; key: string } {
  return { channel: `${prefix}:changes`, key: keyOf(prefix, 'replicas') }
}

/** A cluster chooses the node by what is in braces, so a script finds all its keys on one node. */
function keyOf(prefix: string, name: string): string {
  return `{${prefix}}:${name}`
}

/**
 * Whether nobody listens there, for whomever. All else may be so from here alone: no way to the machine, a name that does not
 * resolve, a reset, an answer that does not come, a file of ours that cannot be read. Of several addresses each must say so.
 */
export function isRefused(error: unknown): boolean {
  const { code, errors } = error as { code?: string; errors?: unknown[] }
  return errors?.every(isRefused) ?? code === 'ECONNREFUSED'
}
