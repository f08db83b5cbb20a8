/** Stands in for the next end of an exchange until there is one, and collects the calls to it. The caller's credit bounds the body. */
import type { SallyportError } from './base/errors.ts'
import { GatheredChunks } from './base/gathered.ts'
import type { HeaderList, RequestSink } from './exchange.ts'

export class Early implements RequestSink {
  readonly #chunks = new GatheredChunks()
  #trailers: HeaderList | undefined
  #consumed = 0
  /** Set if the caller has left. */
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

  /** Passes everything on in order, including calls that arrive meanwhile, and keeps nothing. */
  handTo(sink: RequestSink): void {
    do {
      for (let chunk = this.#chunks.shift(); chunk !== undefined; chunk = this.#chunks.shift()) sink.requestData(chunk)
      const trailers = this.#trailers
      const bytes = this.#consumed
      this.#trailers = undefined
      this.#consumed = 0
      if (trailers !== undefined) sink.requestEnd(trailers)
      if (bytes > 0) sink.responseConsumed(bytes)
    } while (this.#chunks.bytes > 0 || this.#trailers !== undefined || this.#consumed > 0)
    if (this.error !== undefined) sink.requestAbort(this.error)
  }
}
