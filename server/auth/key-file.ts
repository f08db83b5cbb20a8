/** A key set in a file: watched, read again when it changes; a bad file keeps the old set. */
import type { FSWatcher } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Logger } from '../../protocol/log.ts'
import { watchFolder } from '../watch-folder.ts'
import { type KeySet, type KeySource, MAX_KEY_SET_BYTES, parseKeySet } from './key-source.ts'

const SETTLE_MS = 100
const COOL_DOWN_MS = 1000

/** Reads the set once, and throws if that fails; then keeps it fresh. */
export async function fileKeys(file: string, logger: Logger, now: () => number): Promise<KeySource> {
  const source = new FileKeys(file, logger, now)
  await source.start()
  return source
}

class FileKeys implements KeySource {
  current: KeySet | undefined
  readonly #file: string
  readonly #logger: Logger
  readonly #now: () => number
  #text = ''
  #watcher: FSWatcher | undefined
  #settle: NodeJS.Timeout | undefined
  #reading: Promise<boolean> | undefined
  #readAt = 0

  constructor(file: string, logger: Logger, now: () => number) {
    this.#file = file
    this.#logger = logger
    this.#now = now
  }

  async start(): Promise<void> {
    this.#text = await readBounded(this.#file)
    this.current = parseKeySet(this.#text)
    // The folder, because files are replaced by rename, and by a symbolic link in Kubernetes.
    this.#watcher = watchFolder(dirname(this.#file), this.#logger, () => this.#changed())
  }

  #changed(): void {
    this.#settle ??= setTimeout(() => {
      this.#settle = undefined
      void this.#read()
    }, SETTLE_MS).unref()
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
      const text = await readBounded(this.#file)
      if (text === this.#text) return false
      this.current = parseKeySet(text)
      this.#text = text
      this.#logger.info({ file: this.#file }, 'key set read')
      return true
    } catch (error) {
      this.#logger.error({ file: this.#file, err: error }, 'the key set file is bad; the old set stays')
      return false
    }
  }

  close(): void {
    clearTimeout(this.#settle)
    this.#watcher?.close()
  }
}

async function readBounded(file: string): Promise<string> {
  const handle = await open(file, 'r')
  try {
    const buffer = Buffer.alloc(MAX_KEY_SET_BYTES + 1)
    let length = 0
    for (;;) {
      const { bytesRead } = await handle.read(buffer, length, buffer.length - length)
      if (bytesRead === 0) return buffer.toString('utf8', 0, length)
      length += bytesRead
      if (length > MAX_KEY_SET_BYTES) throw new Error('the key set is over 64 KiB')
    }
  } finally {
    await handle.close()
  }
}
