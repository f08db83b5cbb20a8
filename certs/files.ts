import { randomBytes } from 'node:crypto'
import type { Stats } from 'node:fs'
import {
  type FileHandle,
  link,
  lstat,
  mkdir,
  open,
  readlink,
  realpath,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { makeDurable } from '../protocol/base/durable.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'

/** A file to write. */
export interface OutputFile {
  /** Path of the file. */
  path: string
  text: string | Uint8Array
  /** Secret files are readable only by their owner (0600), others by everybody (0644). */
  secret: boolean
}

/** What to do with existing files. Default: replace none. */
export interface WriteOptions {
  /** Replace them. The new files belong to the writer. */
  force?: boolean
  /** Replace them, but keep owner, group and mode. Only for files that are known to be ours. */
  keepRights?: boolean
}

const MEMBERS: Members<WriteOptions> = { force: 'boolean', keepRights: 'boolean' }
const FILE_MEMBERS: Members<OutputFile> = { path: 'string', text: 'content', secret: 'boolean' }

/** A file exists, and `force` was not given. */
export class FileExistsError extends Error {
  override readonly name = 'FileExistsError'
  readonly path: string
  constructor(path: string) {
    super(`${path} exists`)
    this.path = path
  }
}

/**
 * Writes a set of files, each atomically, and creates their directories. Without `force`, it throws {@link FileExistsError} and writes
 * nothing if any of them exists. None is replaced before all of them are on the disk, and if one cannot be replaced, those before it
 * are put back if their file system and rights allow hard links: a key stays with its certificate.
 *
 * @example
 * ```ts
 * import { createKeys, writeFiles } from 'sallyport/certs'
 *
 * const { privateJwk } = await createKeys()
 * await writeFiles([{ path: 'keys/private.jwk', text: JSON.stringify(privateJwk), secret: true }])
 * ```
 */
export async function writeFiles(files: readonly OutputFile[], options: WriteOptions = {}): Promise<void> {
  checkMembers('', options, MEMBERS)
  for (const file of files) checkMembers('', file, FILE_MEMBERS)
  const { keepRights = false, force = keepRights } = options
  if (!force) for (const file of files) await refuseExisting(file.path)
  const placements: Placement[] = []
  const placed: Placement[] = []
  try {
    for (const file of files) placements.push(await prepare(file, force, keepRights))
    // The last one is never put back.
    for (const { keep } of placements.slice(0, -1)) await keep?.()
    for (const placement of placements) {
      await placement.place()
      placed.push(placement)
    }
  } catch (error) {
    for (const { putBack } of placed) await putBack?.().catch(() => {})
    throw error
  } finally {
    for (const { temporary, kept } of placements) {
      if (temporary !== undefined) await remove(temporary)
      if (kept !== undefined) await remove(kept)
    }
  }
  // Nothing is put back if this fails.
  for (const folder of new Set(placements.flatMap(({ folders }) => folders ?? []))) await makeDurable(folder)
}

/** What cannot be removed stays, as after a kill (docs/keys.md). Whether the set is written does not depend on it. */
async function remove(path: string): Promise<void> {
  await rm(path, { force: true }).catch(() => {})
}

/** A file that only has to get its name. What is not regular has no other members. */
interface Placement {
  place(): Promise<void>
  /** Those in which a name is new. */
  readonly folders?: readonly string[]
  /** Where it is until then. */
  readonly temporary?: string
  /** Where the file that it replaces is meanwhile, once `keep` is called. */
  readonly kept?: string
  keep?(): Promise<void>
  /** Undoes `place`. */
  putBack?(): Promise<void>
}

async function refuseExisting(path: string): Promise<void> {
  // A link that leads nowhere counts, too.
  const exists = await lstat(path).then(
    () => true,
    () => false,
  )
  if (exists) throw new FileExistsError(path)
}

/** Readers see the old file or the complete new one, never a part. A secret is at no moment readable by others. */
async function prepare(file: OutputFile, force: boolean, keepRights: boolean): Promise<Placement> {
  const made = await mkdir(dirname(file.path), { recursive: true })
  const there = await stat(file.path).catch(() => undefined)
  if (there?.isDirectory()) throw Object.assign(new Error(`${file.path} is a folder`), { code: 'EISDIR' })
  // `/dev/stdout` or a named pipe is written to, not replaced.
  if (there !== undefined && !there.isFile()) return { place: () => writeFile(file.path, file.text) }
  // A link stays a link, and leads to the new file.
  const path = await behindLinks(file.path)
  const besides = () => join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}`)
  const temporary = besides()
  const kept = besides()
  try {
    await writeTemporary(temporary, file, keepRights ? there : undefined)
  } catch (error) {
    await remove(temporary)
    throw error
  }
  let isKept = false
  return {
    folders: [dirname(path), ...foldersAround(made, file.path)],
    temporary,
    kept,
    place: () => (force ? rename(temporary, path) : linkNew(temporary, path)),
    async keep() {
      if (there !== undefined) isKept = await keepAs(kept, path)
    },
    async putBack() {
      if (isKept) await rename(kept, path)
      else if (there === undefined) await rm(path, { force: true })
    },
  }
}

/** The folders in which those down to that of `path` were made, from `first` on. */
function foldersAround(first: string | undefined, path: string): string[] {
  const folders: string[] = []
  if (first === undefined) return folders
  const top = dirname(resolve(first))
  let folder = dirname(resolve(path))
  while (folder.length > top.length) {
    folder = dirname(folder)
    folders.push(folder)
  }
  return folders
}

/** As many as Linux follows. */
const MAX_LINKS = 40

/** Where a file is, or would be if it existed. */
async function behindLinks(path: string, left = MAX_LINKS): Promise<string> {
  try {
    return await realpath(path)
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT'
    const target = isMissing ? await readlink(path).catch(() => undefined) : undefined
    if (target === undefined) return path
    if (left === 0) throw error
    return await behindLinks(resolve(await realpath(dirname(path)), target), left - 1)
  }
}

/** Whether it was possible: the writer may replace a file of others that it cannot link to. A copy would lack the rights of the file. */
async function keepAs(kept: string, path: string): Promise<boolean> {
  return await link(path, kept).then(
    () => true,
    () => false,
  )
}

async function writeTemporary(temporary: string, file: OutputFile, replaced: Stats | undefined): Promise<void> {
  const mode = file.secret ? 0o600 : 0o644
  const handle = await open(temporary, 'wx', mode)
  try {
    await handle.writeFile(file.text)
    await handle.chmod(mode)
    if (replaced !== undefined) await giveRightsOf(replaced, handle, file.secret)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/**
 * Keeps owner, group and mode as far as possible. Only root may give files away; others may at least keep the group. Never makes a
 * secret readable by everybody. Its path is not used: others may own the folder, and could have put a link to any file there by now.
 */
async function giveRightsOf({ uid, gid, mode }: Stats, file: FileHandle, secret: boolean): Promise<void> {
  const given = file.chown(uid, gid).catch(() => file.chown(-1, gid))
  const isGiven = await given.then(
    () => true,
    () => false,
  )
  // If the group could not be kept, its permissions must not apply to the writer's group.
  if (isGiven) await file.chmod(mode & (secret ? 0o770 : 0o777))
}

/** Uses a hard link, which never replaces a file, unlike a rename. If the file system has no links, uses a rename. */
async function linkNew(temporary: string, path: string): Promise<void> {
  try {
    await link(temporary, path)
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code === 'EEXIST') throw new FileExistsError(path)
    if (code !== 'EPERM' && code !== 'ENOTSUP' && code !== 'ENOSYS') throw error
    await rename(temporary, path)
  }
}
