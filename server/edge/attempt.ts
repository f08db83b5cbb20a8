import type { SallyportError } from '../../protocol/base/errors.ts'
import type { HeaderList, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import type { Carrier } from '../registry.ts'
import type { EdgeExchange } from './edge-exchange.ts'

/** The ear of one attempt: what an earlier one still says is not heard. */
export class Attempt implements ResponseSink {
  readonly route: Carrier
  readonly #exchange: EdgeExchange
  upstream: RequestSink | undefined
  consumedBytes = 0

  constructor(exchange: EdgeExchange, route: Carrier) {
    this.#exchange = exchange
    this.route = route
  }

  responseInformational(status: number, headers: HeaderList): void {
    this.#exchange.informational(this, status, headers)
  }

  responseHead(response: ResponseHead): void {
    this.#exchange.head(this, response)
  }

  responseData(chunk: Uint8Array): void {
    this.#exchange.responseData(this, chunk)
  }

  responseEnd(trailers: HeaderList): void {
    this.#exchange.responseEnd(this, trailers)
  }

  responseAbort(error: SallyportError): void {
    this.#exchange.failed(this, error)
  }

  acknowledged(): void {
    this.#exchange.acknowledged(this)
  }

  unwanted(): void {
    this.#exchange.unwanted(this)
  }

  taken(): void {
    this.#exchange.taken(this)
  }

  threw(error: unknown): void {
    this.#exchange.threw(error)
  }

  requestConsumed(bytes: number): void {
    this.#exchange.requestConsumed(this, bytes)
  }
}
