import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  type Stats,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A file by which `sallyport status` finds a component on the same machine, and its admin token. */
export interface RuntimeFile {
  readonly component: string
  readonly pid: number
  /** When the process started, as Linux counts it, since a later process may get the same PID. */
  readonly started?: string
  /** URL of the admin listener. */
  readonly url: string
  /** The random token of a listener without a configured one. */
  readonly token?: string
  /** The configured token file. */
  readonly tokenFile?: string
}

/** A file that was found. */
export interface FoundFile extends RuntimeFile {
  /** The user who wrote it, if root reads another user's file. Such a file is trusted only about what that user owns. */
  readonly writtenBy?: number
}

type Environment = Readonly<Record<string, string | undefined>>

/** An unguessable token. */
export function randomToken(): string {
  return randomBytes(32).toString('base64url')
}

/** Where this user's components put their files: systemd's runtime directory, the session's, or one in the temporary directory. */
export function runtimeDirectories(environment: Environment): string[] {
  const { RUNTIME_DIRECTORY, XDG_RUNTIME_DIR } = environment
  const directories = RUNTIME_DIRECTORY?.split(':').filter(directory => directory !== '') ?? []
  if (XDG_RUNTIME_DIR) directories.push(join(XDG_RUNTIME_DIR, 'sallyport'))
  directories.push(join(tmpdir(), `sallyport-${process.getuid?.() ?? 'user'}`))
  return directories
}

/**
 * Writes the file, with mode 0600, to the first directory that works. Only this user may own and write to the directory. Returns the
 * file's path, or throws the last error.
 */
export function writeRuntimeFile(content: RuntimeFile, environment: Environment): string {
  let problem: unknown
  for (const directory of runtimeDirectories(environment)) {
    try {
      mkdirSync(directory, { recursive: true, mode: 0o700 })
      checkDirectory(directory)
      const path = join(directory, `${content.component}-${content.pid}.json`)
      rmSync(path, { force: true })
      writeFileSync(path, `${JSON.stringify({ started: startOf(content.pid), ...content })}\n`, {
        mode: 0o600,
        flag: 'wx',
      })
      chmodSync(path, 0o600)
      return path
    } catch (error) {
      problem = error
    }
  }
  throw problem
}

/** In the temporary directory, somebody else may have created our directory first. Then we do not use it. */
function checkDirectory(directory: string): void {
  const { uid } = directoryOf(directory)
  if (!isBelieved(uid)) throw new Error(`${directory} belongs to somebody else`)
}

function directoryOf(path: string): Stats {
  const stat = lstatSync(path)
  if (!stat.isDirectory()) throw new Error(`${path} is not a directory`)
  if (process.getuid !== undefined && (stat.mode & 0o022) !== 0) throw new Error(`${path} is writable by others`)
  return stat
}

/** Only this user and root may tell this user where to send a secret. On Windows, users' directories are separate anyway. */
function isBelieved(uid: number): boolean {
  const own = process.getuid?.()
  return own === undefined || uid === own || uid === 0
}

/** Removes the file when the component ends. */
export function removeRuntimeFile(path: string): void {
  rmSync(path, { force: true })
}

/**
 * Runtime directories of the systemd units and of their copies. Only root can create them, each for its service's user, and root reads
 * what those users wrote.
 */
function findUnitDirectories(): string[] {
  try {
    const names = readdirSync('/run').filter(name => name.startsWith('sallyport-'))
    return names.map(name => join('/run', name))
  } catch {
    return []
  }
}

/** The components running on this machine whose files this user can read and trust. */
export function findRuntimeFiles(environment: Environment, unitDirectories = findUnitDirectories()): FoundFile[] {
  const own = runtimeDirectories(environment).filter(directory => !unitDirectories.includes(directory))
  const files = [
    ...own.flatMap(directory => readDirectory(directory, isBelieved)),
    ...unitDirectories.flatMap(directory =>
      readDirectory(directory, uid => isBelieved(uid) || process.getuid?.() === 0),
    ),
  ]
  return files.filter(isAlive)
}

function readDirectory(directory: string, mayWrite: (uid: number) => boolean): FoundFile[] {
  try {
    const { uid } = directoryOf(directory)
    if (!mayWrite(uid)) return []
    const names = readdirSync(directory).filter(name => /^(server|client|router)-\d+\.json$/.test(name))
    return names.flatMap(name => readRuntimeFile(join(directory, name), uid))
  } catch {
    return []
  }
}

function readRuntimeFile(path: string, owner: number): FoundFile[] {
  try {
    const file: unknown = JSON.parse(readOwned(path, uid => uid === owner || isBelieved(uid), constants.O_NOFOLLOW))
    if (!isRuntimeFile(file)) return []
    return [isBelieved(owner) ? file : { ...file, writtenBy: owner }]
  } catch {
    return []
  }
}

function isRuntimeFile(value: unknown): value is RuntimeFile {
  if (typeof value !== 'object' || value === null) return false
  const { component, pid, started, url, token, tokenFile } = value as Record<string, unknown>
  const isText = (text: unknown) => text === undefined || typeof text === 'string'
  return (
    typeof component === 'string' &&
    Number.isSafeInteger(pid) &&
    typeof url === 'string' &&
    /^http:\/\/[^/?#@\s]+$/.test(url) &&
    isText(started) &&
    isText(token) &&
    isText(tokenFile)
  )
}

/**
 * The token of the component's admin listener. Throws if it cannot be read, or does not belong to the user who wrote the file: an
 * untrusted user could have named any file, and any address to send it to.
 */
export function readAdminToken(file: FoundFile): string | undefined {
  const { tokenFile, writtenBy } = file
  if (tokenFile === undefined) return file.token
  return readOwned(tokenFile, uid => writtenBy === undefined || uid === writtenBy).trim()
}

const MAX_FILE_BYTES = 64 * 1024

/** Text of a regular file, if we trust its owner. */
function readOwned(path: string, isOwner: (uid: number) => boolean, flags = 0): string {
  // Non-blocking, in case somebody put a named pipe there.
  const descriptor = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | flags)
  try {
    const stat = fstatSync(descriptor)
    if (!stat.isFile() || stat.size > MAX_FILE_BYTES) throw new Error(`${path} is not a token file`)
    if (!isOwner(stat.uid)) throw new Error(`${path} does not belong to the user whose component names it`)
    return readFileSync(descriptor, 'utf8')
  } finally {
    closeSync(descriptor)
  }
}

/** Without `/proc`, only the PID is checked. If another process has it by now, the listener's address does not answer. */
function isAlive({ pid, started }: RuntimeFile): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false
  }
  return started === undefined || (startOf(pid) ?? started) === started
}

/** The field `starttime` of `/proc/PID/stat`, which comes after the name in brackets. `undefined` without `/proc`. */
function startOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return undefined
  }
}
