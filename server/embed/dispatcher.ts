/** An undici Dispatcher whose requests go through a runtime's sessions. */

import { STATUS_CODES } from 'node:http'
import { Dispatcher } from 'undici'
import { errorOf, SallyportError } from '../../protocol/base/errors.ts'
import { followed, hook } from '../../protocol/base/guard.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Handler, HeaderList, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { stripResponseTrailers, toRecord } from '../../protocol/http/headers.ts'
import { BodyPump } from './body.ts'
import { bodyOf, headOf } from './dispatch-options.ts'
import { buildRequest, type CallOptions } from './request.ts'

export class RuntimeDispatcher extends Dispatcher {
  readonly #into: Handler
  readonly #runtime: string
  readonly #options: CallOptions
  #closed = false

  constructor(into: Handler, runtime: string, options: CallOptions) {
    super()
    this.#into = into
    this.#runtime = runtime
    this.#options = options
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    // Otherwise the handlers of an older undici, whose methods have other names, would wait forever.
    if (handler.onResponseError === undefined)
      throw new TypeError("the dispatcher needs undici 8, and Node's own fetch may have an older one")
    const response = new DispatchResponse(handler)
    try {
      if (this.#closed) throw new TypeError('the dispatcher is closed')
      if (options.upgrade)
        throw new TypeError('the dispatcher does not support upgrades: open a WebSocket to the public address')
      const body = bodyOf(options.body)
      const request = buildRequest(headOf(options, body), this.#options)
      request.runtime = this.#runtime
      if (!response.begin()) return true
      const sink = this.#into(request, response)
      response.connect(sink)
      if (body === undefined) sink.requestEnd([])
      else response.pump.run(body.source, request.bodyBytes, sink)
    } catch (error) {
      response.refuse(errorOf(error))
    }
    return true
  }

  override close(callback: () => void): void
  override close(): Promise<void>
  override close(callback?: () => void): Promise<void> | undefined {
    this.#closed = true
    if (callback === undefined) return Promise.resolve()
    queueMicrotask(hook('a callback of the dispatcher', callback, noLogger))
    return undefined
  }

  override destroy(error: Error | null, callback: () => void): void
  override destroy(callback: () => void): void
  override destroy(error?: Error | null): Promise<void>
  override destroy(first?: Error | null | (() => void), second?: () => void): Promise<void> | undefined {
    const callback = typeof first === 'function' ? first : second
    return callback === undefined ? this.close() : (this.close(callback) as undefined)
  }
}

/** Translates the calls of the data path to those of undici's handlers. */
class DispatchResponse implements ResponseSink {
  readonly pump = new BodyPump(error => this.#broken(error))
  readonly #handler: Dispatcher.DispatchHandler
  readonly #controller: Controller
  #sink: RequestSink | undefined
  #over = false
  /** The handler was told about an error. */
  #failed = false
  #unconsumed = 0

  constructor(handler: Dispatcher.DispatchHandler) {
    this.#controller = new Controller(
      () => this.#give(),
      reason => this.#abortedByCaller(reason),
    )
    this.#handler = handler
  }

  /** If the embedder's handler throws, only its own request ends. */
  #call(step: (handler: Dispatcher.DispatchHandler) => unknown): void {
    try {
      followed(step(this.#handler), this.#threw)
    } catch (error) {
      this.#threw(error)
    }
  }

  /** Like undici, reports the error to the handler even at the end of a response. undici's `retry` handler relies on that. */
  readonly #threw = (error: unknown): void => this.#giveUp(errorOf(error))

  /** False if the caller has aborted already. */
  begin(): boolean {
    this.#call(handler => handler.onRequestStart?.(this.#controller, {}))
    return !this.#over
  }

  connect(sink: RequestSink): void {
    this.#sink = sink
    if (this.#failed) sink.requestAbort(new SallyportError('cancelled'))
    else if (!this.#controller.paused) this.#give()
  }

  refuse(error: Error): void {
    if (this.#over) return
    this.#over = true
    queueMicrotask(hook('onResponseError', () => this.#fail(error), noLogger))
  }

  #broken(error: Error): void {
    if (this.#over) return
    this.#over = true
    this.#fail(error)
  }

  /** Ends the exchange, unless it has ended. */
  #giveUp(reason: Error): void {
    if (!this.#over) {
      this.#over = true
      this.#sink?.requestAbort(new SallyportError('cancelled'))
    }
    this.#fail(reason)
  }

  /** Reports an error to the handler, as its last call. */
  #fail(error: Error): void {
    if (this.#failed) return
    this.#failed = true
    this.pump.stop()
    this.#call(handler => handler.onResponseError?.(this.#controller, error))
  }

  #give(): void {
    const bytes = this.#unconsumed
    if (this.#sink === undefined || bytes === 0) return
    this.#unconsumed = 0
    this.#sink.responseConsumed(bytes)
  }

  #abortedByCaller(reason: Error): void {
    if (!this.#over) this.#giveUp(reason)
  }

  responseInformational(status: number, headers: HeaderList): void {
    if (!this.#over)
      this.#call(handler =>
        handler.onResponseStart?.(this.#controller, status, toRecord(headers), STATUS_CODES[status]),
      )
  }

  responseHead(response: ResponseHead): void {
    if (this.#over) return
    this.#controller.rawHeaders = response.headers.map(text => Buffer.from(text, 'latin1'))
    const status = response.status
    this.#call(handler =>
      handler.onResponseStart?.(this.#controller, status, toRecord(response.headers), STATUS_CODES[status] ?? ''),
    )
  }

  responseData(chunk: Uint8Array): void {
    this.#unconsumed += chunk.length
    if (!this.#over) {
      // A copy, since the handler may transfer its memory. That of `chunk` may belong to others as well, even to Node's TLS.
      const own = Buffer.from(new Uint8Array(chunk).buffer)
      this.#call(handler => handler.onResponseData?.(this.#controller, own))
    }
    if (!this.#controller.paused) this.#give()
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#over) return
    this.#over = true
    this.pump.stop()
    // Everything was passed to the handler, even if it is paused.
    this.#give()
    this.#call(handler => handler.onResponseEnd?.(this.#controller, toRecord(stripResponseTrailers(trailers))))
  }

  responseAbort(error: SallyportError): void {
    this.#broken(error)
  }

  requestConsumed(bytes: number): void {
    this.pump.consumed(bytes)
  }
}

class Controller implements Dispatcher.DispatchController {
  paused = false
  reason: Error | null = null
  rawHeaders: Buffer[] | null = null
  rawTrailers: Buffer[] | null = null
  readonly #onResume: () => void
  readonly #onAbort: (reason: Error) => void

  constructor(onResume: () => void, onAbort: (reason: Error) => void) {
    this.#onResume = onResume
    this.#onAbort = onAbort
  }

  get aborted(): boolean {
    return this.reason !== null
  }

  abort(reason: Error): void {
    if (this.aborted) return
    this.reason = reason
    this.#onAbort(reason)
  }

  pause(): void {
    this.paused = true
  }

  resume(): void {
    if (!this.paused) return
    this.paused = false
    this.#onResume()
  }
}
