/** A small document behind an https URL: no redirects, bounded in bytes and in time. */
import { request } from 'undici'
import { type EndingAgent, endingAgent } from '../../protocol/base/ending-agent.ts'
import { readAtMost } from '../../protocol/base/read-at-most.ts'

const DEADLINE_MS = 5000

interface DownloadOptions {
  readonly url: string
  /** Certificates that are trusted besides the system's, for this URL alone. */
  readonly ca?: string | string[] | undefined
  readonly accept: string
  readonly maxBytes: number
}

export class Download {
  readonly #options: DownloadOptions
  readonly #ending: EndingAgent
  #tag: string | undefined

  constructor(options: DownloadOptions) {
    this.#options = options
    this.#ending = endingAgent({
      connect: { timeout: DEADLINE_MS, ...(options.ca === undefined ? {} : { ca: options.ca }) },
      headersTimeout: DEADLINE_MS,
      bodyTimeout: DEADLINE_MS,
      connections: 1,
    })
  }

  /** For the log: a query may hold a secret. */
  get place(): string {
    const { origin, pathname } = new URL(this.#options.url)
    return `${origin}${pathname}`
  }

  /** The document's text; undefined if the server says that it is the one that was got before. */
  async get(): Promise<string | undefined> {
    const { url, accept } = this.#options
    const { statusCode, headers, body } = await request(url, {
      dispatcher: this.#ending.agent,
      headers: { accept, ...(this.#tag === undefined ? {} : { 'if-none-match': this.#tag }) },
      signal: AbortSignal.timeout(DEADLINE_MS),
    })
    // A body that is given up emits an error, and nobody else listens.
    body.on('error', () => {})
    if (statusCode === 304 && this.#tag !== undefined) {
      await body.dump()
      return undefined
    }
    if (statusCode !== 200) {
      body.destroy()
      throw new Error(`the server answered ${statusCode}`)
    }
    const { maxBytes } = this.#options
    const bytes = await readAtMost(body, maxBytes)
    if (bytes === undefined) throw new Error(`the document is over ${maxBytes} bytes`)
    this.#tag = typeof headers.etag === 'string' ? headers.etag : undefined
    return bytes.toString('utf8')
  }

  /** What was got is no good: it is not to be taken for known. */
  forget(): void {
    this.#tag = undefined
  }

  close(): void {
    void this.#ending.end().catch(() => {})
  }
}
