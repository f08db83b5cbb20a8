/** The options of a directory in Redis. */

import type { LimitOptions } from '../../protocol/base/limit.ts'
import { checkMembers, type Members } from '../../protocol/base/members.ts'
import { LEASE } from '../limits.ts'
import { readPlace } from './redis-url.ts'

/** A directory in Redis 7.0 or newer, or a server that speaks its protocol. */
export interface RedisOptions extends LimitOptions<typeof LEASE> {
  /**
   * `redis://` or `rediss://`, host, port, and the number of the database. For a cluster, or a primary and its standbys, several
   * hosts with commas: `redis://a:6379,b:6379`. With Sentinels: `redis+sentinel://a:26379,b:26379/NAME`, or `rediss+sentinel://`.
   */
  readonly url: string
  /** Redis user (ACL). */
  readonly user?: string | undefined
  /** A file is read for each connection. */
  readonly password?: string | { readonly file: string } | undefined
  /** Credentials for the Sentinels, if they require any. Sentinels do not know the users of Redis. */
  readonly sentinel?:
    | { readonly user?: string | undefined; readonly password?: string | { readonly file: string } | undefined }
    | undefined
  /** Authority of Redis's certificate (PEM), for `rediss:` only. Default: the system's authorities. */
  readonly ca?: string | Buffer | undefined
  /** Prefix of the keys and channels. Default `sallyport`. Services on one Redis need a prefix or a database each. */
  readonly prefix?: string | undefined
}

const MEMBERS: Members<RedisOptions, typeof LEASE> = {
  url: 'string',
  user: 'string',
  password: 'content',
  sentinel: 'object',
  ca: 'content',
  prefix: 'string',
}

/** Throws a TypeError that names the option that is wrong. */
export function checkRedis(options: RedisOptions): void {
  const { url, sentinel } = options
  checkMembers('directory', options, MEMBERS, LEASE)
  checkMembers('directory.sentinel', sentinel, { user: 'string', password: 'content' })
  try {
    readPlace(url)
  } catch (error) {
    throw new TypeError(`directory.url ${(error as Error).message}`, { cause: error })
  }
  const asksSentinels = /^rediss?\+sentinel:/.test(url)
  if (sentinel !== undefined && !asksSentinels) throw new TypeError('directory.sentinel needs redis+sentinel://')
}
