/** A list of revocations in a file: watched, read again when it changes, and written when a rule is added. */
import { open, rename, rm, stat } from 'node:fs/promises'
import type { Logger } from '../../protocol/log.ts'
import { type FilesWatch, watchFiles } from '../../protocol/watch-files.ts'
import { readBounded } from './read-bounded.ts'
import { formatRevocations, MAX_LIST_BYTES, parseRevocations } from './revocation-list.ts'
import type { Revocation } from './revocations.ts'

export class RevocationFile {
  readonly #file: string
  readonly #logger: Logger
  readonly #onList: (rules: readonly Revocation[]) => void
  #text = ''
  #watch: FilesWatch | undefined
  /** One reading or writing at a time. */
  #queue: Promise<unknown> = Promise.resolve()

  constructor(file: string, logger: Logger, onList: (rules: readonly Revocation[]) => void) {
    this.#file = file
    this.#logger = logger
    this.#onList = onList
  }

  /** Throws if the file is missing or bad: to go on without it would be to forget what was revoked. */
  async start(): Promise<void> {
    try {
      this.#take(await readBounded(this.#file, MAX_LIST_BYTES))
    } catch (error) {
      const hint = (error as NodeJS.ErrnoException).code === 'ENOENT' ? '; an empty file is an empty list' : ''
      throw new Error(`auth.revocations.file: ${(error as Error).message}${hint}`, { cause: error })
    }
    this.#watch = watchFiles([this.#file], this.#logger, () => void this.#read())
  }

  #read(): Promise<void> {
    return this.#next(async () => {
      try {
        const text = await readBounded(this.#file, MAX_LIST_BYTES)
        if (text === this.#text) return
        this.#take(text)
        this.#logger.info({ file: this.#file }, 'revocations read')
      } catch (error) {
        this.#logger.error({ file: this.#file, err: error }, 'the list of revocations is bad; the old one stays')
      }
    })
  }

  #take(text: string): void {
    const rules = parseRevocations(text)
    this.#text = text
    this.#onList(rules)
  }

  /** Adds rules to the file, whoever has changed it meanwhile. Resolves once they would survive a restart. */
  add(rules: readonly Revocation[], nowMs: number): Promise<void> {
    return this.#next(async () => {
      const there = parseRevocations(await readBounded(this.#file, MAX_LIST_BYTES))
      const kept = there.filter(({ until }) => until === undefined || until > nowMs / 1000)
      const text = formatRevocations([...kept, ...rules])
      parseRevocations(text)
      await this.#write(text)
      this.#take(text)
    })
  }

  async #write(text: string): Promise<void> {
    const fresh = `${this.#file}.${process.pid}.new`
    const { mode } = await stat(this.#file)
    const handle = await open(fresh, 'w', mode & 0o777)
    try {
      await handle.writeFile(text)
      await handle.sync()
      await handle.close()
      await rename(fresh, this.#file)
    } catch (error) {
      await handle.close().catch(() => {})
      await rm(fresh, { force: true })
      throw error
    }
  }

  #next(step: () => Promise<void>): Promise<void> {
    const done = this.#queue.then(step)
    this.#queue = done.catch(() => {})
    return done
  }

  close(): void {
    this.#watch?.close()
  }
}
