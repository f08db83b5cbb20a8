/** The next version of a file that several processes change. The process that has it open is the only one that changes the file. */
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { makeDurable } from '../../protocol/base/durable.ts'

const POLL_MS = 20
/** A change takes milliseconds. A process that has not finished by then is presumed dead. */
const ABANDONED_MS = 5000
/** How long to wait for other processes in total. */
const PATIENCE_MS = 30_000

export class NextFile {
  readonly #file: string
  readonly #path: string
  readonly #handle: FileHandle
  #isReplaced = false

  private constructor(file: string, path: string, handle: FileHandle) {
    this.#file = file
    this.#path = path
    this.#handle = handle
  }

  /** Waits while another process has it open. If that process was killed, its leftover file is removed after 5 s. */
  static async open(file: string): Promise<NextFile> {
    const path = `${file}.next`
    const begun = performance.now()
    let seen: bigint | undefined
    let seenAt = begun
    for (;;) {
      const handle = await create(path)
      if (handle !== undefined) return new NextFile(file, path, handle)
      const now = performance.now()
      if (now - begun > PATIENCE_MS)
        throw new Error(`${path} exists all the time: other processes keep changing the file`)
      const mark = await markOf(path)
      if (mark !== seen) {
        seen = mark
        seenAt = now
      } else if (now - seenAt > ABANDONED_MS) await rm(path, { force: true })
      await pause(POLL_MS)
    }
  }

  /** Replaces the file's content. Keeps its mode and, as far as this user may, its owner and group: others write to it, too. */
  async replace(text: string): Promise<void> {
    const { uid, gid, mode } = await stat(this.#file)
    await this.#handle.chmod(mode & 0o777)
    await this.#handle.chown(uid, gid).catch(() => this.#handle.chown(-1, gid).catch(() => {}))
    await this.#handle.writeFile(text)
    await this.#handle.sync()
    await this.demandOurs()
    await rename(this.#path, this.#file)
    this.#isReplaced = true
    await makeDurable(dirname(this.#file))
  }

  async close(): Promise<void> {
    try {
      if (!this.#isReplaced && (await this.#isOurs())) await rm(this.#path, { force: true })
    } finally {
      await this.#handle.close()
    }
  }

  /** Rejects if this process was slow, so that another one presumed it dead. */
  async demandOurs(): Promise<void> {
    if (!(await this.#isOurs())) throw new Error(`${this.#path} now belongs to another process`)
  }

  async #isOurs(): Promise<boolean> {
    const { ino } = await this.#handle.stat()
    return (await stat(this.#path).catch(() => undefined))?.ino === ino
  }
}

async function create(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'wx', 0o600)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return undefined
  }
}

/** Two files in a row may have the same inode number, but not the same time of creation. */
async function markOf(path: string): Promise<bigint | undefined> {
  const found = await stat(path, { bigint: true }).catch(() => undefined)
  if (found?.isDirectory()) throw new Error(`EISDIR: ${path} is a directory`)
  return found && found.ino * 2n ** 64n + found.birthtimeNs
}
