import type { SallyportError } from '../../protocol/base/errors.ts'
import type { Failing } from '../../protocol/base/guard.ts'
import type { HeaderList, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import type { Carrier } from '../registry.ts'
import type { DeliveredExchange } from './deliver.ts'

/** One attempt of a delivery. Once there is a later attempt, everything from this one is ignored. */
export class Attempt implements ResponseSink, Failing {
  readonly carrier: Carrier
  readonly #delivery: DeliveredExchange
  /** Where the request is sent. */
  upstream: RequestSink | undefined
  /** Request bytes that its carrier has consumed. */
  #consumed = 0

  constructor(delivery: DeliveredExchange, carrier: Carrier) {
    this.#delivery = delivery
    this.carrier = carrier
  }

  responseInformational(status: number, headers: HeaderList): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.informational(status, headers)
  }

  responseHead(response: ResponseHead): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.head(response)
  }

  responseData(chunk: Uint8Array): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.data(chunk)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.end(trailers)
  }

  responseAbort(error: SallyportError): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.failed(this, error)
  }

  requestConsumed(bytes: number): void {
    this.#consumed += bytes
    if (this.#delivery.isCurrent(this)) this.#delivery.consumed(this.#consumed)
  }

  acknowledged(): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.acknowledged(this)
  }

  unwanted(): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.unwanted()
  }

  markAcknowledged(): void {
    if (this.#delivery.isCurrent(this)) this.#delivery.markAcknowledged()
  }

  threw(error: unknown): void {
    this.#delivery.threw(error)
  }
}
