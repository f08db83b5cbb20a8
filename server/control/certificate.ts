import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'

/** What a client certificate says. */
export interface ClientCertificateInfo {
  /** SHA-256 of the DER encoding, base64url. */
  readonly thumbprint: string
  /** Subject alternative names, such as `URI:urn:sallyport:runtime:prod`. */
  readonly names: readonly string[]
}

/**
 * The certificate of a client whose authority was checked; undefined if it sent none. One that has ended is none: a server of an embedder's may
 * resume TLS sessions, and OpenSSL does not look at the certificate again then.
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
