/** What several servers need to act as one: the shared directory, and the connections between them. */

import { randomBytes } from 'node:crypto'
import { formatAddress } from '../protocol/base/host-port.ts'
import { resolveLimits } from '../protocol/base/limit.ts'
import type { SharedRevocations } from './auth/revocation-store.ts'
import type { Directory } from './directory/directory.ts'
import { MemoryDirectory } from './directory/memory.ts'
import type { SharedOperators } from './directory/operators.ts'
import { SharedDirectory } from './directory/shared-directory.ts'
import type { StoreOptions } from './directory/store.ts'
import { storeKindOf } from './directory/stores.ts'
import { LEASE } from './limits.ts'
import type { Opened } from './opened.ts'
import type { ResolvedServerOptions } from './options.ts'
import { Peers } from './peer/peers.ts'
import type { SpliceOwner } from './peer/splice.ts'
import type { PeerTls } from './peer/tls.ts'
import type { PeerOptions } from './replica-options.ts'
import { loadTls, TlsKeeper, type TlsPair } from './tls.ts'

const DEFAULT_PREFIX = 'sallyport'

export interface Replicas {
  readonly directory: Directory
  /** Whether several servers share the directory. */
  readonly shared: boolean
  readonly peers: Peers | undefined
  readonly keeper: TlsKeeper | undefined
  /** Forwards an operator's question to all replicas. */
  readonly operators: SharedOperators | undefined
  /** Picks a session of this server when another replica hands an exchange over. Set by the server. */
  pick: SpliceOwner['pick']
}

/** Opens the directory. Resolves once it has answered, or could not be reached. See `SharedDirectoryOptions` for `prepare`. */
export async function openReplicas(
  settings: ResolvedServerOptions,
  opened: Opened,
  prepare: () => Promise<void>,
): Promise<Replicas> {
  const { directory } = settings
  if (directory !== undefined && 'url' in directory) return openShared(settings, directory, opened, prepare)
  const alone = { shared: false, peers: undefined, keeper: undefined, operators: undefined, pick: () => undefined }
  return { directory: directory ?? new MemoryDirectory(), ...alone }
}

async function openShared(
  settings: ResolvedServerOptions,
  options: StoreOptions,
  opened: Opened,
  prepare: () => Promise<void>,
): Promise<Replicas> {
  const { logger, record } = settings
  const { prefix = DEFAULT_PREFIX } = options
  const { leaseMs } = resolveLimits(LEASE, { leaseMs: options.leaseMs })
  // Two processes with the same name, as after a restart, are two replicas.
  const replica = `${encodeURIComponent(settings.replica)}~${randomBytes(4).toString('hex')}`
  const pick: Replicas['pick'] = (...wanted) => replicas.pick(...wanted)
  const { peer } = settings
  const beside = peer && (await openPeers(settings, peer, { replica, leaseMs, pick }, opened))
  const kind = storeKindOf(options.url)
  const member = { replica, address: beside?.peers.address ?? '', leaseMs }
  const store = await kind.make(options, prefix, member)
  const directory = new SharedDirectory({ store, replica, leaseMs, logger, witnesses: beside?.peers, record, prepare })
  const known = () => [...directory.living, ...(beside?.peers.connected ?? [])]
  const operators = await kind.operators?.(options, prefix, { replica, known, logger })
  const replicas: Replicas = {
    directory,
    shared: true,
    peers: beside?.peers,
    keeper: beside?.keeper,
    operators,
    pick: () => undefined,
  }
  opened.add(directory)
  if (operators !== undefined) opened.add(operators)
  await Promise.all([directory.open(), operators?.open()])
  return replicas
}

interface Ourselves {
  readonly replica: string
  readonly leaseMs: number
  readonly pick: Replicas['pick']
}

async function openPeers(
  { limits, logger }: ResolvedServerOptions,
  peer: PeerOptions,
  ourselves: Ourselves,
  opened: Opened,
) {
  const tls = await loadTls(peer.tls)
  const peers = new Peers({
    ...ourselves,
    tls: withAuthorities(tls),
    bufferBytes: limits.processBufferBytes,
    bufferBytesPerRuntime: limits.bufferBytesPerRuntime || limits.processBufferBytes,
    maxWindowBytes: limits.maxWindowBytes,
    logger,
  })
  opened.add(peers)
  const bound = await peers.bind({ host: peer.host, port: peer.port, fd: peer.fd }, peer.advertise)
  logger.info({ name: 'peer', address: formatAddress(bound) }, 'listening')
  const keeper = opened.add(new TlsKeeper(peer.tls, tls, pair => peers.setTls(withAuthorities(pair)), logger))
  return { peers, keeper }
}

/** Never without authorities, since then those of the system would count. */
function withAuthorities({ ca = [], ...pair }: TlsPair): PeerTls {
  return { ...pair, ca }
}

/** The revocations that replicas share, if there is a shared directory. */
export async function openSharedRevocations(settings: ResolvedServerOptions): Promise<SharedRevocations | undefined> {
  const { directory } = settings
  if (directory === undefined || !('url' in directory)) return undefined
  return storeKindOf(directory.url).revocations?.(directory, directory.prefix ?? DEFAULT_PREFIX, settings)
}

/** Leaves the directory and closes the connections to other replicas. */
export async function closeReplicas({ directory, peers, keeper, operators }: Replicas): Promise<void> {
  keeper?.close()
  operators?.close()
  await directory.close()
  await peers?.close()
}
