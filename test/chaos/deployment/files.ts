/** The files of a deployment, in their own folder: certificates, keys, tokens, routes. Each can be renewed. */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type CertificateAndKey,
  createAuthority,
  createKeys,
  createReplicaCertificate,
  createServerCertificate,
  createToken,
} from '../../../certs/index.ts'
import { DOMAIN } from '../../support/secrets.ts'

type Keys = Awaited<ReturnType<typeof createKeys>>

export class DeploymentFiles {
  readonly folder: string
  /** PEM. */
  readonly ca: string
  readonly #authority: CertificateAndKey
  #keys: Keys
  #version = 0

  private constructor(folder: string, authority: CertificateAndKey, keys: Keys) {
    this.folder = folder
    this.ca = authority.certificate
    this.#authority = authority
    this.#keys = keys
  }

  static async make(): Promise<DeploymentFiles> {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-chaos-'))
    const files = new DeploymentFiles(folder, await createAuthority({ name: 'Sallyport chaos CA' }), await createKeys())
    await files.#write('ca.pem', files.ca)
    await files.#write('jwks.json', JSON.stringify(files.#keys.jwks))
    await files.#write('admin.token', randomBytes(24).toString('hex'))
    await files.renewCertificate()
    await files.renewReplicaCertificate()
    return files
  }

  at(name: string): string {
    return join(this.folder, name)
  }

  remove(): Promise<void> {
    return rm(this.folder, { recursive: true, force: true })
  }

  /** A new server certificate and key from the same authority. */
  async renewCertificate(): Promise<void> {
    const hosts = [`*.${DOMAIN}`, 'localhost', '127.0.0.1', '::1']
    const { certificate, key } = await createServerCertificate(this.#authority, { hosts })
    await this.#write('server-key.pem', key)
    await this.#write('server.pem', certificate)
  }

  async renewReplicaCertificate(): Promise<void> {
    const { certificate, key } = await createReplicaCertificate(this.#authority)
    await this.#write('replica-key.pem', key)
    await this.#write('replica.pem', certificate)
  }

  /** A new token, put in place as a customer's renewal would do it. */
  async renewToken(runtime: string): Promise<void> {
    const { token } = await createToken({ key: this.#keys.privateJwk, runtime })
    await this.#write(`${runtime}.token`, token)
  }

  /** The key set during a rotation: the new key beside the old one. From now on, tokens are signed with the new one. */
  async addKey(): Promise<void> {
    const old = this.#keys
    this.#keys = await createKeys()
    const keys = [...this.#keys.jwks.keys, ...old.jwks.keys]
    await this.#write('jwks.json', JSON.stringify({ keys }))
  }

  /** Ends the rotation by removing the old key. */
  async dropOldKey(): Promise<void> {
    await this.#write('jwks.json', JSON.stringify(this.#keys.jwks))
  }

  /** The route table of a runtime, with a different text each time. */
  async writeRoutes(runtime: string, target: string): Promise<void> {
    const text = `routes:\n  - name: upstream-${this.#version++}\n    match: { path: / }\n    target: ${target}\n`
    await this.#write(`${runtime}.yaml`, text)
  }

  /** Renamed into place, so that a reader sees either the old text or the new one. */
  async #write(name: string, text: string): Promise<void> {
    const path = this.at(name)
    await writeFile(`${path}.new`, text, { mode: 0o600 })
    await rename(`${path}.new`, path)
  }
}
