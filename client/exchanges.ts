/**
 * What comes out of the sessions: each exchange is authorised, remembered if it must not run twice, handed to the
 * target, and recorded when it is over.
 */

import { performance } from 'node:perf_hooks'
import type { CorsRule } from '../protocol/wire/control.ts'
import { SallyportError } from '../protocol/base/errors.ts'
import { acceptExchange, type ExchangeHandler } from '../protocol/wire/exchange/accept.ts'
import { Refusal } from '../protocol/wire/exchange/refusal.ts'
import type {
  ExchangeRecord,
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../protocol/exchange.ts'
import { callHandler, discarding, stepOf, tellDefect } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { isSafe } from '../protocol/http/methods.ts'
import type { Preamble } from '../protocol/wire/preamble.ts'
import { answerProblem, isUnder } from '../protocol/http/problem.ts'
import type { Stream } from '../protocol/wire/yamux/stream.ts'
import type { SeenExchanges } from './seen-exchanges.ts'

/** The session that an exchange came by. */
export interface SessionView {
  readonly id: string
  readonly runtime: string
  /** Exchanges on an older one are refused: their sender does not know who is active. */
  readonly epoch: number
  /** Streams with a higher id are refused: they were opened behind a drain. */
  readonly lastStream: number
}

export interface ExchangesOptions {
  readonly handler: Handler
  readonly begun: SeenExchanges
  /** For failures of targets that are no router; longest path first. */
  readonly cors: readonly CorsRule[]
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  readonly logger: Logger
}

/** So long an unsafe exchange, whole at the upstream, runs on after its session has died. */
const RUN_ON_MS = 5000

export class Exchanges {
  readonly #options: ExchangesOptions
  /** Exchanges under way. */
  live = 0
  /** Those of them that asked for a WebSocket. */
  webSockets = 0
  /** Exchanges begun since the start. */
  total = 0
  /** Those whose session has died. */
  readonly #unheard = new Set<Exchange>()

  constructor(options: ExchangesOptions) {
    this.#options = options
  }

  /** Takes a stream that the server opened. */
  accept(stream: Stream, session: SessionView): void {
    const begin: ExchangeHandler = (preamble, request, response) => {
      if (preamble.runtime !== session.runtime || preamble.epoch < session.epoch) return new Refusal('not-here')
      if (stream.id > session.lastStream) return new Refusal('draining')
      return this.#begin(preamble, request, response, session)
    }
    acceptExchange(stream, begin, this.#options.logger)
  }

  #begin(
    preamble: Preamble,
    request: HttpRequest,
    response: ResponseSink,
    session: SessionView,
  ): RequestSink | Refusal {
    let id: string | undefined
    if (!isSafe(request.method)) {
      id = preamble.exchangeId
      const refusal = this.#options.begun.begin(id, preamble.attempt)
      if (refusal !== undefined) return new Refusal(refusal)
    }
    this.live++
    if (request.upgrade) this.webSockets++
    this.total++
    const exchange = new Exchange(this, request, response, session, id)
    exchange.begun(this.#call(request, exchange))
    return exchange
  }

  /** A target is the service behind us: where it throws, it has broken. */
  #call(request: HttpRequest, exchange: Exchange): RequestSink {
    const { handler, logger } = this.#options
    return callHandler(handler, request, exchange.answer, logger, 'upstream-broken')
  }

  /** Ends those that run on for nobody. */
  close(): void {
    for (const exchange of this.#unheard) exchange.giveUp()
  }

  /** @internal */
  runsOn(exchange: Exchange): void {
    this.#unheard.add(exchange)
  }

  /** @internal Longest prefix first. */
  corsFor(path: string): CorsRule | undefined {
    return this.#options.cors.find(rule => isUnder(rule.path, path))
  }

  /** @internal The sink of an embedder's handler threw. */
  tell(error: unknown): void {
    tellDefect(this.#options.logger, 'a target threw', error)
  }

  /** @internal */
  over(exchange: Exchange, id: string | undefined): void {
    this.live--
    if (exchange.upgrade) this.webSockets--
    this.#unheard.delete(exchange)
    if (id !== undefined) this.#options.begun.end(id)
    this.#options.onExchange?.(exchange.record())
  }
}

/** An exchange under way, as the session's end sees it; {@link Answer} is its other face. */
class Exchange implements RequestSink {
  readonly answer: Answer
  /** Undefined until the handler has returned; it may have answered before. */
  target: RequestSink | undefined
  readonly response: ResponseSink
  readonly #owner: Exchanges
  readonly #request: HttpRequest
  readonly #session: SessionView
  readonly #id: string | undefined
  readonly #startedMs = performance.now()
  /** As they came: a router may change the request on its way. */
  readonly #method: string
  readonly #host: string
  readonly #path: string
  #bytesIn = 0
  #whole = false
  /** The target's half of a WebSocket is closed. */
  #halfClosed = false
  #over = false
  #cut = false
  #runOn: NodeJS.Timeout | undefined
  #error: SallyportError | undefined

  constructor(
    owner: Exchanges,
    request: HttpRequest,
    response: ResponseSink,
    session: SessionView,
    id: string | undefined,
  ) {
    this.#owner = owner
    this.#request = request
    this.#session = session
    this.#id = id
    this.#method = request.method
    this.#host = request.authority
    this.#path = request.path
    this.response = response
    this.answer = new Answer(this)
  }

  get upgrade(): boolean {
    return this.#request.upgrade
  }

  /** The session is gone, and nobody waits for the answer. */
  get unheard(): boolean {
    return this.#runOn !== undefined
  }

  begun(target: RequestSink): void {
    this.target = target
    if (this.#over) this.#owner.over(this, this.#id)
  }

  requestData(chunk: Uint8Array): void {
    this.#bytesIn += chunk.length
    try {
      this.target?.requestData(chunk)
    } catch (error) {
      this.threw(error)
    }
  }

  requestEnd(trailers: HeaderList): void {
    this.#whole = true
    try {
      this.target?.requestEnd(trailers)
    } catch (error) {
      this.threw(error)
    }
    if (this.#halfClosed) this.finish(undefined)
  }

  /** The answer has ended. A WebSocket is over when both its halves are: until then its upstream must hear of an abort. */
  answered(): void {
    if (this.answer.status === 101 && !this.#whole) this.#halfClosed = true
    else this.finish(undefined)
  }

  requestAbort(error: SallyportError): void {
    if (this.#over || this.#runOn !== undefined) return
    this.#error = error
    // The death of a session is no cancellation: what the upstream has whole, it may finish.
    if (error.reason === 'session-lost' && this.#whole && this.#id !== undefined) {
      this.#runOn = setTimeout(giveUp, RUN_ON_MS, this)
      this.#owner.runsOn(this)
      return
    }
    this.giveUp()
  }

  responseConsumed(bytes: number): void {
    try {
      this.target?.responseConsumed(bytes)
    } catch (error) {
      this.threw(error)
    }
  }

  giveUp(): void {
    const error = this.#error
    if (error === undefined) return
    try {
      this.target?.requestAbort(error)
    } catch (thrown) {
      this.#owner.tell(thrown)
    }
    this.finish(error)
  }

  /** The target's sink threw: it is asked nothing more, and its exchange ends. */
  threw(thrown: unknown): void {
    this.#owner.tell(thrown)
    this.target = discarding(this.response)
    this.answer.responseAbort(new SallyportError('upstream-broken', 'the target threw', { cause: thrown }))
  }

  /** Answers with `error`; no head went out yet. */
  fail(error: SallyportError): void {
    this.answer.status = error.status
    answerProblem(this.response, this.#request, error, this.#owner.corsFor(this.#path))
  }

  /** The exchange is over, for whatever reason. */
  finish(error: SallyportError | undefined): void {
    if (this.#over) return
    this.#over = true
    clearTimeout(this.#runOn)
    this.#error ??= error
    this.#cut = error !== undefined && this.answer.headSent
    if (this.target !== undefined) this.#owner.over(this, this.#id)
  }

  record(): ExchangeRecord {
    const query = this.#path.indexOf('?')
    return {
      requestId: this.#request.requestId,
      runtime: this.#session.runtime,
      route: this.target?.route,
      session: this.#session.id,
      method: this.#method,
      host: this.#host,
      path: query < 0 ? this.#path : this.#path.slice(0, query),
      caller: this.#request.caller?.address ?? this.#request.peerAddress,
      status: this.answer.status,
      code: this.#error?.reason,
      cut: this.#cut,
      durationMs: performance.now() - this.#startedMs,
      bytesIn: this.#bytesIn,
      bytesOut: this.answer.bytes,
      upgrade: this.#request.upgrade,
    }
  }
}

const giveUp = stepOf<Exchange>(exchange => exchange.giveUp())

/** What the target calls: passes on and counts, or, if nobody is there any more, discards. */
class Answer implements ResponseSink {
  status = 0
  bytes = 0
  /** The target's own head went out. */
  headSent = false
  readonly #exchange: Exchange

  constructor(exchange: Exchange) {
    this.#exchange = exchange
  }

  responseInformational(status: number, headers: HeaderList): void {
    this.#exchange.response.responseInformational(status, headers)
  }

  responseHead(head: ResponseHead): void {
    this.headSent = true
    if (!this.#exchange.unheard) this.status = head.status
    this.#exchange.response.responseHead(head)
  }

  responseData(chunk: Uint8Array): void {
    if (this.#exchange.unheard) {
      this.#exchange.target?.responseConsumed(chunk.length)
      return
    }
    this.bytes += chunk.length
    this.#exchange.response.responseData(chunk)
  }

  responseEnd(trailers: HeaderList): void {
    this.#exchange.response.responseEnd(trailers)
    this.#exchange.answered()
  }

  /** A failure that nobody has put into words yet becomes an answer here: a reset stream would not tell the cause. */
  responseAbort(error: SallyportError): void {
    if (!this.headSent) this.#exchange.fail(error)
    else this.#exchange.response.responseAbort(error)
    this.#exchange.finish(error)
  }

  requestConsumed(bytes: number): void {
    this.#exchange.response.requestConsumed(bytes)
  }
}
