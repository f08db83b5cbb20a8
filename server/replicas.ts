/** What makes several servers one: the directory that they share, and the connections between them. */
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Directory } from './directory/directory.ts'
import { MemoryDirectory } from './directory/memory.ts'
import type { RedisDirectory } from './directory/redis.ts'
import type { RedisAddress } from './directory/redis-link.ts'
import type { Settings } from './options.ts'
import { Peers } from './peer/peers.ts'
import type { SplicedSession } from './peer/splice.ts'
import type { RedisOptions } from './replica-options.ts'
import { loadTls, TlsKeeper } from './tls.ts'

export const DEFAULT_LEASE_MS = 10_000

export interface Replicas {
  readonly directory: Directory
  /** Whether it is the directory of several servers. */
  readonly shared: boolean
  readonly peers: Peers | undefined
  readonly keeper: TlsKeeper | undefined
  /** Asked for a session of this server, when another replica hands an exchange over; set by the server. */
  pick: (runtime: string, epoch: number) => SplicedSession | undefined
}

/** Opens the directory; resolves once it has answered, or could not be reached. */
export async function openReplicas(settings: Settings): Promise<Replicas> {
  const { directory } = settings
  if (directory === undefined || !('url' in directory)) {
    const alone = { shared: false, peers: undefined, keeper: undefined, pick: () => undefined }
    return { directory: directory ?? new MemoryDirectory(), ...alone }
  }
  // Two processes of one name, as after a restart, are two replicas.
  const replica = `${encodeURIComponent(settings.replica)}~${randomBytes(4).toString('hex')}`
  const replicas: { -readonly [K in keyof Replicas]: Replicas[K] } = {
    directory: new MemoryDirectory(),
    shared: true,
    peers: undefined,
    keeper: undefined,
    pick: () => undefined,
  }
  const address = await openPeers(settings, replica, directory, replicas)
  const { RedisDirectory: Redis } = await import('./directory/redis.ts')
  const redis: RedisDirectory = new Redis({
    redis: () => readAddress(directory),
    replica,
    address,
    leaseMs: directory.leaseMs ?? DEFAULT_LEASE_MS,
    prefix: directory.prefix ?? 'sallyport',
    logger: settings.logger,
    witnesses: replicas.peers,
    record: settings.record,
  })
  replicas.directory = redis
  await redis.open()
  return replicas
}

/** Returns the address that other replicas are told. */
async function openPeers(
  settings: Settings,
  replica: string,
  directory: RedisOptions,
  replicas: { -readonly [K in keyof Replicas]: Replicas[K] },
): Promise<string> {
  const { peer, limits, logger } = settings
  if (peer === undefined) return ''
  const { ca } = peer.tls
  const peers = new Peers({
    replica,
    tls: { ...(await loadTls(peer.tls)), ca },
    leaseMs: directory.leaseMs ?? DEFAULT_LEASE_MS,
    bufferBytes: limits.processBufferBytes,
    maxWindowBytes: limits.maxWindowBytes,
    logger,
    pick: (runtime, epoch) => replicas.pick(runtime, epoch),
  })
  const bound = await peers.bind(peer.host ?? '127.0.0.1', peer.port)
  logger.info({ name: 'peer', address: bound }, 'listening')
  replicas.peers = peers
  replicas.keeper = new TlsKeeper(peer.tls, pair => peers.setTls({ ...pair, ca }), logger)
  return peer.advertise ?? bound
}

async function readAddress({ url, user, password, ca }: RedisOptions): Promise<RedisAddress> {
  const secret = typeof password === 'object' ? (await readFile(password.file, 'utf8')).trim() : password
  return { url, user, password: secret, ca }
}

/** Tells the others that this server stops. */
export async function closeReplicas({ directory, peers, keeper }: Replicas): Promise<void> {
  keeper?.close()
  await directory.close()
  peers?.close()
}
