import {
  type CertificateAndKey,
  createAuthority,
  createKeys,
  createServerCertificate,
  createToken,
} from '../../certs/index.ts'

export const DOMAIN = 'tunnels.test'

/** Certificates and keys of one test file, made when it runs. */
export interface Secrets {
  readonly ca: string
  readonly authority: CertificateAndKey
  /** For `*.tunnels.test`, `localhost` and both loopback addresses. */
  readonly server: { readonly cert: string; readonly key: string }
  readonly jwks: Awaited<ReturnType<typeof createKeys>>['jwks']
  token(runtime: string, ttl?: string): Promise<string>
}

export async function makeSecrets(): Promise<Secrets> {
  const authority = await createAuthority({ name: 'Sallyport test CA' })
  const hosts = [`*.${DOMAIN}`, 'localhost', '127.0.0.1', '::1']
  const server = await createServerCertificate(authority, { hosts })
  const keys = await createKeys()
  return {
    ca: authority.certificate,
    authority,
    server: { cert: server.certificate, key: server.key },
    jwks: keys.jwks,
    token: async (runtime, ttl = '1h') => (await createToken({ key: keys.privateJwk, runtime, ttl })).token,
  }
}
