/** Spans of a delivery whose trace is recorded: one per attempt, and one per wait for a session. */
import type { SallyportError } from '../../protocol/base/errors.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import { setMethod } from '../../protocol/trace/attributes.ts'
import { writeContext } from '../../protocol/trace/context.ts'
import type { Span } from '../../protocol/trace/span.ts'
import type { Carrier } from '../registry.ts'

export class DeliverySpans {
  readonly #request: HttpRequest
  readonly #whole: Span
  #attempt: Span | undefined
  #wait: Span | undefined
  #error: string | undefined

  constructor(request: HttpRequest, whole: Span) {
    this.#request = request
    this.#whole = whole
  }

  /** Begins the span of an attempt, the parent of all spans further along. `resends` is the number of earlier attempts. */
  tries(carrier: Carrier, resends: number): Span {
    const span = this.#whole.child(carrier.hops === 0 ? 'tunnel' : 'hop', 'client')
    this.#attempt = span
    this.#error = undefined
    setMethod(span, this.#request.method)
    span.set('sallyport.carrier', carrier.id)
    if (resends > 0) span.set('http.request.resend_count', resends)
    writeContext(this.#request.headers, span.context)
    carrier.gave(span)
    return span
  }

  head(status: number): void {
    this.#attempt?.set('http.response.status_code', status)
    // For a client span, 4xx and 5xx are both errors.
    if (status >= 400) this.#error = String(status)
  }

  failed({ reason }: SallyportError): void {
    this.#error = reason
  }

  attemptOver(): void {
    this.#attempt?.end(this.#error)
    this.#attempt = undefined
  }

  waits(reason: SallyportError): void {
    this.#wait = this.#whole.child('hold', 'internal')
    this.#wait.set('sallyport.reason', reason.reason)
  }

  /** Ends the wait, with `failure` if no session came. */
  waited(failure?: SallyportError): void {
    this.#wait?.end(failure?.reason)
    this.#wait = undefined
  }
}
