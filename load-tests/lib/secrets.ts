/** Authority, certificate, keys and tokens of a run, in one temporary folder that is removed with it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  createAuthority,
  createKeys,
  createReplicaCertificate,
  createServerCertificate,
  createToken,
  writeFiles,
} from '../../certs/index.ts'

export const DOMAIN = 'tunnels.localhost'

export interface Secrets {
  readonly folder: string
  /** Paths of files. */
  readonly ca: string
  readonly certificate: string
  readonly key: string
  readonly jwks: string
  /** The secret by which servers of the same service recognize each other. */
  readonly replica: { readonly certificate: string; readonly key: string }
  token(runtime: string): Promise<string>
  /** Path of a file with a token for the runtime. */
  tokenFile(runtime: string): Promise<string>
  remove(): Promise<void>
}

export async function makeSecrets(): Promise<Secrets> {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-bench-'))
  const at = (name: string) => join(folder, name)
  const authority = await createAuthority({ name: 'Sallyport load test CA', validDays: 2 })
  const hosts = [`*.${DOMAIN}`, DOMAIN, 'localhost', '127.0.0.1']
  const server = await createServerCertificate(authority, { hosts, validDays: 2 })
  const replica = await createReplicaCertificate(authority, { validDays: 2 })
  const keys = await createKeys()
  await writeFiles([
    { path: at('ca.pem'), text: authority.certificate, secret: false },
    { path: at('server.pem'), text: server.certificate, secret: false },
    { path: at('server-key.pem'), text: server.key, secret: true },
    { path: at('replica.pem'), text: replica.certificate, secret: false },
    { path: at('replica-key.pem'), text: replica.key, secret: true },
    { path: at('jwks.json'), text: JSON.stringify(keys.jwks), secret: false },
  ])
  const token = async (runtime: string) => (await createToken({ key: keys.privateJwk, runtime, ttl: '4h' })).token
  return {
    folder,
    ca: at('ca.pem'),
    certificate: at('server.pem'),
    key: at('server-key.pem'),
    jwks: at('jwks.json'),
    replica: { certificate: at('replica.pem'), key: at('replica-key.pem') },
    token,
    async tokenFile(runtime) {
      const path = at(`${runtime}.token`)
      await writeFiles([{ path, text: await token(runtime), secret: true }], { force: true })
      return path
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  }
}
