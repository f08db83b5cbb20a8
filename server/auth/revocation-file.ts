/** A list of revocations in a file. The file is watched, read again when it changes, and written when rules change. */
import { realpath } from 'node:fs/promises'
import { starting } from '../../protocol/base/guard.ts'
import { LastProblem } from '../../protocol/base/last-problem.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../../protocol/base/watch-files.ts'
import { NextFile } from './next-file.ts'
import { formatRevocations, formatRule, MAX_LIST_BYTES, noRoom, parseOwnRevocations } from './revocation-list.ts'
import { checkRevocation, KEEP_OVER_S, type Revocation } from './revocations.ts'

const EMPTIED = 'it is empty, but had rules before; write { "revocations": [] } to remove them all'

export class RevocationFile {
  readonly #file: string
  readonly #logger: Logger
  readonly #onList: (rules: readonly Revocation[]) => void
  readonly #now: () => number
  #text = ''
  /** The file has rules, or had some when it was last valid. */
  #hasRules = false
  /** Rules in force that could not be written to the file. Written with its next change. */
  #unwritten: Revocation[] = []
  #watch: FilesWatch | undefined
  readonly #problem = new LastProblem()
  readonly #idle = new LastProblem()
  #closed = false
  /** One reading or writing at a time. */
  #queue: Promise<unknown> = Promise.resolve()

  constructor(file: string, logger: Logger, onList: (rules: readonly Revocation[]) => void, now: () => number) {
    this.#file = file
    this.#logger = logger
    this.#onList = onList
    this.#now = now
  }

  /** Rejects if the file is missing or invalid: to go on without it would forget what was revoked. */
  async start(): Promise<void> {
    try {
      this.#apply(await this.#readText())
    } catch (error) {
      const hint = (error as NodeJS.ErrnoException).code === 'ENOENT' ? '; an empty file is an empty list' : ''
      throw new Error(`auth.revocations.file: ${(error as Error).message}${hint}`, { cause: error })
    }
    if (this.#closed) return
    const changed = starting(this.#logger, 'reading the changed list of revocations failed', () => this.#read())
    this.#watch = watchFiles([this.#file], this.#logger, changed)
  }

  /** Rules that are in force until this server stops, because they could not be written. */
  get unwritten(): readonly Revocation[] {
    return this.#unwritten
  }

  #read(): Promise<void> {
    return this.#next(async () => {
      try {
        const text = await this.#readText()
        if (text === this.#text) return this.#problem.clear()
        this.#apply(text)
        this.#logger.info({ file: this.#file }, 'revocations read')
      } catch (error) {
        if (this.#problem.isNew(error, this.#watch?.version))
          this.#logger.error({ file: this.#file, err: error }, 'the list of revocations is bad; the old one stays')
        return
      }
      if (this.#unwritten.length > 0) await this.#change(rules => rules)
    })
  }

  #apply(text: string): void {
    const rules = parseOwnRevocations(text)
    this.#problem.clear()
    this.#warn(rules)
    this.#text = text
    this.#hasRules = rules.length > 0
    this.#onList([...rules, ...this.#unwritten])
  }

  /** Of a rule without effect, which an older version has kept without a word. */
  #warn(rules: readonly Revocation[]): void {
    try {
      rules.forEach(checkRevocation)
      this.#idle.clear()
    } catch (error) {
      if (this.#idle.isNew(error))
        this.#logger.warn({ file: this.#file, err: error }, 'the list of revocations has a rule that should be removed')
    }
  }

  /** Adds a rule to the file, keeping changes by others. Resolves once the rule would survive a restart. */
  add(rule: Revocation): Promise<void> {
    this.#unwritten.push(rule)
    return this.#next(async () => {
      await this.#change(rules => rules)
      if (this.#unwritten.includes(rule)) throw noRoom()
    })
  }

  /** Removes rules from the file, and from those that could not be written. If that fails, rejects, and the rules stay in force. */
  remove(isRemoved: (rule: Revocation) => boolean): Promise<void> {
    return this.#next(() => this.#change(rules => rules.filter(rule => !isRemoved(rule))))
  }

  async #change(change: (rules: Revocation[]) => Revocation[]): Promise<void> {
    // A copy: rules that come while this is written belong to the next change.
    const unwritten = [...this.#unwritten]
    const text = (await this.#textAfter(change, unwritten)) ?? (await this.#readText())
    const written = new Set(parseOwnRevocations(text).map(formatRule))
    const left = change(unwritten).filter(rule => !written.has(formatRule(rule)))
    this.#unwritten = this.#unwritten.filter(rule => left.includes(rule) || !unwritten.includes(rule))
    this.#apply(text)
  }

  /** Makes the change and resolves to the file's new text. `undefined` if there is nothing to change. */
  async #textAfter(
    change: (rules: Revocation[]) => Revocation[],
    unwritten: Revocation[],
  ): Promise<string | undefined> {
    const textNow = async () => {
      const there = parseOwnRevocations(await this.#readText())
      const nowS = this.#now() / 1000
      const isOver = ({ until }: Revocation, forS: number) => until !== undefined && until + forS <= nowS
      const kept = change(there).filter(rule => !isOver(rule, KEEP_OVER_S))
      const added = change(unwritten)
      if (added.length === 0 && kept.length === there.length) return undefined
      const { over = [], inForce = [] } = Object.groupBy(kept, rule => (isOver(rule, 0) ? 'over' : 'inForce'))
      // Those that are over give their place to others.
      return formatRevocations(inForce, [...added, ...over])
    }
    // If nothing changes, the folder need not be writable.
    if ((await textNow()) === undefined) return undefined
    // A link stays a link: the file that it points to is replaced.
    const next = await NextFile.open(await realpath(this.#file))
    try {
      const text = await textNow()
      if (text !== undefined) await next.replace(text)
      return text
    } finally {
      await next.close()
    }
  }

  /** Copying over a file, or a full disk, may leave it empty for a while. That must not remove rules. */
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
