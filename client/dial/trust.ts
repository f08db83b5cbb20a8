/** What the client trusts and presents in the TLS handshake. */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext, getCACertificates, rootCertificates, type SecureContext } from 'node:tls'
import { certificatesIn, checkAuthoritiesOf } from '../../protocol/base/certificates.ts'
import { checkMembers, type Members } from '../../protocol/base/members.ts'

/** A client certificate and its key, PEM. */
export interface ClientCertificate {
  readonly cert: string | Buffer
  readonly key: string | Buffer
}

const PAIR: Members<ClientCertificate> = { cert: 'content', key: 'content' }

interface TrustOptions {
  /** Authorities (PEM) to trust besides those of the system. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[] | undefined
  /** Trusts only `ca`, not the authorities of the system. Default false. */
  readonly caOnly?: boolean | undefined
  /** Presented to a server that asks for a client certificate. */
  readonly tls?: ClientCertificate | undefined
  /** Lowest TLS version. Use `TLSv1.2` only for middleboxes that do not pass 1.3. Default `TLSv1.3`. */
  readonly minVersion?: 'TLSv1.2' | 'TLSv1.3' | undefined
}

/** Made once and reused for every dial, since parsing a few hundred CAs takes time. Throws TypeError for a CA that cannot be read. */
export function createTrust(options: TrustOptions, isEncrypted = true): SecureContext {
  checkMembers('tls', options.tls, PAIR)
  checkAuthoritiesOf(isEncrypted, 'ca', options.ca, 'a wss URL')
  const given = options.ca === undefined ? [] : [options.ca].flat()
  const own = given.flatMap(certificatesIn)
  const context = {
    ca: options.caOnly === true ? own : [...systemCertificates(), ...own],
    minVersion: options.minVersion ?? 'TLSv1.3',
  } as const
  return createSecureContext(options.tls === undefined ? context : { ...context, ...pair(options.tls) })
}

/** Node would report these errors with OpenSSL codes, and ignore a bad authority silently. */
function pair({ cert, key }: ClientCertificate): { cert: string | Buffer; key: string | Buffer } {
  const chain = attempt('tls.cert is not a readable certificate (PEM)', () => certificatesIn(cert).join(''))
  const privateKey = attempt('tls.key is not a readable private key (PEM)', () => createPrivateKey(key))
  if (!new X509Certificate(chain).checkPrivateKey(privateKey)) throw new TypeError('tls.key does not match tls.cert')
  return { cert: chain, key }
}

function attempt<Result>(problem: string, read: () => Result): Result {
  try {
    return read()
  } catch (cause) {
    throw new TypeError(problem, { cause })
  }
}

/** The system's store, or Node's own list if the system has none. `default` includes NODE_EXTRA_CA_CERTS. */
function systemCertificates(): string[] {
  const known = new Set(getCACertificates('default'))
  for (const certificate of getCACertificates('system')) known.add(certificate)
  return known.size > 0 ? [...known] : [...rootCertificates]
}
