/** Certificates and keys, given as PEM or as files. Files are watched; if one becomes invalid, the old pair stays in force. */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { isDeepStrictEqual } from 'node:util'
import { certificatesIn, checkAuthorities } from '../protocol/base/certificates.ts'
import { LastProblem } from '../protocol/base/last-problem.ts'
import { demand } from '../protocol/base/limit.ts'
import type { Logger } from '../protocol/base/log.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { readPlain } from '../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../protocol/base/watch-files.ts'

export type Pem = string | Buffer

/** A certificate and its key, as PEM or as files. `server.reload` reads the files again. */
export interface TlsFiles {
  /** The certificate and its intermediates, or the file that holds them. */
  readonly cert: Pem | { readonly file: string }
  readonly key: Pem | { readonly file: string }
  /** Authorities of the other end's certificates. */
  readonly ca?: Authorities | undefined
  /** OCSP response in DER (RFC 6960) that is stapled to the certificate at the public edge. */
  readonly ocsp?: Buffer | { readonly file: string } | undefined
}

/** Throws a TypeError for an unknown member, and for authorities without a certificate. */
export function checkTlsFiles(group: string, files: TlsFiles | undefined): void {
  checkMembers(group, files, MEMBERS)
  checkGiven(`${group}.ca`, files?.ca)
}

/** Throws a TypeError unless they are a file, which is read later, or have at least one certificate. */
export function checkGiven(name: string, authorities: Authorities | undefined): void {
  if (!isFile(authorities)) checkAuthorities(name, authorities)
}

/** At the public listener. Callers would be asked for a certificate, and let in without one. */
export function refuseAuthorities(group: string, files: TlsFiles | undefined): void {
  demand(files?.ca === undefined, `${group}.ca would let in callers without a certificate; set access.clientCa`)
}

const MEMBERS: Members<TlsFiles> = { cert: 'content', key: 'content', ca: 'content', ocsp: 'object' }

export type Authorities = Pem | readonly Pem[] | { readonly file: string }

export interface TlsPair {
  readonly cert: Pem
  readonly key: Pem
  readonly ca?: Pem | Pem[]
  readonly ocsp?: Buffer
}

/** The files at these paths. Undefined without a certificate or a key. */
export function tlsFiles(cert?: string, key?: string, ocsp?: string): TlsFiles | undefined {
  if (cert === undefined || key === undefined) return undefined
  return { cert: { file: cert }, key: { file: key }, ...(ocsp === undefined ? {} : { ocsp: { file: ocsp } }) }
}

/** Reads certificate and key, and checks that they match. The error says which part is invalid, and never shows a key. */
export async function loadTls(files: TlsFiles): Promise<TlsPair> {
  const [chain, key] = await Promise.all([readPem(files.cert, 'certificate'), readPem(files.key, 'key')])
  const cert = attempt(() => certificatesIn(chain).join(''), `the certificate ${nameOf(files.cert)} is not valid PEM`)
  const privateKey = attempt(() => createPrivateKey(key), `the key ${nameOf(files.key)} is not a valid private key`)
  if (!new X509Certificate(cert).checkPrivateKey(privateKey)) {
    throw new Error(`the key ${nameOf(files.key)} does not match the certificate ${nameOf(files.cert)}`)
  }
  attempt(
    () => createSecureContext({ cert, key }),
    `OpenSSL refuses the certificate ${nameOf(files.cert)}: its key may be too short`,
  )
  const ca = files.ca === undefined ? {} : { ca: await readAuthorities(files.ca) }
  return { cert, key, ...ca, ...(files.ocsp === undefined ? {} : { ocsp: await readOcsp(files.ocsp) }) }
}

