/**
 * What stands between the two ends of an exchange: functions from a {@link Handler} to a {@link Handler}, read from the
 * outside in. A layer answers by itself, hands the exchange on as it is, or puts an object of its own between the ends,
 * which is a {@link PassThrough} where it only wants to see or change a part.
 */
import type { SallyportError } from './base/errors.ts'
import { discarding } from './base/guard.ts'
import { Early } from './early.ts'
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseHead, ResponseSink } from './exchange.ts'

/** Given what comes behind it, a layer is a handler itself. Called once, when the parts are put together. */
export type Layer = (next: Handler) => Handler

/**
 * `layers` in the order in which a request meets them, in front of `handler`.
 *
 * @example
 * ```ts
 * import { compose, type Handler, type Layer } from 'sallyport/protocol'
 *
 * declare const tally: Layer, target: Handler
 * const handler = compose([tally], target)
 * ```
 */
export function compose(layers: readonly Layer[], handler: Handler): Handler {
  return layers.reduceRight((next, layer) => layer(next), handler)
}

/**
 * One object between the two ends, which passes everything on. A layer extends it and overrides what it wants to see or
 * change, calling `super` for what goes on; `over` is called once, when the exchange has ended in both directions.
 *
 * @example
 * ```ts
 * import { type Layer, PassThrough } from 'sallyport/protocol'
 *
 * let bytes = 0
 * class Counted extends PassThrough {
 *   override responseData(chunk: Uint8Array): void {
 *     bytes += chunk.length
 *     super.responseData(chunk)
 *   }
 * }
 * const counting: Layer = next => (request, response) => new Counted(response).pass(next, request)
 * ```
 */
export class PassThrough implements RequestSink, ResponseSink {
  readonly #response: ResponseSink
  #request: RequestSink | undefined
  /** What is said to the next end before there is one. */
  #early: Early | undefined
  #status = 0
  #requestEnded = false
  #responseEnded = false
  #over = false

  /** `response`: the end that the layer was given. */
  constructor(response: ResponseSink) {
    this.#response = response
  }

  /**
   * Hands the exchange on, once; a layer that has to ask somebody first does so later. What comes of the request until
   * then waits; if the caller leaves, the request goes no further. The next handler may answer before it returns.
   */
  pass(next: Handler, request: HttpRequest): this {
    if (this.#early?.error !== undefined) return this
    const sink = next(request, this)
    this.#early?.handTo(sink)
    this.#request ??= sink
    return this
  }

  get #next(): RequestSink {
    if (this.#request !== undefined) return this.#request
    this.#early ??= new Early()
    return this.#early
  }

  /** Status of the response's head, or of the error that came in its place; 0 before. */
  get status(): number {
    return this.#status
  }

  /** Whether the exchange has ended in both directions. */
  get isOver(): boolean {
    return this.#over
  }

  /** Asks the next end nothing more, and drops what still comes of the request. */
  protected detach(): void {
    this.#request = discarding(this.#response)
  }

  /**
   * The exchange is over. `error`: why it failed, or `cancelled` where the caller left; `cut`: a response had begun, and did
   * not come whole.
   */
  protected over(_error: SallyportError | undefined, _cut: boolean): void {}

  #end(error: SallyportError | undefined, cut: boolean): void {
    if (this.#over) return
    this.#over = true
    this.over(error, cut)
  }

  requestData(chunk: Uint8Array): void {
    this.#next.requestData(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    this.#requestEnded = true
    this.#next.requestEnd(trailers)
    if (this.#responseEnded) this.#end(undefined, false)
  }

  requestAbort(error: SallyportError): void {
    this.#end(error, this.#status !== 0 && !this.#responseEnded)
    this.#next.requestAbort(error)
  }

  responseConsumed(bytes: number): void {
    this.#next.responseConsumed(bytes)
  }

  acknowledged(): void {
    this.#response.acknowledged?.()
  }

  unwanted(): void {
    this.#end(undefined, false)
    this.#response.unwanted?.()
  }

  responseInformational(status: number, headers: HeaderList): void {
    this.#response.responseInformational(status, headers)
  }

  responseHead(head: ResponseHead): void {
    this.#status = head.status
    this.#response.responseHead(head)
  }

  responseData(chunk: Uint8Array): void {
    this.#response.responseData(chunk)
  }

  responseEnd(trailers: HeaderList): void {
    this.#responseEnded = true
    // Of an upgraded connection the other half is still open.
    if (this.#status !== 101 || this.#requestEnded) this.#end(undefined, false)
    this.#response.responseEnd(trailers)
  }

  responseAbort(error: SallyportError): void {
    const cut = this.#status !== 0
    if (!cut) this.#status = error.status
    this.#end(error, cut)
    this.#response.responseAbort(error)
  }

  requestConsumed(bytes: number): void {
    this.#response.requestConsumed(bytes)
  }
}
