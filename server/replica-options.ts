/** What {@link createServer} takes about other replicas. */
import type { Directory } from './directory/directory.ts'
import { readPlace } from './directory/redis-url.ts'
import { readPeerAddress } from './peer/address.ts'
import type { PeerTlsFiles } from './peer/tls.ts'

/** A directory in Redis (or what speaks its protocol), 7.0 or newer. */
export interface RedisOptions {
  /**
   * `redis://` or `rediss://`, host, port, and the number of the database. Of a cluster, or a primary and its standbys, several
   * with commas: `redis://a:6379,b:6379`. With Sentinels `redis+sentinel://a:26379,b:26379/NAME`, or `rediss+sentinel://`.
   */
  readonly url: string
  /** Redis user (ACL). */
  readonly user?: string | undefined
  /** A file is read at each connection. */
  readonly password?: string | { readonly file: string } | undefined
  /** Credentials for the Sentinels, if they demand any. They do not know the users of Redis. */
  readonly sentinel?:
    | { readonly user?: string | undefined; readonly password?: string | { readonly file: string } | undefined }
    | undefined
  /** Authority of Redis's certificate (PEM). Default: those of the system. */
  readonly ca?: string | Buffer | undefined
  /** How long a replica may act on what it knows without confirmation. From 1,000 to 3,600,000; default 5,000. */
  readonly leaseMs?: number | undefined
  /** Prefix of the keys and the channel. Default `sallyport`. */
  readonly prefix?: string | undefined
}

/** The listener for other replicas, and how they reach it. They speak mutual TLS. */
export interface PeerOptions {
  /** Default `127.0.0.1`. */
  readonly host?: string | undefined
  /** 0 takes a free port. */
  readonly port: number
  /** A listening socket in place of host and port; see {@link PublicOptions.fd}. */
  readonly fd?: number | undefined
  /** `host:port` by which the other replicas reach it. Default: where it listens. */
  readonly advertise?: string | undefined
  /** A certificate for `replica.sallyport.internal`, used at both ends, and the authority that issued all of them. */
  readonly tls: PeerTlsFiles
}

const WILDCARD = /^(?:0\.0\.0\.0|::)$/

/** Throws a TypeError that names the option that is wrong. */
export function checkReplicas(directory: Directory | RedisOptions | undefined, peer: PeerOptions | undefined): void {
  const redis = directory !== undefined && 'url' in directory ? directory : undefined
  if (redis !== undefined) {
    checkRedisUrl(redis.url)
    const { leaseMs = 5000 } = redis
    demand(leaseMs >= 1000 && leaseMs <= 3_600_000, 'directory.leaseMs must be from 1,000 to 3,600,000')
    const asksSentinels = /^rediss?\+sentinel:/.test(redis.url)
    demand(redis.sentinel === undefined || asksSentinels, 'directory.sentinel needs redis+sentinel://')
    demand(/^[a-z0-9:._-]{1,64}$/i.test(redis.prefix ?? 'sallyport'), 'directory.prefix is no plain name')
  }
  if (peer === undefined) return
  demand(redis !== undefined, 'peer needs a directory in Redis: without one there are no other replicas')
  demand(peer.tls !== undefined, 'peer.tls is required')
  const isDialled = peer.advertise === undefined || readPeerAddress(peer.advertise) !== undefined
  demand(isDialled, 'peer.advertise must be host:port')
  const everywhere = WILDCARD.test(peer.host ?? '')
  demand(peer.advertise !== undefined || !everywhere, 'peer.advertise is required where peer.host is every address')
}

function checkRedisUrl(url: string): void {
  try {
    readPlace(url)
  } catch (error) {
    throw new TypeError(`directory.url ${(error as Error).message}`, { cause: error })
  }
}

function demand(condition: boolean, message: string): asserts condition {
  if (!condition) throw new TypeError(message)
}
