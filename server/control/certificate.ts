import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'

/** What we need to know about a client certificate. */
export interface ClientCertificateInfo {
  /** SHA-256 of the DER encoding, base64url. */
  readonly thumbprint: string
  /** Subject alternative names, such as `URI:urn:sallyport:runtime:prod`. */
  readonly names: readonly string[]
}

/**
 * The certificate of a client, verified against our authority. `undefined` if it sent none, or one that has expired: an embedder's
 * server may resume TLS sessions, and OpenSSL does not check the certificate again then.
 */
export function certificateOf(socket: Socket): ClientCertificateInfo | undefined {
  const tls = socket as TLSSocket
  if (typeof tls.getPeerX509Certificate !== 'function' || !tls.authorized) return undefined
  const certificate = tls.getPeerX509Certificate()
  if (certificate === undefined || certificate.validToDate.getTime() <= Date.now()) return undefined
  return {
    thumbprint: Buffer.from(certificate.fingerprint256.replaceAll(':', ''), 'hex').toString('base64url'),
    names: certificate.subjectAltName?.split(', ') ?? [],
  }
}
