/**
 * Who may speak to a replica: whoever has a certificate of the peers' authority, for one fixed name. No address in the
 * directory says what name to expect, so a forged one leads nowhere.
 */
import type { TLSSocket } from 'node:tls'
import { ASKING, MODERN } from '../../protocol/base/tls-profile.ts'
import type { Pem, TlsFiles, TlsPair } from '../tls.ts'

/** The name that certificates of replicas are for (a DNS name among their alternative names). */
export const PEER_NAME = 'replica.sallyport.internal'
const ALPN = 'sallyport-peer/1'

export interface PeerTlsFiles extends TlsFiles {
  /** Authority of the replicas' certificates (PEM). */
  readonly ca: Pem
}

export interface PeerTls extends TlsPair {
  readonly ca: Pem | Pem[]
}

/** For both ends; each shows its certificate. */
export function peerTlsOptions({ cert, key, ca }: PeerTls) {
  return { ...MODERN, ...ASKING, cert, key, ca, ALPNProtocols: [ALPN] }
}

/** Whether the other end, whose chain was checked, is a replica. */
export function isReplica(socket: TLSSocket): boolean {
  return (
    socket.authorized &&
    socket.alpnProtocol === ALPN &&
    socket.getPeerX509Certificate()?.checkHost(PEER_NAME, { subject: 'never' }) !== undefined
  )
}
