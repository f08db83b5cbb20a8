/** The next end of an exchange until there is one: what is said to it waits. The caller's credit bounds the body. */
import type { SallyportError } from './base/errors.ts'
import { GatheredChunks } from './base/gathered.ts'
import type { HeaderList, RequestSink } from './exchange.ts'

export class Early implements RequestSink {
  readonly #chunks = new GatheredChunks()
  #trailers: HeaderList | undefined
  #consumed = 0
  /** The caller has left. */
  error: SallyportError | undefined

  requestData(chunk: Uint8Array): void {
    this.#chunks.add(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    this.#trailers = trailers
  }

  requestAbort(error: SallyportError): void {
    this.error ??= error
    this.#chunks.clear()
    this.#trailers = undefined
  }

  responseConsumed(bytes: number): void {
    this.#consumed += bytes
  }

  /** All of it in order, and what is said in the meantime. */
  handTo(sink: RequestSink): void {
    for (const chunk of this.#chunks) sink.requestData(chunk)
    if (this.#trailers !== undefined) sink.requestEnd(this.#trailers)
    while (this.#consumed > 0) {
      const bytes = this.#consumed
      this.#consumed = 0
      sink.responseConsumed(bytes)
    }
    if (this.error !== undefined) sink.requestAbort(this.error)
  }
}
