/** The options of {@link createServer} about other replicas. */

import { EVERYWHERE, readDialled } from '../protocol/base/host-port.ts'
import { checkLimit, checkSocket, demand } from '../protocol/base/limit.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import type { Directory } from './directory/directory.ts'
import type { StoreOptions } from './directory/store.ts'
import { storeKindOf } from './directory/stores.ts'
import { LEASE } from './limits.ts'
import type { PeerTlsFiles } from './peer/tls.ts'
import { checkTlsFiles } from './tls.ts'

/** The listener for other replicas, and how they reach it. It uses mutual TLS. */
export interface PeerOptions {
  /** Default `127.0.0.1`. */
  readonly host?: string | undefined
  /** 0 takes a free port. */
  readonly port: number
  /** A listening socket instead of host and port; see {@link PublicOptions.fd}. */
  readonly fd?: number | undefined
  /** The `host:port` at which the other replicas reach it. Default: the address it listens on. */
  readonly advertise?: string | undefined
  /** A certificate for `replica.sallyport.internal`, used at both ends, and the authority that issued it and those of the others. */
  readonly tls: PeerTlsFiles
}

const PEER: Members<PeerOptions> = { host: 'string', port: 'number', fd: 'number', advertise: 'string', tls: 'object' }

/** Throws a TypeError that names the option that is wrong. */
export function checkReplicas(directory: Directory | StoreOptions | undefined, peer: PeerOptions | undefined): void {
  const shared = directory !== undefined && 'url' in directory ? directory : undefined
  if (shared !== undefined) {
    storeKindOf(shared.url).check(shared)
    checkLimit('directory.leaseMs', LEASE.leaseMs, shared.leaseMs)
    demand(
      /^[a-z0-9:._-]{1,64}$/i.test(shared.prefix ?? 'sallyport'),
      'directory.prefix must be 1 to 64 letters, digits, ".", "_", ":" or "-"',
    )
  }
  if (peer === undefined) return
  checkMembers('peer', peer, PEER)
  checkSocket(peer, 'peer.')
  demand(shared !== undefined, 'peer needs a directory that several servers share')
  demand(peer.tls !== undefined, 'peer.tls is required')
  checkTlsFiles('peer.tls', peer.tls)
  const isDialled = peer.advertise === undefined || readDialled(peer.advertise) !== undefined
  demand(isDialled, 'peer.advertise must be host:port')
  const everywhere = EVERYWHERE.test(peer.host ?? '')
  demand(peer.advertise !== undefined || !everywhere, 'peer.advertise is required if peer.host is a wildcard address')
}
