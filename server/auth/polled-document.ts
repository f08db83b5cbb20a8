/** Keeps a document behind an https URL up to date: fetches it regularly, and keeps the last valid one. */
import { starting } from '../../protocol/base/guard.ts'
import { LastProblem } from '../../protocol/base/last-problem.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { type Download, InvalidDocument } from './download.ts'

const RETRY_MS = 5000

interface PollOptions<Document> {
  /** What the document is, for logs, such as `the key set`. */
  readonly what: string
  /** How often it is fetched again. 0 means only when {@link PolledDocument.refresh} is called. */
  readonly refreshMs: number
  readonly logger: Logger
  /** Milliseconds, monotonic. */
  readonly now?: (() => number) | undefined
  readonly onDocument?: ((document: Document) => void) | undefined
}

export class PolledDocument<Document> {
  /** The last valid document. `undefined` until one has been fetched. */
  current: Document | undefined
  readonly #download: Download<Document>
  readonly #options: PollOptions<Document>
  #fetching: Promise<boolean> | undefined
  #fetchedAt = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #closed = false
  readonly #problem = new LastProblem()

  constructor(download: Download<Document>, options: PollOptions<Document>) {
    this.#download = download
    this.#options = options
  }

  /** Fetches the document now, and from then on regularly; sooner after a failure, since it may no longer be right. */
  async start(): Promise<void> {
    const { what, refreshMs, logger } = this.#options
    const afterMs = (await this.#fetch()) ? refreshMs : RETRY_MS
    if (afterMs === 0 || this.#closed) return
    const due = starting(logger, `refreshing ${what} failed`, () => this.start())
    this.#timer = setTimeout(due, afterMs).unref()
  }

  /** Fetches it again, unless that happened less than `coolDownMs` ago. Resolves to whether it was fetched. */
  async refresh(coolDownMs: number): Promise<boolean> {
    if (this.#fetching === undefined && this.#now() - this.#fetchedAt < coolDownMs) return false
    return this.#fetch()
  }

  #fetch(): Promise<boolean> {
    this.#fetching ??= this.#fetchOnce().finally(() => {
      this.#fetching = undefined
      this.#fetchedAt = this.#now()
    })
    return this.#fetching
  }

  async #fetchOnce(): Promise<boolean> {
    try {
      const document = await this.#download.get()
      if (document !== undefined && !this.#closed) {
        this.current = document
        this.#options.onDocument?.(document)
      }
      this.#problem.clear()
      return true
    } catch (error) {
      const isInvalid = error instanceof InvalidDocument
      const how = isInvalid ? 'was fetched, but is bad' : 'could not be fetched'
      // Why it cannot be fetched may differ each time.
      if (this.#closed || !this.#problem.isNew(isInvalid ? error : how)) return false
      const { what, logger } = this.#options
      const kept = this.current === undefined ? 'there is none yet' : 'the last good one stays'
      logger.error({ url: this.#download.place, err: error }, `${what} ${how}; ${kept}`)
      return false
    }
  }

  #now(): number {
    return this.#options.now?.() ?? performance.now()
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#download.close()
  }
}
