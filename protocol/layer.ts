/**
 * Layers between the two ends of an exchange: functions from a {@link Handler} to a {@link Handler}, listed from the outside
 * in. A layer answers a request itself, passes the exchange on unchanged, or puts an object of its own between the ends. That
 * object extends {@link PassThrough} if it only watches or changes a part.
 */
import { isFailure, type SallyportError } from './base/errors.ts'
import { discarding } from './base/guard.ts'
import { Early } from './early.ts'
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseHead, ResponseSink } from './exchange.ts'

/** Takes the next handler and returns a handler in front of it. Called once, when the layers are composed. */
export type Layer = (next: Handler) => Handler

/**
 * Puts `layers` in front of `handler`, in the order in which a request passes them.
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
 * An object between the two ends that passes everything on. A layer extends it and overrides the calls that it wants to watch
 * or change, calling `super` to pass them on. `over` is called once, when the exchange has ended in both directions.
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
  /** Collects calls to the next end until there is one. */
  #early: Early | undefined
  #status = 0
  #requestEnded = false
  #responseEnded = false
  #over = false

  /** `response` is the sink that the layer was given. */
  constructor(response: ResponseSink) {
    this.#response = response
  }

  /**
   * Passes the exchange on to `next`. Call it once; a layer that has to wait for something first may call it later. Until then
   * the request's data waits, and if the caller leaves, the request goes no further. The next handler may answer before it
   * returns.
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

  /** Status of the response, or of the error in its place; 0 before that. */
  get status(): number {
    return this.#status
  }

  /** Whether the exchange has ended in both directions. */
  get isOver(): boolean {
    return this.#over
  }

  /** Stops calling the next end, and discards the rest of the request. */
  protected detach(): void {
    this.#request = discarding(this.#response)
    this.#early?.handTo(this.#request)
  }

  /**
   * The exchange has ended. `error` says why it failed, with `cancelled` if the caller left. `cut`: we or the upstream ended a
   * response that had begun and was not complete.
   */
  protected over(_error: SallyportError | undefined, _cut: boolean): void {}

  #end(error: SallyportError | undefined, cut: boolean): void {
    if (this.#over) return
    this.#over = true
    this.over(error, cut && isFailure(error?.reason))
  }

  requestData(chunk: Uint8Array): void {
    this.#next.requestData(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    this.#requestEnded = true
    this.#next.requestEnd(trailers)
    if (this.#responseEnded) this.#end(undefined, false)
  }

  requestAbort(error: SallyportError, answered = false): void {
    const cut = this.#status !== 0 && !this.#responseEnded
    if (answered) this.#status = error.status
    this.#end(error, cut)
    this.#next.requestAbort(error, answered)
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
    // The other half of an upgraded connection is still open.
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

  requestKept(bytes: number): void {
    this.#response.requestKept?.(bytes)
  }
}
