import { createHash, createPrivateKey, X509Certificate } from 'node:crypto'
import type Forge from 'node-forge'
import { certificatesIn } from '../protocol/base/certificates.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import type { CertificateAndKey } from './authority.ts'

/** The contents of a PKCS#12 store. */
export interface Pkcs12Options extends CertificateAndKey {
  /** PEM of authorities to include. Default none. */
  authorities?: string
  password: string
  /** Alias in the store. Default: the certificate's common name, or `sallyport` if it has none. */
  name?: string
}

const MEMBERS: Members<Pkcs12Options> = {
  certificate: 'string',
  key: 'string',
  authorities: 'string',
  password: 'string',
  name: 'string',
}
const MAC_ITERATIONS = 10_000
const OID = {
  data: '1.2.840.113549.1.7.1',
  certificateBag: '1.2.840.113549.1.12.10.1.3',
  keyBag: '1.2.840.113549.1.12.10.1.2',
  x509: '1.2.840.113549.1.9.22.1',
  localKeyId: '1.2.840.113549.1.9.21',
  friendlyName: '1.2.840.113549.1.9.20',
  sha256: '2.16.840.1.101.3.4.2.1',
}

/**
 * Makes a PKCS#12 store (RFC 7292) for agents in Java. The key is encrypted with PBES2 and AES-256; integrity is by HMAC-SHA-256.
 *
 * Only this function loads `node-forge`, an optional dependency. Its own PKCS#12 writer supports only RSA keys, so we use its DER encoder
 * and key derivation, and write the layout ourselves.
 *
 * @example
 * ```ts
 * import { createAuthority, createClientCertificate, exportPkcs12 } from 'sallyport/certs'
 *
 * const authority = await createAuthority()
 * const client = await createClientCertificate(authority, { runtime: 'prod' })
 * const store = await exportPkcs12({ ...client, authorities: authority.certificate, password: 'changeit' })
 * ```
 */
export async function exportPkcs12(options: Pkcs12Options): Promise<Uint8Array> {
  checkMembers('', options, MEMBERS)
  if (options.password === '') throw new TypeError('the password of a PKCS#12 file must not be empty')
  const forge = await loadForge()
  const leaf = new X509Certificate(options.certificate)
  const key = createPrivateKey(options.key)
  if (!leaf.checkPrivateKey(key)) throw new TypeError('the key does not match the certificate')
  const der = new DerWriter(forge)
  const name = options.name ?? /^CN=(.+)$/m.exec(leaf.subject ?? '')?.[1] ?? 'sallyport'
  const attributes = bagAttributes(der, leaf, name)
  const encryptedKey = key.export({
    type: 'pkcs8',
    format: 'der',
    cipher: 'aes-256-cbc',
    passphrase: options.password,
  })
  const certificateBags = [
    certificateBag(der, leaf, [attributes]),
    ...splitPem(options.authorities).map(pem => certificateBag(der, new X509Certificate(pem), [])),
  ]
  const keyBag = der.sequence(der.oid(OID.keyBag), der.explicit(der.raw(encryptedKey)), attributes)
  const safe = der.sequence(der.contentInfo(der.sequence(...certificateBags)), der.contentInfo(der.sequence(keyBag)))
  const store = der.sequence(der.integer(3), der.contentInfo(safe), macData(forge, der, safe, options.password))
  return Buffer.from(der.encode(store), 'latin1')
}

async function loadForge(): Promise<typeof Forge> {
  try {
    return (await import('node-forge')).default
  } catch (cause) {
    throw new Error('PKCS#12 needs the optional package node-forge, which is not installed: npm install node-forge', {
      cause,
    })
  }
}

function splitPem(pem = ''): string[] {
  return pem.trim() === '' ? [] : certificatesIn(pem)
}

/** The attributes that tie the key to its certificate, and the alias that `keytool` shows. */
function bagAttributes(der: DerWriter, leaf: X509Certificate, name: string): Forge.asn1.Asn1 {
  const keyId = createHash('sha1').update(leaf.raw).digest()
  return der.set(
    der.sequence(der.oid(OID.localKeyId), der.set(der.octets(keyId))),
    der.sequence(der.oid(OID.friendlyName), der.set(der.bmpString(name))),
  )
}

