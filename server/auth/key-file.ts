/** A key set in a file. The file is watched and read again when it changes. If it is then invalid, the old set stays. */
import { starting } from '../../protocol/base/guard.ts'
import { LastProblem } from '../../protocol/base/last-problem.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../../protocol/base/watch-files.ts'
import { type KeySet, type KeySource, MAX_KEY_SET_BYTES, parseKeySet } from './key-source.ts'

const COOL_DOWN_MS = 1000

/** Reads the set, and rejects if that fails; then keeps it up to date. `now` must be monotonic. */
export async function fileKeys(
  file: string,
  logger: Logger,
  now: () => number,
  algorithms?: readonly string[],
): Promise<KeySource> {
  const source = new FileKeys(file, logger, now, algorithms)
  await source.start()
  return source
}

class FileKeys implements KeySource {
  current: KeySet | undefined
  readonly #file: string
  readonly #logger: Logger
  readonly #now: () => number
  readonly #algorithms: readonly string[] | undefined
  #text = ''
  /** What is wrong with the file. A flood of tokens with unknown keys, each of which reads it again, logs that once. */
  readonly #problem = new LastProblem()
  #watch: FilesWatch | undefined
  #reading: Promise<boolean> | undefined
  #readAt = Number.NEGATIVE_INFINITY

  constructor(file: string, logger: Logger, now: () => number, algorithms: readonly string[] | undefined) {
    this.#file = file
    this.#logger = logger
    this.#now = now
    this.#algorithms = algorithms
  }

  async start(): Promise<void> {
    this.#text = String(await readPlain(this.#file, MAX_KEY_SET_BYTES))
    this.current = await parseKeySet(this.#text, this.#algorithms)
    const changed = starting(this.#logger, 'reading the changed key set failed', () => this.#changed())
    this.#watch = watchFiles([this.#file], this.#logger, changed)
  }

  /** Waits for a read that is under way, since it may have begun before the change. */
  async #changed(): Promise<void> {
    await this.#reading
    await this.#read()
  }

  async refresh(): Promise<boolean> {
    if (this.#reading === undefined && this.#now() - this.#readAt < COOL_DOWN_MS) return false
    return this.#read()
  }

  #read(): Promise<boolean> {
    this.#reading ??= this.#readOnce().finally(() => {
      this.#reading = undefined
      this.#readAt = this.#now()
    })
    return this.#reading
  }

  async #readOnce(): Promise<boolean> {
    try {
      const text = String(await readPlain(this.#file, MAX_KEY_SET_BYTES))
      const isNew = text !== this.#text
      if (isNew) this.current = await parseKeySet(text, this.#algorithms)
      this.#text = text
      this.#problem.clear()
      if (isNew) this.#logger.info({ file: this.#file }, 'key set read')
      return isNew
    } catch (error) {
      if (this.#problem.isNew(error))
        this.#logger.error({ file: this.#file, err: error }, 'the key set file is bad; the old set stays')
      return false
    }
  }

  close(): void {
    this.#watch?.close()
  }
}
