import { createPrivateKey, X509Certificate } from 'node:crypto'
import { certificatesIn } from '../protocol/base/certificates.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import type { CertificateAndKey } from './authority.ts'
import { checkRuntimeName, parseHostName, runtimeToUri } from './names.ts'
import { BACKDATE_MS, EC_P256, endOf, generateEcKeys, loadX509, privateKeyToPem, wholeSeconds } from './x509.ts'

/** How long a certificate is valid. */
export interface LeafOptions {
  /** Default 397. Never longer than the authority itself is valid. */
  validDays?: number
  /** Default: the system's clock. */
  now?: number
}

/** Options of a server certificate. */
export interface ServerCertificateOptions extends LeafOptions {
  /** DNS names, wildcards and IP addresses; see `parseHostName`. At least one. */
  hosts: readonly string[]
}

/** Options of a client certificate. */
export interface ClientCertificateOptions extends LeafOptions {
  /** The runtime that the holder may serve. */
  runtime: string
}

const LEAF: Members<LeafOptions> = { validDays: 'number', now: 'number' }
const SERVER: Members<ServerCertificateOptions> = { ...LEAF, hosts: 'strings' }
const CLIENT: Members<ClientCertificateOptions> = { ...LEAF, runtime: 'string' }

interface AlternativeName {
  type: 'dns' | 'ip' | 'url'
  value: string
}

/**
 * Makes a certificate for a listener: EKU `serverAuth`, with the hosts as subject alternative names.
 *
 * @example
 * ```ts
 * import { createAuthority, createServerCertificate } from 'sallyport/certs'
 *
 * const authority = await createAuthority()
 * const { certificate, key } = await createServerCertificate(authority, { hosts: ['localhost', '127.0.0.1'] })
 * ```
 */
export async function createServerCertificate(
  authority: CertificateAndKey,
  options: ServerCertificateOptions,
): Promise<CertificateAndKey> {
  checkMembers('', options, SERVER)
  const names = options.hosts.map(parseHostName)
  const first = names[0]
  if (!first) throw new TypeError('a server certificate needs at least one host')
  return issue(authority, { commonName: first.value, names, usage: 'serverAuth', ...options })
}

/**
 * Makes a certificate for a tunnel client: EKU `clientAuth`, with its runtime as the only subject alternative name.
 *
 * @example
 * ```ts
 * import { createAuthority, createClientCertificate } from 'sallyport/certs'
 *
 * const authority = await createAuthority()
 * const { certificate, key } = await createClientCertificate(authority, { runtime: 'prod' })
 * ```
 */
export async function createClientCertificate(
  authority: CertificateAndKey,
  options: ClientCertificateOptions,
): Promise<CertificateAndKey> {
  checkMembers('', options, CLIENT)
  const runtime = checkRuntimeName(options.runtime)
  const names = [{ type: 'url' as const, value: runtimeToUri(runtime) }]
  return issue(authority, { commonName: runtime, names, usage: 'clientAuth', ...options })
}

/** The name in the certificates of replicas. */
export const REPLICA_NAME = 'replica.sallyport.internal'

/**
 * Makes a certificate for `--peer.tls.cert`, which replicas show at both ends of a connection.
 *
 * @example
 * ```ts
 * import { createAuthority, createReplicaCertificate } from 'sallyport/certs'
 *
 * const { certificate, key } = await createReplicaCertificate(await createAuthority({ name: 'Replicas' }))
 * ```
 */
export async function createReplicaCertificate(
  authority: CertificateAndKey,
  options: LeafOptions = {},
): Promise<CertificateAndKey> {
  checkMembers('', options, LEAF)
  const names = [{ type: 'dns' as const, value: REPLICA_NAME }]
  return issue(authority, { commonName: REPLICA_NAME, names, usage: ['serverAuth', 'clientAuth'], ...options })
}

type Usage = 'serverAuth' | 'clientAuth'

interface Issue extends LeafOptions {
  commonName: string
  names: AlternativeName[]
  usage: Usage | readonly Usage[]
}

async function issue(authority: CertificateAndKey, leaf: Issue): Promise<CertificateAndKey> {
  const { validDays = 397, now = Date.now() } = leaf
  const end = endOf(validDays, now)
  const signer = signerOf(authority)
  const x509 = await loadX509()
  const ca = new x509.X509Certificate(signer)
  const signingKey = await importSigningKey(authority.key)
  const keys = await generateEcKeys()
  const notBefore = Math.max(now - BACKDATE_MS, ca.notBefore.getTime())
  const notAfter = Math.min(end, ca.notAfter.getTime())
  if (notAfter <= now) throw new TypeError(`the authority expired at ${ca.notAfter.toISOString()}`)
  const certificate = await x509.X509CertificateGenerator.create({
    // RFC 5280 allows a common name of 64 characters. Only the alternative name matters.
    subject: [{ CN: [leaf.commonName.slice(0, 64)] }],
    issuer: ca.subject,
    notBefore: wholeSeconds(notBefore),
    notAfter: wholeSeconds(notAfter),
    publicKey: keys.publicKey,
    signingKey,
    signingAlgorithm: EC_P256,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([leaf.usage].flat().map(usage => x509.ExtendedKeyUsage[usage])),
      new x509.SubjectAlternativeNameExtension(leaf.names),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(ca.publicKey),
    ],
  })
  return { certificate: `${certificate.toString('pem')}\n`, key: await privateKeyToPem(keys.privateKey) }
}

/** The authority's certificate that matches its key. While authorities are being rotated, the file has both. */
function signerOf(authority: CertificateAndKey): string {
  const key = createPrivateKey(authority.key)
  const signer = certificatesIn(authority.certificate).find(one => new X509Certificate(one).checkPrivateKey(key))
  if (signer === undefined) throw new TypeError("the authority's key does not match its certificate")
  if (!new X509Certificate(signer).ca) throw new TypeError('the certificate that should sign is not an authority')
  if (key.asymmetricKeyDetails?.namedCurve !== 'prime256v1') {
    throw new TypeError("the authority's key is not ECDSA P-256, the only supported kind")
  }
  return signer
}

function importSigningKey(pem: string): Promise<CryptoKey> {
  const der = createPrivateKey(pem).export({ type: 'pkcs8', format: 'der' })
  return crypto.subtle.importKey('pkcs8', new Uint8Array(der), EC_P256, false, ['sign'])
}
