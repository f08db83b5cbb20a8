/** A list of revocations in a file: watched, read again when it changes, and written when a rule is added. */
import { realpath } from 'node:fs/promises'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../../protocol/base/watch-files.ts'
import { NextFile } from './next-file.ts'
import { formatRevocations, MAX_LIST_BYTES, parseRevocations } from './revocation-list.ts'
import { KEEP_OVER_S, type Revocation } from './revocations.ts'

const EMPTIED = 'it is empty, and there were rules in it; { "revocations": [] } says that none is left'

export class RevocationFile {
  readonly #file: string
  readonly #logger: Logger
  readonly #onList: (rules: readonly Revocation[]) => void
  readonly #now: () => number
  #text = ''
  /** There are rules in the file, or were when it was last good. */
  #hasRules = false
  /** Rules that hold although they are not in the file, because it could not be written; tried again with its next change. */
  #unwritten: Revocation[] = []
  #watch: FilesWatch | undefined
  #closed = false
  /** One reading or writing at a time. */
  #queue: Promise<unknown> = Promise.resolve()

  constructor(file: string, logger: Logger, onList: (rules: readonly Revocation[]) => void, now: () => number) {
    this.#file = file
    this.#logger = logger
    this.#onList = onList
    this.#now = now
  }

  /** Throws if the file is missing or bad: to go on without it would be to forget what was revoked. */
  async start(): Promise<void> {
    try {
      this.#take(await this.#readText())
    } catch (error) {
      const hint = (error as NodeJS.ErrnoException).code === 'ENOENT' ? '; an empty file is an empty list' : ''
      throw new Error(`auth.revocations.file: ${(error as Error).message}${hint}`, { cause: error })
    }
    if (this.#closed) return
    const changed = () => detached(this.#logger, 'a changed list of revocations could not be read', this.#read())
    this.#watch = watchFiles([this.#file], this.#logger, changed)
  }

  /** Rules that hold until this server stops, or until they could be written. */
  get unwritten(): readonly Revocation[] {
    return this.#unwritten
  }

  #read(): Promise<void> {
    return this.#next(async () => {
      try {
        const text = await this.#readText()
        if (text === this.#text) return
        this.#take(text)
        this.#logger.info({ file: this.#file }, 'revocations read')
      } catch (error) {
        this.#logger.error({ file: this.#file, err: error }, 'the list of revocations is bad; the old one stays')
        return
      }
      if (this.#unwritten.length > 0) await this.#change(rules => rules)
    })
  }

  #take(text: string): void {
    const rules = parseRevocations(text)
    this.#text = text
    this.#hasRules = rules.length > 0
    this.#onList([...rules, ...this.#unwritten])
  }

  /** Adds a rule to the file, whoever has changed it meanwhile. Resolves once it would survive a restart. */
  add(rule: Revocation): Promise<void> {
    this.#unwritten.push(rule)
    return this.#next(() => this.#change(rules => rules))
  }

  /** Takes rules out of the file, and out of those that could not be written; rejects, and they hold, if that fails. */
  remove(isRemoved: (rule: Revocation) => boolean): Promise<void> {
    return this.#next(() => this.#change(rules => rules.filter(rule => !isRemoved(rule))))
  }

  async #change(change: (rules: Revocation[]) => Revocation[]): Promise<void> {
    const unwritten = this.#unwritten
    const text = (await this.#textAfter(change, unwritten)) ?? (await this.#readText())
    this.#unwritten = this.#unwritten.filter(rule => !unwritten.includes(rule))
    this.#take(text)
  }

  /** Text of the file once it has changed; undefined if there is nothing to change. */
  async #textAfter(
    change: (rules: Revocation[]) => Revocation[],
    unwritten: Revocation[],
  ): Promise<string | undefined> {
    const textNow = async () => {
      const there = parseRevocations(await this.#readText())
      const keptS = this.#now() / 1000 - KEEP_OVER_S
      const kept = change(there).filter(({ until }) => until === undefined || until > keptS)
      const added = change(unwritten)
      const isChanged = added.length > 0 || kept.length < there.length
      return isChanged ? formatRevocations([...kept, ...added]) : undefined
    }
    // A folder that is not ours to write need not be, where nothing changes.
    if ((await textNow()) === undefined) return undefined
    // A link stays: whoever edits what it leads to edits the list.
    const next = await NextFile.open(await realpath(this.#file))
    try {
      const text = await textNow()
      if (text !== undefined) await next.replace(text)
      return text
    } finally {
      await next.close()
    }
  }

  /** Whoever copies over a file, or has no room left on the disk, empties it first: that takes no rule back. */
  async #readText(): Promise<string> {
    const text = String(await readPlain(this.#file, MAX_LIST_BYTES))
    if (this.#hasRules && text.trim() === '') throw new Error(EMPTIED)
    return text
  }

  #next(step: () => Promise<void>): Promise<void> {
    const done = this.#queue.then(step)
    this.#queue = done.catch(() => {})
    return done
  }

  close(): void {
    this.#closed = true
    this.#watch?.close()
  }
}