/** `OCSPResponse ::= SEQUENCE { responseStatus ENUMERATED { successful (0) ...`. Other statuses carry no response about a certificate. */
async function readOcsp(source: NonNullable<TlsFiles['ocsp']>): Promise<Buffer> {
  const response = Buffer.from(await readPem(source, 'OCSP response'))
  const lengthBytes = (response[1] ?? 0) < 0x80 ? 1 : 1 + (response[1]! & 0x7f)
  const status = response.subarray(1 + lengthBytes, 4 + lengthBytes).toString('hex')
  if (response[0] === 0x30 && status === '0a0100') return response
  throw new Error(`the OCSP response ${nameOf(source)} is not a successful one in DER`)
}

async function readAuthorities(source: Authorities): Promise<string[]> {
  const given = isFile(source) ? await readPem(source, 'authority') : source
  return attempt(() => [given].flat().flatMap(certificatesIn), 'an authority is not valid PEM')
}

/** Reads PEM that is given as a file. The error names the file. */
export async function readPem(source: TlsFiles['cert'], what: string): Promise<Pem> {
  if (!isFile(source)) return source
  try {
    return await readPlain(source.file)
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown'
    throw new Error(`the ${what} ${source.file} cannot be read (${code})`, { cause })
  }
}

function nameOf(source: TlsFiles['cert']): string {
  return isFile(source) ? source.file : 'given'
}

function isFile(source: Authorities | undefined): source is { readonly file: string } {
  return typeof source === 'object' && 'file' in source
}

function attempt<T>(make: () => T, message: string): T {
  try {
    return make()
  } catch (cause) {
    throw new Error(message, { cause })
  }
}

/** When the certificate expires, in ms since 1970. */
export function expiryOf({ cert }: Pick<TlsPair, 'cert'>): number {
  return Date.parse(new X509Certificate(cert).validTo)
}

/** Reloads an endpoint's certificate when its files change. */
export class TlsKeeper {
  #files: TlsFiles
  #inForce: TlsPair
  readonly #apply: (pair: TlsPair) => void
  readonly #logger: Logger
  readonly #problem = new LastProblem()
  #watch: FilesWatch
  /** Only one read at a time: an older read must not overwrite a newer one. */
  #queue = Promise.resolve(true)

  constructor(files: TlsFiles, inForce: TlsPair, apply: (pair: TlsPair) => void, logger: Logger) {
    this.#files = files
    this.#inForce = inForce
    this.#apply = apply
    this.#logger = logger
    this.#watch = this.#watched()
  }

  /** When the certificate in force expires, in ms since 1970. */
  get expiresAt(): number {
    return expiryOf(this.#inForce)
  }

  /** Reads the files again, or switches to `files`. If the new pair is invalid, keeps the old one and resolves to false. */
  reload(files?: TlsFiles): Promise<boolean> {
    this.#queue = this.#queue.then(() => this.#reload(files ?? this.#files))
    return this.#queue
  }

  /** Like `reload`, but does nothing if the pair is unchanged. */
  #changed(): void {
    this.#queue = this.#queue.then(() => this.#reload(this.#files, this.#inForce))
  }

  async #reload(files: TlsFiles, but?: TlsPair): Promise<boolean> {
    try {
      const pair = await loadTls(files)
      this.#problem.clear()
      if (isDeepStrictEqual(pair, but)) return true
      this.#apply(pair)
      this.#inForce = pair
    } catch (error) {
      // What is asked for is answered, however often.
      if (this.#problem.isNew(error, this.#watch.version) || but === undefined)
        this.#logger.error({ err: error }, 'the new certificate is bad; the old one stays')
      return false
    }
    if (files !== this.#files) {
      this.#files = files
      this.#watch.close()
      this.#watch = this.#watched()
    }
    this.#logger.info({}, 'certificate reloaded')
    return true
  }

  #watched(): FilesWatch {
    const parts = [this.#files.cert, this.#files.key, this.#files.ca, this.#files.ocsp]
    const files = parts.flatMap(part => (isFile(part) ? [part.file] : []))
    return watchFiles(files, this.#logger, () => this.#changed())
  }

  /** A reload that is under way may still replace what is watched. */
  close(): void {
    this.#queue = this.#queue.finally(() => this.#watch.close())
  }
}
