import { randomBytes } from 'node:crypto'
import { chmodSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** How `sallyport status` finds a component on the same machine, and its admin token. */
export interface RuntimeFile {
  readonly component: string
  readonly pid: number
  /** URL of the admin listener. */
  readonly url: string
  /** The random token of a listener that was given none. */
  readonly token?: string
  /** The file that was given. */
  readonly tokenFile?: string
}

type Environment = Readonly<Record<string, string | undefined>>

/** A token that nobody can guess. */
export function randomToken(): string {
  return randomBytes(32).toString('base64url')
}

/** Where this user's components put their files: systemd's directory, the session's, or one in the temporary folder. */
export function runtimeDirectories(environment: Environment): string[] {
  const { RUNTIME_DIRECTORY, XDG_RUNTIME_DIR } = environment
  const directories = RUNTIME_DIRECTORY?.split(':').filter(directory => directory !== '') ?? []
  if (XDG_RUNTIME_DIR) directories.push(join(XDG_RUNTIME_DIR, 'sallyport'))
  directories.push(join(tmpdir(), `sallyport-${process.getuid?.() ?? 'user'}`))
  return directories
}

/**
 * Writes the file, 0600, into the first directory that works, which must be ours alone. Returns its path, or throws the
 * last problem.
 */
export function writeRuntimeFile(content: RuntimeFile, environment: Environment): string {
  let problem: unknown
  for (const directory of runtimeDirectories(environment)) {
    try {
      mkdirSync(directory, { recursive: true, mode: 0o700 })
      checkDirectory(directory, false)
      const path = join(directory, `${content.component}-${content.pid}.json`)
      rmSync(path, { force: true })
      writeFileSync(path, `${JSON.stringify(content)}\n`, { mode: 0o600, flag: 'wx' })
      chmodSync(path, 0o600)
      return path
    } catch (error) {
      problem = error
    }
  }
  throw problem
}

/**
 * A name in the temporary folder can be taken by somebody else first; then it is not used. Root reads what services of
 * other users wrote.
 */
function checkDirectory(directory: string, isReader: boolean): void {
  const stat = lstatSync(directory)
  if (!stat.isDirectory()) throw new Error(`${directory} is no directory`)
  const uid = process.getuid?.()
  if (uid === undefined) return
  const isOurs = stat.uid === uid || stat.uid === 0 || (isReader && uid === 0)
  if (!isOurs) throw new Error(`${directory} belongs to somebody else`)
  if ((stat.mode & 0o022) !== 0) throw new Error(`${directory} is writable for others`)
}

/** Removes the file when the component ends. */
export function removeRuntimeFile(path: string): void {
  rmSync(path, { force: true })
}

/** The components of this machine that run and whose files this user may read. */
export function findRuntimeFiles(environment: Environment): RuntimeFile[] {
  const directories = new Set([...runtimeDirectories(environment), ...systemDirectories()])
  return [...directories].flatMap(readDirectory).filter(file => isAlive(file.pid))
}

/** Those of the systemd units, for an operator who is root. */
function systemDirectories(): string[] {
  return ['server', 'client', 'router'].map(component => `/run/sallyport-${component}`)
}

function readDirectory(directory: string): RuntimeFile[] {
  try {
    checkDirectory(directory, true)
    const names = readdirSync(directory).filter(name => /^(server|client|router)-\d+\.json$/.test(name))
    return names.flatMap(name => readRuntimeFile(join(directory, name)))
  } catch {
    return []
  }
}

function readRuntimeFile(path: string): RuntimeFile[] {
  try {
    return [JSON.parse(readFileSync(path, 'utf8')) as RuntimeFile]
  } catch {
    return []
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