function certificateBag(der: DerWriter, certificate: X509Certificate, rest: Forge.asn1.Asn1[]): Forge.asn1.Asn1 {
  const value = der.sequence(der.oid(OID.x509), der.explicit(der.octets(certificate.raw)))
  return der.sequence(der.oid(OID.certificateBag), der.explicit(value), ...rest)
}

function macData(forge: typeof Forge, der: DerWriter, safe: Forge.asn1.Asn1, password: string): Forge.asn1.Asn1 {
  const salt = forge.random.getBytesSync(16)
  const digest = forge.md.sha256.create()
  const macKeyId = 3
  const key = forge.pkcs12.generateKey(
    password,
    forge.util.createBuffer(salt),
    macKeyId,
    MAC_ITERATIONS,
    digest.digestLength,
    digest,
  )
  const mac = forge.hmac.create()
  mac.start('sha256', key)
  mac.update(der.encode(safe))
  const value = Buffer.from(mac.digest().getBytes(), 'latin1')
  const digestInfo = der.sequence(der.sequence(der.oid(OID.sha256), der.null()), der.octets(value))
  return der.sequence(digestInfo, der.octets(Buffer.from(salt, 'latin1')), der.integer(MAC_ITERATIONS))
}

/** Builds the few DER structures that the store needs, with node-forge's encoder. */
class DerWriter {
  readonly #asn1: typeof Forge.asn1

  constructor(forge: typeof Forge) {
    this.#asn1 = forge.asn1
  }

  #node(type: Forge.asn1.Type, constructed: boolean, value: Forge.asn1.Asn1[] | string): Forge.asn1.Asn1 {
    return this.#asn1.create(this.#asn1.Class.UNIVERSAL, type, constructed, value)
  }

  sequence(...parts: Forge.asn1.Asn1[]): Forge.asn1.Asn1 {
    return this.#node(this.#asn1.Type.SEQUENCE, true, parts)
  }

  set(...parts: Forge.asn1.Asn1[]): Forge.asn1.Asn1 {
    return this.#node(this.#asn1.Type.SET, true, parts)
  }

  explicit(part: Forge.asn1.Asn1): Forge.asn1.Asn1 {
    return this.#asn1.create(this.#asn1.Class.CONTEXT_SPECIFIC, 0 as Forge.asn1.Type, true, [part])
  }

  oid(dotted: string): Forge.asn1.Asn1 {
    return this.#node(this.#asn1.Type.OID, false, this.#asn1.oidToDer(dotted).getBytes())
  }

  integer(value: number): Forge.asn1.Asn1 {
    return this.#node(this.#asn1.Type.INTEGER, false, this.#asn1.integerToDer(value).getBytes())
  }

  octets(bytes: Uint8Array): Forge.asn1.Asn1 {
    return this.#node(this.#asn1.Type.OCTETSTRING, false, Buffer.from(bytes).toString('latin1'))
  }

  bmpString(text: string): Forge.asn1.Asn1 {
    return this.#node(this.#asn1.Type.BMPSTRING, false, text)
  }

  null(): Forge.asn1.Asn1 {
    return this.#node(this.#asn1.Type.NULL, false, '')
  }

  raw(bytes: Uint8Array): Forge.asn1.Asn1 {
    return this.#asn1.fromDer(Buffer.from(bytes).toString('latin1'))
  }

  /** RFC 7292's ContentInfo of type `data`. */
  contentInfo(content: Forge.asn1.Asn1): Forge.asn1.Asn1 {
    const bytes = Buffer.from(this.encode(content), 'latin1')
    return this.sequence(this.oid(OID.data), this.explicit(this.octets(bytes)))
  }

  encode(node: Forge.asn1.Asn1): string {
    return this.#asn1.toDer(node).getBytes()
  }
}
