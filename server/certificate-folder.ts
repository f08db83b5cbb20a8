/**
 * Certificates by server name (SNI), from a folder: pairs `NAME.crt` and `NAME.key` in it, and `tls.crt` and `tls.key` in folders
 * below it, as Kubernetes mounts them. A certificate is used for the names in it. The folder is watched. If a pair becomes
 * invalid, the old one stays in force.
 */
import { X509Certificate } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createSecureContext, type SecureContext } from 'node:tls'
import { isDeepStrictEqual } from 'node:util'
import { detached } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { isHostName } from '../protocol/base/names.ts'
import { inTurn } from '../protocol/base/plain-file.ts'
import { INTERMEDIATE } from '../protocol/base/tls-profile.ts'
import { type FilesWatch, watchFiles } from '../protocol/base/watch-files.ts'
import { loadTls, type TlsPair } from './tls.ts'

/** Most pairs in a folder. If there are more, the folder is not read, and what was in force stays. */
const MAX_PAIRS = 1000

/** A certificate in force. */
interface Entry {
  readonly pair: TlsPair
  readonly context: SecureContext
  /** In lower case. `*.example.com` stands for exactly one label. */
  readonly names: readonly string[]
  readonly expiresAt: number
}

interface Found {
  /** By path of the certificate. */
  readonly entries: ReadonlyMap<string, Entry>
  /** Paths to watch. */
  readonly files: readonly string[]
  readonly problems: readonly string[]
}

export class CertificateFolder {
  readonly #folder: string
  readonly #logger: Logger
  /** Authorities of callers' certificates. */
  #ca: TlsPair['ca']
  #found: Found
  #byName: ReadonlyMap<string, Entry>
  #watch: FilesWatch
  /** Only one read at a time: an older read must not overwrite a newer one. */
  #queue = Promise.resolve(true)

  /** Rejects if the folder cannot be read. Invalid pairs are logged and left out. */
  static async open(folder: string, logger: Logger, ca?: TlsPair['ca']): Promise<CertificateFolder> {
    return new CertificateFolder(folder, logger, ca, await readFolder(folder, new Map(), ca))
  }

  private constructor(folder: string, logger: Logger, ca: TlsPair['ca'], found: Found) {
    this.#folder = folder
    this.#logger = logger
    this.#ca = ca
    this.#found = found
    this.#byName = byName(found)
    this.#watch = this.#watched()
    this.#tell(found)
  }

  /** The certificate for a server name. `undefined` if the listener's own applies. */
  find(serverName: string): SecureContext | undefined {
    const name = serverName.toLowerCase()
    const entry = this.#byName.get(name) ?? this.#byName.get(`*${name.slice(name.indexOf('.'))}`)
    return entry?.context
  }

