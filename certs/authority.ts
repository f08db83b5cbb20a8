import { checkMembers, type Members } from '../protocol/base/members.ts'
import { BACKDATE_MS, EC_P256, endOf, generateEcKeys, loadX509, privateKeyToPem, wholeSeconds } from './x509.ts'

/** A certificate and its private key, both PEM. */
export interface CertificateAndKey {
  readonly certificate: string
  readonly key: string
}

/** Options of an authority. Each has a default. */
export interface AuthorityOptions {
  /** Common name of the authority; default `Sallyport CA`. */
  name?: string
  /** Default 1825 (five years). */
  validDays?: number
  /** Default: the system's clock. */
  now?: number
}

const MEMBERS: Members<AuthorityOptions> = { name: 'string', validDays: 'number', now: 'number' }

/**
 * Makes a certificate authority: ECDSA P-256, self-signed, and only able to sign leaf certificates (path length 0).
 *
 * @example
 * ```ts
 * import { createAuthority, createServerCertificate } from 'sallyport/certs'
 *
 * const authority = await createAuthority()
 * const server = await createServerCertificate(authority, { hosts: ['*.tunnels.example.com'] })
 * ```
 */
export async function createAuthority(options: AuthorityOptions = {}): Promise<CertificateAndKey> {
  const { name = 'Sallyport CA', validDays = 1825, now = Date.now() } = options
  checkMembers('', options, MEMBERS)
  const end = endOf(validDays, now)
  const x509 = await loadX509()
  const keys = await generateEcKeys()
  const subject = [{ CN: [name] }]
  const certificate = await x509.X509CertificateGenerator.create({
    subject,
    issuer: subject,
    notBefore: wholeSeconds(now - BACKDATE_MS),
    notAfter: wholeSeconds(end),
    publicKey: keys.publicKey,
    signingKey: keys.privateKey,
    signingAlgorithm: EC_P256,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
  return { certificate: `${certificate.toString('pem')}\n`, key: await privateKeyToPem(keys.privateKey) }
}
