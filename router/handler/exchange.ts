/** One exchange of a route. It connects the two ends, and turns every failure into an answer or a cut. */
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { logDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type {
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { answerPreflight, answerProblem, reportedError } from '../../protocol/http/problem.ts'
import { methodName } from '../../protocol/trace/attributes.ts'
import type { Span } from '../../protocol/trace/span.ts'
import type { CompiledAnswer, CompiledRoute } from '../compiled.ts'
import { answerHeaders, hintHeaders, ruledTrailers } from './headers.ts'

/** What exchanges of one router share. */
export interface ExchangeHooks {
  readonly logger: Logger
  active: number
  total: number
}

/** Sits between the downstream and the upstream end, and shields the upstream end from errors that the downstream end throws. */
export class RoutedExchange implements RequestSink, ResponseSink {
  readonly #hooks: ExchangeHooks
  readonly #request: HttpRequest
  readonly #downstream: ResponseSink
  readonly #route: CompiledRoute | undefined
  readonly #bodyLimit: number
  #upstream: RequestSink | undefined
  /** Request bytes that the upstream has not consumed yet. */
  #unconsumed = 0
  #bytesIn = 0
  #status = 0
  #failed = false
  #requestOver = false
  #responseOver = false
  #over = false

  constructor(hooks: ExchangeHooks, request: HttpRequest, response: ResponseSink, route: CompiledRoute | undefined) {
    this.#hooks = hooks
    this.#request = request
    this.#downstream = response
    this.#route = route
    this.#bodyLimit = route?.bodyBytes ?? -1
    if (request.notes !== undefined) request.notes.route = route?.name
    if (request.span !== undefined && route !== undefined) nameAfter(request.span, request.method, route)
    hooks.active++
    hooks.total++
  }

  /** Starts the upstream end. It may fail before it returns. If it has already responded, the rest of the request is discarded. */
  forward(next: Handler): void {
    const upstream = next(this.#request, this)
    if (!this.#failed) this.#upstream = upstream
  }

  answer(answer: CompiledAnswer): void {
    const isHead = this.#request.method === 'HEAD'
    this.#status = answer.status
    const bodyBytes = isHead ? 0 : answer.body.length
    const headers = [...answer.headers, 'x-request-id', this.#request.requestId]
    answerHeaders(headers, this.#route?.responseRules)
    this.#downstream.responseHead({ status: answer.status, headers, bodyBytes })
    if (bodyBytes > 0) this.#downstream.responseData(answer.body.slice())
    this.#downstream.responseEnd([])
    this.#endResponse()
  }

  /** Answers with the error if no head was sent yet, or else cuts the response. */
  fail(error: SallyportError, allow?: string): void {
    if (this.#responseOver) return
    this.#failed = true
    this.#upstream = undefined
    this.#logFailure(error)
    if (this.#status !== 0) this.#downstream.responseAbort(error)
    else this.#answerError(error, allow)
    // When a WebSocket is cut, the end of its request never comes.
    this.#requestOver = true
    this.#discard()
    this.#endResponse()
  }

  /** The downstream end, which may be an embedder's, threw. It is told to end and not called again. */
  threw(thrown: unknown): void {
    const error = toSallyportError(thrown)
    if (error === thrown) this.#logFailure(error)
    else this.#logDefect(thrown)
    this.#failed = true
    const upstream = this.#upstream
    this.#upstream = undefined
    upstream?.requestAbort(error)
    if (this.#over) return
    this.#requestOver = true
    this.#endResponse()
    try {
      this.#downstream.responseAbort(error)
    } catch (again) {
      this.#logDefect(again)
    }
  }

  #logDefect(thrown: unknown): void {
    logDefect(this.#hooks.logger, 'the downstream end of a router threw', thrown)
  }

  #answerError(error: SallyportError, allow: string | undefined): void {
    const cors = this.#route?.cors
    if (isUpstreamFailure(error) && cors !== undefined && answerPreflight(this.#downstream, this.#request, cors)) return
    answerProblem(this.#downstream, this.#request, error, cors, allow === undefined ? undefined : ['allow', allow])
  }

  #logFailure(error: SallyportError): void {
    const fields = { route: this.#route?.name, requestId: this.#request.requestId, code: error.reason, err: error }
    if (isUpstreamFailure(error)) this.#hooks.logger.warn(fields, 'an upstream failed')
    // People who set up a webhook look for the reason, and only the log has it.
    else if (error.reason === 'webhook-signature') this.#hooks.logger.info(fields, 'a webhook was refused')
    else this.#hooks.logger.debug(fields, 'a request failed')
  }

  /** Drops the request bytes that wait or still arrive, and gives credit for them. */
  #discard(): void {
    const bytes = this.#unconsumed
    this.#unconsumed = 0
    if (bytes > 0) this.#downstream.requestConsumed(bytes)
  }

  // Request, towards the upstream

  requestData(chunk: Uint8Array): void {
    this.#bytesIn += chunk.length
    if (this.#upstream === undefined) {
      this.#downstream.requestConsumed(chunk.length)
      return
    }
    this.#unconsumed += chunk.length
    if (this.#bodyLimit >= 0 && this.#bytesIn > this.#bodyLimit && !this.#request.upgrade) {
      const error = new SallyportError('body-too-large', `more than ${this.#bodyLimit} bytes`)
      this.#upstream.requestAbort(error)
      this.fail(error)
      return
    }
    this.#upstream.requestData(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    this.#requestOver = true
    this.#upstream?.requestEnd(ruledTrailers(trailers, this.#route?.requestRules))
    if (this.#responseOver) this.#end()
  }

  requestAbort(error: SallyportError): void {
    this.#requestOver = true
    const upstream = this.#upstream
    this.#upstream = undefined
    upstream?.requestAbort(error)
    this.#responseOver = true
    this.#end()
  }

  responseConsumed(bytes: number): void {
    this.#upstream?.responseConsumed(bytes)
  }

  // Response, towards the caller

  responseInformational(status: number, headers: HeaderList): void {
    if (this.#responseOver) return
    hintHeaders(headers, this.#route?.responseRules)
    try {
      this.#downstream.responseInformational(status, headers)
    } catch (error) {
      this.threw(error)
    }
  }

  responseHead(head: ResponseHead): void {
    if (this.#responseOver) return
    this.#status = head.status
    const code = this.#route?.trustErrors === true ? reportedError(head.headers) : undefined
    answerHeaders(head.headers, this.#route?.responseRules, code)
    try {
      this.#downstream.responseHead(head)
    } catch (error) {
      this.threw(error)
    }
  }

  responseData(chunk: Uint8Array): void {
    if (this.#responseOver) return
    try {
      this.#downstream.responseData(chunk)
    } catch (error) {
      this.threw(error)
    }
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#responseOver) return
    try {
      this.#downstream.responseEnd(ruledTrailers(trailers, this.#route?.responseRules))
      this.#endResponse()
    } catch (error) {
      this.threw(error)
    }
  }

  responseAbort(error: SallyportError): void {
    try {
      this.fail(error)
    } catch (thrown) {
      this.threw(thrown)
    }
  }

  requestConsumed(bytes: number): void {
    if (this.#unconsumed === 0) return
    this.#unconsumed -= bytes
    try {
      this.#downstream.requestConsumed(bytes)
    } catch (error) {
      this.threw(error)
    }
  }

  #endResponse(): void {
    this.#responseOver = true
    if (this.#requestOver || !this.#request.upgrade || this.#status !== 101) this.#end()
  }

  /** Called once, when the exchange has ended for the caller. */
  #end(): void {
    if (this.#over) return
    this.#over = true
    this.#hooks.active--
  }
}

/** Names the span as OpenTelemetry prescribes for a route. */
function nameAfter(span: Span, method: string, { name, route }: CompiledRoute): void {
  const { path = '/' } = route.match
  span.rename(`${methodName(method)} ${path}`)
  span.set('http.route', path)
  span.set('sallyport.route', name)
}

/** Whether the target is to blame, and not the request or the table. */
function isUpstreamFailure(error: SallyportError): boolean {
  return error.source === 'upstream' && error.reason !== 'no-route'
}
