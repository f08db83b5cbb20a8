/** The next version of a file that several processes change: whoever has it open is the only one who changes the file. */
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'

const LOOK_MS = 20
/** A change takes milliseconds: who has not ended one by then has ended himself. */
const ABANDONED_MS = 5000
/** How long one may wait for others, of whom each takes his time. */
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

  /** Waits for others that have it. What one left behind that was killed is removed after 5 s. */
  static async open(file: string): Promise<NextFile> {
    const path = `${file}.next`
    const begun = performance.now()
    let seen: bigint | undefined
    let seenAt = begun
    for (;;) {
      const handle = await create(path)
      if (handle !== undefined) return new NextFile(file, path, handle)
      const now = performance.now()
      if (now - begun > PATIENCE_MS) throw new Error(`${path} is there: others change the file all the time`)
      const mark = await markOf(path)
      if (mark !== seen) {
        seen = mark
        seenAt = now
      } else if (now - seenAt > ABANDONED_MS) await rm(path, { force: true })
      await pause(LOOK_MS)
    }
  }

  /** The file has this text, and the mode that it had, once this resolves. */
  async replace(text: string): Promise<void> {
    const { mode } = await stat(this.#file)
    await this.#handle.chmod(mode & 0o777)
    await this.#handle.writeFile(text)
    await this.#handle.sync()
    if (!(await this.#isOurs())) throw new Error(`${this.#path} is another process's by now`)
    await rename(this.#path, this.#file)
    this.#isReplaced = true
  }

  async close(): Promise<void> {
    try {
      if (!this.#isReplaced && (await this.#isOurs())) await rm(this.#path, { force: true })
    } finally {
      await this.#handle.close()
    }
  }

  /** Whoever was slow may have been taken for dead. */
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

/** Two that follow each other may have one number, but were not made at one time. */
async function markOf(path: string): Promise<bigint | undefined> {
  const found = await stat(path, { bigint: true }).catch(() => undefined)
  if (found?.isDirectory()) throw new Error(`EISDIR: ${path} is a directory`)
  return found && found.ino * 2n ** 64n + found.birthtimeNs
}
