/** Certificates that no careful authority would issue: ours in `certs/` makes none of them. */
import { createPrivateKey } from 'node:crypto'
import type { CertificateAndKey } from '../../certs/index.ts'
import { DAY_MS, EC_P256, generateEcKeys, loadX509, privateKeyToPem } from '../../certs/x509.ts'

type Usage = 'clientAuth' | 'serverAuth' | 'codeSigning'

export interface OddCertificate {
  readonly commonName?: string
  readonly names?: readonly { type: 'dns' | 'ip' | 'url'; value: string }[]
  /** Default `clientAuth`. */
  readonly usage?: Usage | readonly Usage[]
  readonly isAuthority?: boolean
  /** Of an RSA key instead of one on P-256. It needs an issuer. */
  readonly rsaBits?: number
  /** Days from now. */
  readonly from?: number
  readonly to?: number
}

/** Signed by `issuer`, whatever that may sign; by itself without one. */
export async function oddCertificate(
  issuer: CertificateAndKey | undefined,
  options: OddCertificate = {},
): Promise<CertificateAndKey> {
  const {
    commonName = 'odd',
    names = [],
    usage = 'clientAuth',
    isAuthority = false,
    rsaBits,
    from = -1,
    to = 1,
  } = options
  const x509 = await loadX509()
  const keys = rsaBits === undefined ? await generateEcKeys() : await generateRsaKeys(rsaBits)
  const subject = [{ CN: [commonName] }]
  const certificate = await x509.X509CertificateGenerator.create({
    subject,
    issuer: issuer === undefined ? subject : new x509.X509Certificate(issuer.certificate).subject,
    notBefore: new Date(Date.now() + from * DAY_MS),
    notAfter: new Date(Date.now() + to * DAY_MS),
    publicKey: keys.publicKey,
    signingKey: issuer === undefined ? keys.privateKey : await signingKey(issuer.key),
    signingAlgorithm: EC_P256,
    extensions: [
      new x509.BasicConstraintsExtension(isAuthority, undefined, true),
      new x509.ExtendedKeyUsageExtension([usage].flat().map(one => x509.ExtendedKeyUsage[one as Usage])),
      ...(names.length === 0 ? [] : [new x509.SubjectAlternativeNameExtension([...names])]),
    ],
  })
  return { certificate: `${certificate.toString('pem')}\n`, key: await privateKeyToPem(keys.privateKey) }
}

/** The same certificate with its signature's last bit turned over. */
export function forged(good: CertificateAndKey): CertificateAndKey {
  const der = Buffer.from(good.certificate.replace(/-----[^-]+-----|\s/g, ''), 'base64')
  der[der.length - 1]! ^= 1
  const body = der.toString('base64').replace(/(.{64})(?=.)/g, '$1\n')
  return { certificate: `-----BEGIN CERTIFICATE-----\n${body}\n-----END CERTIFICATE-----\n`, key: good.key }
}

function generateRsaKeys(modulusLength: number) {
  const algorithm = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256', publicExponent: new Uint8Array([1, 0, 1]) }
  return crypto.subtle.generateKey({ ...algorithm, modulusLength }, true, ['sign', 'verify'])
}

function signingKey(pem: string): Promise<CryptoKey> {
  const der = createPrivateKey(pem).export({ type: 'pkcs8', format: 'der' })
  return crypto.subtle.importKey('pkcs8', new Uint8Array(der), EC_P256, false, ['sign'])
}
