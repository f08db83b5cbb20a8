import { X509Certificate } from 'node:crypto'
import { certificatesIn } from '../protocol/base/certificates.ts'
import { runtimeFromUri } from './names.ts'

/** A human-readable description of a certificate. */
export interface CertificateReport {
  readonly subject: string
  readonly issuer: string
  readonly serialNumber: string
  /** Subject alternative names, as `DNS:*.example.com`, `IP Address:127.0.0.1`, `URI:...`. */
  readonly names: readonly string[]
  /** The runtime that a client certificate names. */
  readonly runtime: string | undefined
  readonly validFrom: Date
  readonly validTo: Date
  readonly authority: boolean
  /** `serverAuth`, `clientAuth`, or an OID. */
  readonly usages: readonly string[]
  /** `ec prime256v1`, `rsa 2048`. */
  readonly key: string
  /** SHA-256, hex with colons. */
  readonly fingerprint: string
}

const USAGE_NAMES: Record<string, string> = {
  '1.3.6.1.5.5.7.3.1': 'serverAuth',
  '1.3.6.1.5.5.7.3.2': 'clientAuth',
}

/**
 * Describes each certificate in a PEM text. Throws a `TypeError` if there is none, or if one is truncated or damaged.
 *
 * @example
 * ```ts
 * import { readFile } from 'node:fs/promises'
 * import { inspectCertificates } from 'sallyport/certs'
 *
 * for (const { subject, validTo } of inspectCertificates(await readFile('server.pem', 'utf8'))) {
 *   console.log(subject, validTo.toISOString())
 * }
 * ```
 */
export function inspectCertificates(pem: string): CertificateReport[] {
  return certificatesIn(pem).map(one => describe(new X509Certificate(one)))
}

function describe(certificate: X509Certificate): CertificateReport {
  const names = certificate.subjectAltName?.split(', ') ?? []
  const uris = names.filter(name => name.startsWith('URI:')).map(name => name.slice(4))
  return {
    subject: certificate.subject ?? '',
    issuer: certificate.issuer ?? '',
    serialNumber: certificate.serialNumber,
    names,
    runtime: uris.map(runtimeFromUri).find(runtime => runtime !== undefined),
    validFrom: new Date(certificate.validFrom),
    validTo: new Date(certificate.validTo),
    authority: certificate.ca,
    usages: (certificate.keyUsage ?? []).map(oid => USAGE_NAMES[oid] ?? oid),
    key: describeKey(certificate),
    fingerprint: certificate.fingerprint256,
  }
}

function describeKey(certificate: X509Certificate): string {
  const { asymmetricKeyType, asymmetricKeyDetails } = certificate.publicKey
  const detail = asymmetricKeyDetails?.namedCurve ?? asymmetricKeyDetails?.modulusLength ?? ''
  return `${asymmetricKeyType ?? 'unknown'} ${detail}`.trim()
}
