/** What the client trusts and shows in the TLS handshake. */
import { createSecureContext, getCACertificates, rootCertificates, type SecureContext } from 'node:tls'

/** A client certificate and its key, PEM. */
export interface ClientCertificate {
  readonly cert: string | Buffer
  readonly key: string | Buffer
}

export interface TrustOptions {
  /** PEM certificates of CAs that are trusted besides the system's. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[] | undefined
  /** Trust only `ca`, nothing of the system. Default false. */
  readonly caOnly?: boolean | undefined
  /** Shown to a server that asks for a client certificate. */
  readonly tls?: ClientCertificate | undefined
  /** `TLSv1.2` only for middleboxes that cannot pass 1.3. Default `TLSv1.3`. */
  readonly minVersion?: 'TLSv1.2' | 'TLSv1.3' | undefined
}

/** Made once and used for every dial: reading a few hundred CAs takes time. Throws if a PEM is not readable. */
export function createTrust(options: TrustOptions): SecureContext {
  const own = options.ca === undefined ? [] : [options.ca].flat()
  const context = {
    ca: options.caOnly === true ? own : [...systemCertificates(), ...own],
    minVersion: options.minVersion ?? 'TLSv1.3',
  } as const
  return createSecureContext(options.tls === undefined ? context : { ...context, ...pair(options.tls) })
}

function pair(tls: ClientCertificate): { cert: string | Buffer; key: string | Buffer } {
  return { cert: tls.cert, key: tls.key }
}

/** The system's store, and Node's own list where the system has none. `default` includes NODE_EXTRA_CA_CERTS. */
function systemCertificates(): string[] {
  const known = new Set(getCACertificates('default'))
  for (const certificate of getCACertificates('system')) known.add(certificate)
  return known.size > 0 ? [...known] : [...rootCertificates]
}
