/** What is told of a delivery whose trace is recorded: each attempt, and each wait for a session. */
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

  /** The next attempt, of which those behind are to be parts. `resends`: how many there were before. */
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
    // Of a client, both kinds are failures.
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

  /** `failure`: no session came. */
  waited(failure?: SallyportError): void {
    this.#wait?.end(failure?.reason)
    this.#wait = undefined
  }
}
