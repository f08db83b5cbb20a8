/**
 * TLS between replicas. Both ends need a certificate from the peers' authority for one fixed name. The expected name does not come
 * from the directory, so a forged address leads nowhere.
 */
import type { TLSSocket } from 'node:tls'
import { ASKING, MODERN } from '../../protocol/base/tls-profile.ts'
import type { Authorities, Pem, TlsFiles, TlsPair } from '../tls.ts'

/** The name in the certificates of replicas, as a DNS subject alternative name. */
export const PEER_NAME = 'replica.sallyport.internal'
const ALPN = 'sallyport-peer/1'

export interface PeerTlsFiles extends TlsFiles {
  /** Authorities of the replicas' certificates (PEM, or a file, which is watched). */
  readonly ca: Authorities
}

export interface PeerTls extends TlsPair {
  readonly ca: Pem | Pem[]
}

/** Options for both ends, which both show their certificate. */
export function peerTlsOptions({ cert, key, ca }: PeerTls) {
  return { ...MODERN, ...ASKING, cert, key, ca, ALPNProtocols: [ALPN] }
}

/** Whether the other end, whose certificate chain was verified, is a replica. */
export function isReplica(socket: TLSSocket): boolean {
  return (
    socket.authorized &&
    socket.alpnProtocol === ALPN &&
    socket.getPeerX509Certificate()?.checkHost(PEER_NAME, { subject: 'never' }) !== undefined
  )
}
