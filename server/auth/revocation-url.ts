/** A list of revocations behind an https URL. It is fetched regularly, and the last valid one is kept. */
import { starting } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { Download } from './download.ts'
import { MAX_LIST_BYTES, parseRevocations } from './revocation-list.ts'
import type { Revocation } from './revocations.ts'

/** With the 5 s that a download may take, a rule is in force within 10 s. */
const REFRESH_MS = 5000

export interface UrlRevocationsOptions {
  readonly url: string
  /** Authorities for this URL only, in place of Node's own. */
  readonly ca?: string | string[] | undefined
}

export function revocationsDownload({ url, ca }: UrlRevocationsOptions): Download<readonly Revocation[]> {
  return new Download({ url, ca, accept: 'application/json', maxBytes: MAX_LIST_BYTES, parse: parseDocument })
}

/** Only a file may be empty. */
function parseDocument(text: string): readonly Revocation[] {
  if (text.trim() === '') throw new Error('the document is empty')
  return parseRevocations(text)
}

export class RevocationUrl {
  readonly #download: Download<readonly Revocation[]>
  readonly #logger: Logger
  readonly #onList: (rules: readonly Revocation[]) => void
  #timer: NodeJS.Timeout | undefined
  #closed = false
  #failed = false
  /** A list has been fetched. Until then, no token can be checked. */
  ready = false

  constructor(options: UrlRevocationsOptions, logger: Logger, onList: (rules: readonly Revocation[]) => void) {
    this.#logger = logger
    this.#onList = onList
    this.#download = revocationsDownload(options)
  }

  /** Fetches the list. If that fails, goes on without one; until there is one, every handshake gets 503. */
  async start(): Promise<void> {
    await this.#refresh()
    if (this.#closed) return
    const due = starting(this.#logger, 'refreshing the revocations failed', () => this.start())
    this.#timer = setTimeout(due, REFRESH_MS).unref()
  }

  async #refresh(): Promise<void> {
    try {
      const rules = await this.#download.get()
      if (rules !== undefined && !this.#closed) this.#onList(rules)
      this.ready = true
      this.#failed = false
    } catch (error) {
      if (this.#failed || this.#closed) return
      this.#failed = true
      const kept = this.ready ? 'the last good ones stay' : 'there are none yet'
      this.#logger.error({ url: this.#download.place, err: error }, `revocations could not be fetched; ${kept}`)
    }
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#download.close()
  }
}
