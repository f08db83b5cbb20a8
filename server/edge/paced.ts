/** An exchange whose bytes are held against a rate: its two ends get their credit when the bytes are paid for. */
import { type SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import type { HeaderList, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { stepOf } from '../../protocol/base/guard.ts'
import type { Usage } from './quotas.ts'

/** Credit that is given late. */
class Credit {
  readonly #usage: Usage
  readonly #sink: Pick<RequestSink, 'consumed' | 'abort'>
  #bytes = 0
  #free = false
  #timer: NodeJS.Timeout | undefined

  constructor(usage: Usage, sink: Pick<RequestSink, 'consumed' | 'abort'>) {
    this.#usage = usage
    this.#sink = sink
  }

  add(bytes: number): void {
    this.#bytes += bytes
    if (this.#timer !== undefined) return
    const delayMs = this.#free ? 0 : this.#usage.delayMs
    if (delayMs <= 0) this.pay()
    else this.#timer = setTimeout(pay, delayMs, this).unref()
  }

  /** @internal */
  pay(): void {
    this.#timer = undefined
    const bytes = this.#bytes
    this.#bytes = 0
    if (bytes > 0) this.#sink.responseConsumed(bytes)
  }

  threw(error: unknown): void {
    this.#sink.requestAbort(toSallyportError(error))
  }

  /** The other end sends nothing more: there is nothing left to slow. */
  free(): void {
    this.#free = true
    clearTimeout(this.#timer)
    this.pay()
  }
}

const pay = stepOf<Credit>(credit => credit.pay())

class PacedRequest implements RequestSink {
  readonly #usage: Usage
  readonly #sink: RequestSink
  readonly credit: Credit

  constructor(usage: Usage, sink: RequestSink) {
    this.#usage = usage
    this.#sink = sink
    this.credit = new Credit(usage, sink)
  }

  requestData(chunk: Uint8Array): void {
    this.#usage.spend(chunk.length)
    this.#sink.requestData(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    this.#sink.requestEnd(trailers)
  }

  requestAbort(error: SallyportError): void {
    this.credit.free()
    this.#sink.requestAbort(error)
  }

  responseConsumed(bytes: number): void {
    this.credit.add(bytes)
  }
}

export class PacedResponse implements ResponseSink {
  readonly #usage: Usage
  readonly #sink: ResponseSink
  readonly #credit: Credit
  #request: PacedRequest | undefined
  #ended = false

  constructor(usage: Usage, sink: ResponseSink) {
    this.#usage = usage
    this.#sink = sink
    this.#credit = new Credit(usage, sink)
  }

  /** The other way of the exchange. */
  connect(sink: RequestSink): RequestSink {
    this.#request = new PacedRequest(this.#usage, sink)
    if (this.#ended) this.#request.credit.free()
    return this.#request
  }

  responseInformational(status: number, headers: HeaderList): void {
    this.#sink.responseInformational(status, headers)
  }

  responseHead(response: ResponseHead): void {
    this.#sink.responseHead(response)
  }

  responseData(chunk: Uint8Array): void {
    this.#usage.spend(chunk.length)
    this.#sink.responseData(chunk)
  }

  responseEnd(trailers: HeaderList): void {
    this.#over()
    this.#sink.responseEnd(trailers)
  }

  unwanted(): void {
    this.#sink.unwanted?.()
  }

  responseAbort(error: SallyportError): void {
    this.#over()
    this.#credit.free()
    this.#sink.responseAbort(error)
  }

  #over(): void {
    this.#ended = true
    this.#request?.credit.free()
  }

  requestConsumed(bytes: number): void {
    this.#credit.add(bytes)
  }
}
