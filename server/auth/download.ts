/** Downloads a small document from an https URL, without redirects, and bounded in bytes and time. */
import { request } from 'undici'
import { type EndingAgent, endingAgent } from '../../protocol/base/ending-agent.ts'
import { readAtMost } from '../../protocol/base/read-at-most.ts'

const DEADLINE_MS = 5000

interface DownloadOptions {
  readonly url: string
  /** Authorities for this URL only, in place of Node's own. */
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

  /** The URL for logs, without its query, which may contain a secret. */
  get place(): string {
    const { origin, pathname } = new URL(this.#options.url)
    return `${origin}${pathname}`
  }

  /** The document's text. `undefined` if the server says that it has not changed. */
  async get(): Promise<string | undefined> {
    const { url, accept } = this.#options
    const { statusCode, headers, body } = await request(url, {
      dispatcher: this.#ending.agent,
      headers: { accept, ...(this.#tag === undefined ? {} : { 'if-none-match': this.#tag }) },
      signal: AbortSignal.timeout(DEADLINE_MS),
    })
    // A destroyed body emits an error, and nobody else listens for it.
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

  /** The last document was invalid: the next download must not be answered with "unchanged". */
  forget(): void {
    this.#tag = undefined
  }

  close(): void {
    void this.#ending.end().catch(() => {})
  }
}
