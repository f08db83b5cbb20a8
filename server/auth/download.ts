/** Downloads a small document from an https URL, without redirects, and bounded in bytes and time. */
import { request } from 'undici'
import { type EndingAgent, endingAgent } from '../../protocol/base/ending-agent.ts'
import { messageOf } from '../../protocol/base/errors.ts'
import { urlForLogs } from '../../protocol/base/path.ts'
import { readAtMost } from '../../protocol/base/read-at-most.ts'

const DEADLINE_MS = 5000

interface DownloadOptions<Document> {
  readonly url: string
  /** Authorities for this URL only, in place of Node's own. */
  readonly ca?: string | string[] | undefined
  readonly accept: string
  readonly maxBytes: number
  /** Throws an Error that says what is wrong with the text. */
  readonly parse: (text: string) => Document | Promise<Document>
}

/** It was fetched, but is not valid. */
export class InvalidDocument extends Error {}

export class Download<Document> {
  readonly #options: DownloadOptions<Document>
  readonly #ending: EndingAgent
  /** Tag of the last answer, if that was a valid document or confirmed it. */
  #tag: string | undefined

  constructor(options: DownloadOptions<Document>) {
    this.#options = options
    this.#ending = endingAgent({
      connect: { timeout: DEADLINE_MS, ...(options.ca === undefined ? {} : { ca: options.ca }) },
      headersTimeout: DEADLINE_MS,
      bodyTimeout: DEADLINE_MS,
      connections: 1,
    })
  }

  /** The URL for logs. */
  get place(): string {
    return urlForLogs(this.#options.url)
  }

  /** `undefined` if the server says that the document has not changed. */
  async get(): Promise<Document | undefined> {
    const { url, accept, maxBytes, parse } = this.#options
    const tag = this.#tag
    this.#tag = undefined
    const { statusCode, headers, body } = await request(url, {
      dispatcher: this.#ending.agent,
      headers: { accept, ...(tag === undefined ? {} : { 'if-none-match': tag }) },
      signal: AbortSignal.timeout(DEADLINE_MS),
    })
    // A destroyed body emits an error, and nobody else listens for it.
    body.on('error', () => {})
    if (statusCode === 304 && tag !== undefined) {
      this.#tag = tag
      await body.dump()
      return undefined
    }
    if (statusCode !== 200) {
      body.destroy()
      // It may have refused the tag, although it gave it out.
      if (tag !== undefined && statusCode >= 400 && statusCode < 500) return await this.get()
      throw new Error(`the server answered ${statusCode}`)
    }
    const bytes = await readAtMost(body, maxBytes)
    if (bytes === undefined) throw new InvalidDocument(`the document is over ${maxBytes} bytes`)
    let document: Document
    try {
      document = await parse(bytes.toString('utf8'))
    } catch (cause) {
      throw new InvalidDocument(messageOf(cause), { cause })
    }
    this.#tag = typeof headers.etag === 'string' ? headers.etag : undefined
    return document
  }

  close(): void {
    void this.#ending.end().catch(() => {})
  }
}
