/** The next end of an exchange until there is one: what is said to it waits. The caller's credit bounds the body. */
import type { SallyportError } from './base/errors.ts'
import { Gathered, SMALL_PIECE_BYTES } from './base/gathered.ts'
import { ownBytes } from './base/own-bytes.ts'
import type { HeaderList, RequestSink } from './exchange.ts'

export class Early implements RequestSink {
  readonly #chunks: (Uint8Array | Gathered)[] = []
  /** The last of the chunks, if it takes more small ones. */
  #open: Gathered | undefined
  #bytes = 0
  #trailers: HeaderList | undefined
  #consumed = 0
  /** The caller has left. */
  error: SallyportError | undefined

  requestData(chunk: Uint8Array): void {
    if (chunk.length >= SMALL_PIECE_BYTES) {
      this.#close()
      this.#chunks.push(ownBytes(chunk))
    } else if (this.#open?.add(chunk) !== true) {
      this.#close()
      this.#open = new Gathered(chunk, this.#bytes)
      this.#chunks.push(this.#open)
    }
    this.#bytes += chunk.length
  }

  #close(): void {
    this.#open?.close()
    this.#open = undefined
  }

  requestEnd(trailers: HeaderList): void {
    this.#trailers = trailers
  }

  requestAbort(error: SallyportError): void {
    this.error ??= error
    this.#chunks.length = 0
    this.#close()
    this.#trailers = undefined
  }

  responseConsumed(bytes: number): void {
    this.#consumed += bytes
  }

  /** All of it in order, and what is said in the meantime. */
  handTo(sink: RequestSink): void {
    for (const chunk of this.#chunks) {
      this.#open = undefined
      sink.requestData(chunk instanceof Gathered ? chunk.bytes : chunk)
    }
    if (this.#trailers !== undefined) sink.requestEnd(this.#trailers)
    while (this.#consumed > 0) {
      const bytes = this.#consumed
      this.#consumed = 0
      sink.responseConsumed(bytes)
    }
    if (this.error !== undefined) sink.requestAbort(this.error)
  }
}