  /** When the first of those in use expires, in ms since 1970. `undefined` if there are none. */
  get expiresAt(): number | undefined {
    const ends = [...this.#byName.values()].map(({ expiresAt }) => expiresAt)
    return ends.length === 0 ? undefined : Math.min(...ends)
  }

  /** Sets the authorities of callers' certificates, for all certificates of ours. */
  setAuthorities(ca: TlsPair['ca']): void {
    if (isDeepStrictEqual(ca, this.#ca)) return
    this.#ca = ca
    const entries = new Map([...this.#found.entries].map(([file, { pair }]) => [file, entryOf(file, pair, ca)]))
    this.#found = { ...this.#found, entries }
    this.#byName = byName(this.#found)
  }

  /** Reads the folder again. Resolves to false if something in it is invalid; then the old pairs stay in its place. */
  reload(): Promise<boolean> {
    this.#queue = this.#queue.then(() => this.#reload())
    return this.#queue
  }

  async #reload(): Promise<boolean> {
    const before = this.#found
    const ca = this.#ca
    let found: Found
    try {
      found = await readFolder(this.#folder, before.entries, ca)
    } catch (error) {
      this.#logger.error({ folder: this.#folder, err: error }, 'the certificates cannot be read; the old ones stay')
      return false
    }
    if (ca !== this.#ca) return this.#reload()
    this.#found = found
    if (!isDeepStrictEqual(found.files, before.files)) {
      this.#watch.close()
      this.#watch = this.#watched()
    }
    if (!isDeepStrictEqual(found.problems, before.problems)) this.#tell(found)
    if (!isSame(found.entries, before.entries)) {
      this.#byName = byName(found)
      this.#logger.info({ folder: this.#folder, certificates: found.entries.size }, 'certificates reloaded')
    }
    return found.problems.length === 0
  }

  #tell({ problems }: Found): void {
    for (const message of problems)
      this.#logger.error({ err: { message } }, 'a certificate is invalid; the old one, if any, stays')
  }

  #watched(): FilesWatch {
    return watchFiles(this.#found.files, this.#logger, () => {
      detached(this.#logger, 'the certificates could not be read', this.reload())
    })
  }

  /** A reload that is under way may still replace what is watched. */
  close(): void {
    this.#queue = this.#queue.finally(() => this.#watch.close())
  }
}

/** `before` are the entries in force. */
async function readFolder(folder: string, before: ReadonlyMap<string, Entry>, ca: TlsPair['ca']): Promise<Found> {
  const { pairs, unlisted, folders } = await findPairs(folder)
  const all = [...pairs, ...unlisted]
  if (all.length > MAX_PAIRS) throw new Error(`there are ${all.length} certificates in ${folder}, over ${MAX_PAIRS}`)
  const entries = new Map<string, Entry>()
  const problems: string[] = []
  for (const { cert, key } of all) {
    const known = before.get(cert)
    try {
      const pair = await loadTls({ cert: { file: cert }, key: { file: key } })
      entries.set(cert, known !== undefined && isDeepStrictEqual(known.pair, pair) ? known : entryOf(cert, pair, ca))
    } catch (error) {
      const isExpected = known !== undefined || pairs.some(pair => pair.cert === cert)
      if (isExpected) problems.push((error as Error).message)
      if (known !== undefined) entries.set(cert, known)
    }
  }
  // A folder's own modification time changes with its content. Watching a name in it makes sure that the folder is watched.
  const files = [...folders.flatMap(each => [each, join(each, '*')]), ...pairs.flatMap(({ cert, key }) => [cert, key])]
  return { entries, files, problems }
}

interface Pair {
  readonly cert: string
  readonly key: string
}

/**
 * The pairs in the folder, whether valid or not, and the folders that may hold any. `unlisted` are pairs that may exist in folders
 * that cannot be listed now. Rejects if the folder itself cannot be read.
 */
export async function findPairs(folder: string) {
  const pairs: Pair[] = []
  const unlisted: Pair[] = []
  const folders = [folder]
  for (const entry of await list(folder)) {
    const path = join(folder, entry.name)
    if (entry.name.startsWith('.')) continue
    if (entry.name.endsWith('.crt')) pairs.push({ cert: path, key: `${path.slice(0, -4)}.key` })
    else if (!entry.isFile() && !entry.name.endsWith('.key')) {
      const pair = { cert: join(path, 'tls.crt'), key: join(path, 'tls.key') }
      try {
        if ((await list(path)).some(({ name }) => name === 'tls.crt')) pairs.push(pair)
      } catch (error) {
        if (isAbsent(error)) continue
        unlisted.push(pair)
      }
      folders.push(path)
    }
  }
  return { pairs, unlisted, folders }
}

/** Whether there is no such folder (any more). */
function isAbsent(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException
  return code === 'ENOENT' || code === 'ENOTDIR'
}

async function list(folder: string) {
  const entries = await inTurn(join(folder, '*'), () => readdir(folder, { withFileTypes: true }))
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** An explicit empty `ca`, since without one the context would trust all authorities of the system. */
function entryOf(file: string, pair: TlsPair, ca: TlsPair['ca'] = []): Entry {
  const certificate = new X509Certificate(pair.cert)
  const names = (certificate.subjectAltName ?? '')
    .toLowerCase()
    .split(', ')
    .flatMap(name => (name.startsWith('dns:') ? [name.slice(4)] : []))
    .filter(name => isHostName(name.replace(/^\*\./, '')))
  if (names.length === 0) throw new Error(`the certificate ${file} names no host`)
  const context = createSecureContext({ ...INTERMEDIATE, cert: pair.cert, key: pair.key, ca })
  return { pair, context, names, expiresAt: certificate.validToDate.getTime() }
}

/** If two certificates are for the same name, the one that expires later is used. */
function byName({ entries }: Found): ReadonlyMap<string, Entry> {
  const names = new Map<string, Entry>()
  for (const entry of entries.values()) {
    for (const name of entry.names) {
      if (entry.expiresAt > (names.get(name)?.expiresAt ?? 0)) names.set(name, entry)
    }
  }
  return names
}

function isSame(a: ReadonlyMap<string, Entry>, b: ReadonlyMap<string, Entry>): boolean {
  return a.size === b.size && [...a].every(([file, entry]) => b.get(file) === entry)
}
