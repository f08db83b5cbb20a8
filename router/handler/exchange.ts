/** One exchange on its way through a route: the two ends meet here, and whatever fails becomes an answer or a cut. */
import { performance } from 'node:perf_hooks'
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import type {
  ExchangeRecord,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { tellDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { answerPreflight, answerProblem } from '../../protocol/http/problem.ts'
import type { CompiledAnswer, CompiledRoute } from '../compiled.ts'
import { pathEnd } from '../path.ts'
import type { UpstreamTarget } from '../target.ts'
import type { ForwardOptions, UpstreamRequest } from '../upstream/types.ts'
import type { Upstreams } from '../upstream/upstreams.ts'
import { answerHeaders, toldError } from './headers.ts'

/** What exchanges of one router share. */
export interface ExchangeHooks {
  readonly logger: Logger
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  active: number
  total: number
}

/** The request's side: what the downstream end talks to. */
export class RoutedExchange implements RequestSink {
  readonly #hooks: ExchangeHooks
  readonly #request: HttpRequest
  readonly #downstream: ResponseSink
  readonly #route: CompiledRoute | undefined
  readonly #started: number
  readonly #bodyLimit: number
  #upstream: RequestSink | undefined
  /** Request bytes that the upstream end has not taken yet. */
  #unconsumed = 0
  #bytesIn = 0
  #bytesOut = 0
  #status = 0
  #code: string | undefined
  #cut = false
  #requestOver = false
  #responseOver = false
  #recorded = false

  constructor(hooks: ExchangeHooks, request: HttpRequest, response: ResponseSink, route: CompiledRoute | undefined) {
    this.#hooks = hooks
    this.#request = request
    this.#downstream = response
    this.#route = route
    this.#bodyLimit = route?.bodyBytes ?? -1
    this.#started = hooks.onExchange === undefined ? 0 : performance.now()
    hooks.active++
    hooks.total++
  }

  get route(): string | undefined {
    return this.#route?.name
  }

  /** Begins the upstream end. It may fail before it returns; after a response it discards the request. */
  forward(upstreams: Upstreams, target: UpstreamTarget, request: UpstreamRequest, options: ForwardOptions): void {
    const upstream = upstreams.forward(target, request, options, new RoutedResponse(this))
    if (this.#code === undefined) this.#upstream = upstream
  }

  answer(answer: CompiledAnswer): void {
    const isHead = this.#request.method === 'HEAD'
    this.#status = answer.status
    const bodyBytes = isHead ? 0 : answer.body.length
    const headers = [...answer.headers, 'x-request-id', this.#request.requestId]
    answerHeaders(headers, this.#route?.responseRules)
    this.#downstream.responseHead({ status: answer.status, headers, bodyBytes })
    if (bodyBytes > 0) {
      this.#bytesOut = bodyBytes
      this.#downstream.responseData(answer.body.slice())
    }
    this.#downstream.responseEnd([])
    this.#endResponse()
  }

  /** Answers with the error if no head went out, else cuts. */
  fail(error: SallyportError, allow?: string): void {
    if (this.#responseOver) return
    this.#code = error.reason
    this.#upstream = undefined
    this.#logFailure(error)
    if (this.#status !== 0) {
      this.#cut = true
      this.#downstream.responseAbort(error)
    } else this.#answerError(error, allow)
    // Of a WebSocket that is cut no other end will be heard.
    this.#requestOver = true
    this.#discard()
    this.#endResponse()
  }

  /** The downstream end threw, which an embedder may have put in front of ours: it is asked nothing more but to end. */
  threw(thrown: unknown): void {
    const error = toSallyportError(thrown)
    if (error === thrown) this.#logFailure(error)
    else tellDefect(this.#hooks.logger, 'the end that a router answers threw', thrown)
    const upstream = this.#upstream
    this.#upstream = undefined
    upstream?.requestAbort(error)
    if (this.#recorded) return
    this.#code = error.reason
    this.#cut = this.#status !== 0
    this.#requestOver = true
    this.#endResponse()
    try {
      this.#downstream.responseAbort(error)
    } catch (again) {
      tellDefect(this.#hooks.logger, 'the end that a router answers threw', again)
    }
  }

  #answerError(error: SallyportError, allow: string | undefined): void {
    const cors = this.#route?.cors
    if (isUpstreams(error) && cors !== undefined && answerPreflight(this.#downstream, this.#request, cors)) {
      this.#status = 204
      return
    }
    this.#status = error.status
    answerProblem(this.#downstream, this.#request, error, cors, allow === undefined ? undefined : ['allow', allow])
  }

  #logFailure(error: SallyportError): void {
    const fields = { route: this.#route?.name, requestId: this.#request.requestId, code: error.reason }
    if (isUpstreams(error)) this.#hooks.logger.warn(fields, error.message)
    else this.#hooks.logger.debug(fields, error.message)
  }

  /** What waits of the request, and what still comes, is dropped, and credit for it given. */
  #discard(): void {
    const bytes = this.#unconsumed
    this.#unconsumed = 0
    if (bytes > 0) this.#downstream.requestConsumed(bytes)
  }

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
    this.#upstream?.requestEnd(trailers)
    if (this.#responseOver) this.#record()
  }

  requestAbort(error: SallyportError): void {
    this.#requestOver = true
    const upstream = this.#upstream
    this.#upstream = undefined
    if (!this.#responseOver) this.#code = error.reason
    this.#cut = !this.#responseOver && this.#status !== 0
    upstream?.requestAbort(error)
    this.#responseOver = true
    this.#record()
  }

  responseConsumed(bytes: number): void {
    this.#upstream?.responseConsumed(bytes)
  }

  informational(status: number, headers: HeaderList): void {
    if (!this.#responseOver) this.#downstream.responseInformational(status, headers)
  }

  head(head: ResponseHead): void {
    if (this.#responseOver) return
    this.#status = head.status
    const error = this.#route?.trustErrors === true ? toldError(head.headers) : undefined
    if (error !== undefined) this.#code = error
    answerHeaders(head.headers, this.#route?.responseRules, error)
    this.#downstream.responseHead(head)
  }

  answerData(chunk: Uint8Array): void {
    if (this.#responseOver) return
    this.#bytesOut += chunk.length
    this.#downstream.responseData(chunk)
  }

  answerEnd(trailers: HeaderList): void {
    if (this.#responseOver) return
    this.#downstream.responseEnd(trailers)
    this.#endResponse()
  }

  bodyTaken(bytes: number): void {
    if (this.#unconsumed === 0) return
    this.#unconsumed -= bytes
    this.#downstream.requestConsumed(bytes)
  }

  #endResponse(): void {
    this.#responseOver = true
    if (this.#requestOver || !this.#request.upgrade || this.#status !== 101) this.#record()
  }

  /** Once, when the exchange is over as far as the caller sees it. */
  #record(): void {
    if (this.#recorded) return
    this.#recorded = true
    this.#hooks.active--
    const onExchange = this.#hooks.onExchange
    if (onExchange === undefined) return
    const request = this.#request
    onExchange({
      requestId: request.requestId,
      runtime: undefined,
      route: this.route,
      session: undefined,
      method: request.method,
      host: request.authority,
      path: request.path.slice(0, pathEnd(request.path)),
      caller: request.caller?.address ?? request.peerAddress,
      status: this.#status,
      code: this.#code,
      cut: this.#cut,
      durationMs: performance.now() - this.#started,
      bytesIn: this.#bytesIn,
      bytesOut: this.#bytesOut,
      upgrade: request.upgrade,
    })
  }
}

/** Whether the target is to blame, and not the request or the table. */
function isUpstreams(error: SallyportError): boolean {
  return error.source === 'upstream' && error.reason !== 'no-route'
}

/** The response's side: what the upstream end talks to. Whatever throws behind it does not reach that end. */
class RoutedResponse implements ResponseSink {
  readonly #exchange: RoutedExchange

  constructor(exchange: RoutedExchange) {
    this.#exchange = exchange
  }

  responseInformational(status: number, headers: HeaderList): void {
    try {
      this.#exchange.informational(status, headers)
    } catch (error) {
      this.#exchange.threw(error)
    }
  }

  responseHead(head: ResponseHead): void {
    try {
      this.#exchange.head(head)
    } catch (error) {
      this.#exchange.threw(error)
    }
  }

  responseData(chunk: Uint8Array): void {
    try {
      this.#exchange.answerData(chunk)
    } catch (error) {
      this.#exchange.threw(error)
    }
  }

  responseEnd(trailers: HeaderList): void {
    try {
      this.#exchange.answerEnd(trailers)
    } catch (error) {
      this.#exchange.threw(error)
    }
  }

  responseAbort(error: SallyportError): void {
    try {
      this.#exchange.fail(error)
    } catch (thrown) {
      this.#exchange.threw(thrown)
    }
  }

  requestConsumed(bytes: number): void {
    try {
      this.#exchange.bodyTaken(bytes)
    } catch (error) {
      this.#exchange.threw(error)
    }
  }
}
