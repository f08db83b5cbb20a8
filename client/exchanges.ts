/**
 * The exchanges that arrive on the sessions. Each is admitted, remembered if it must not run twice, and passed through the
 * layers to the target.
 *
 *     stream ──▶ admit ──▶ unseal ──▶ record ──▶ live ──▶ inspect ──▶ (an embedder's layers) ──▶ target
 */

import { type SallyportError, toSallyportError } from '../protocol/base/errors.ts'
import { logDefect, stepOf } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import type {
  ExchangeRecord,
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../protocol/exchange.ts'
import { isSafe } from '../protocol/http/methods.ts'
import { answerProblem, isUnder } from '../protocol/http/problem.ts'
import { BodyBytes, record } from '../protocol/http/record.ts'
import { compose, type Layer, PassThrough } from '../protocol/layer.ts'
import type { InboxKeys } from '../protocol/sealing/sealed-webhook.ts'
import { shielded, shieldedTarget } from '../protocol/shield.ts'
import { followTrace } from '../protocol/trace/follow.ts'
import type { Tracing } from '../protocol/trace/sampling.ts'
import type { CorsRule } from '../protocol/wire/control.ts'
import { acceptExchange, type ExchangeHandler } from '../protocol/wire/exchange/accept.ts'
import type { RefusalCode } from '../protocol/wire/exchange/refusal.ts'
import type { Preamble } from '../protocol/wire/preamble.ts'
import type { Stream } from '../protocol/wire/yamux/stream.ts'
import type { SeenExchanges } from './seen-exchanges.ts'
import { unsealing } from './unseal.ts'

/** The session that an exchange arrived on. */
export interface SessionView {
  readonly id: string
  readonly runtime: string
  /** Exchanges on an older epoch are refused, since their sender does not know which instance is active. */
  readonly epoch: number
  /** Streams with a higher id are refused: they were opened after a drain. */
  readonly lastStream: number
  /** Undefined if the exchange is not traced. */
  tracingOf(preamble: Preamble): Tracing | undefined
}

interface ExchangesOptions {
  readonly target: Handler
  readonly seen: SeenExchanges
  /** Rules for error answers of targets other than a router, longest path first. */
  readonly cors: readonly CorsRule[]
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  /** The embedder's layers in front of the target. */
  readonly layers: readonly Layer[]
  /** Keys that open the sealed webhooks of the inbox. */
  readonly inboxKeys: InboxKeys | undefined
  /** Undefined if the inspector is off. */
  readonly inspect: Layer | undefined
  readonly logger: Logger
}

/** How long an unsafe exchange whose request the upstream has in full runs on after its session has died. */
const RUN_ON_MS = 5000

export class Exchanges {
  readonly #options: ExchangesOptions
  readonly #handler: Handler
  /** Exchanges in progress. */
  live = 0
  /** The exchanges in progress that asked for a WebSocket. */
  webSockets = 0
  /** Exchanges since the start. */
  total = 0
  readonly bodyBytes = new BodyBytes()
  /** Exchanges in progress whose session has died. */
  readonly #orphans = new Set<LiveExchange>()

  constructor(options: ExchangesOptions) {
    const { target, layers, logger } = options
    this.#options = options
    const inward = shielded(layers, shieldedTarget(target, logger), logger)
    const unseal = unsealing(options.inboxKeys, logger, ({ upgrade, exchangeId }) => {
      this.#ended(upgrade, exchangeId!)
    })
    const recorded = record(options.onExchange, this.bodyBytes)
    const live: Layer = next => (request, response) => new LiveExchange(this, request, response).pass(next, request)
    const { inspect = next => next } = options
    this.#handler = compose([unseal, recorded, live, inspect], inward)
  }

  /** Takes a stream that the server opened. `isTooMany`: its exchange is refused. */
  accept(stream: Stream, session: SessionView, isTooMany = false): void {
    const admit: ExchangeHandler = (preamble, request, response) => {
      if (preamble.runtime !== session.runtime || preamble.epoch < session.epoch) return 'not-here'
      if (stream.id > session.lastStream) return 'draining'
      if (isTooMany) return 'overloaded'
      return this.#begin(preamble, request, response, session)
    }
    acceptExchange(stream, admit, this.#options.logger)
  }

  #begin(
    preamble: Preamble,
    request: HttpRequest,
    response: ResponseSink,
    session: SessionView,
  ): RequestSink | RefusalCode {
    const refusal = isSafe(request.method) ? undefined : this.#options.seen.begin(preamble.exchangeId, preamble.attempt)
    if (refusal !== undefined) return refusal
    request.runtime = session.runtime
    request.session = session.id
    if (this.#options.inspect !== undefined) {
      request.attempt = preamble.attempt
      request.heldMs = preamble.heldMs
    }
    this.live++
    if (request.upgrade) this.webSockets++
    this.total++
    const tracing = session.tracingOf(preamble)
    if (tracing === undefined) return this.#handler(request, response)
    return followTrace(tracing, true, this.#handler, request, response)
  }

  /** Ends the exchanges whose session has died. */
  close(): void {
    for (const exchange of this.#orphans) exchange.giveUp()
  }

  /** @internal */
  runsOn(exchange: LiveExchange): void {
    this.#orphans.add(exchange)
  }

  /** @internal Answers in place of a target that failed before it answered. */
  answer(request: HttpRequest, path: string, response: ResponseSink, error: SallyportError): void {
    // Longest prefix first.
    const cors = this.#options.cors.find(rule => isUnder(rule.path, path))
    answerProblem(response, request, error, cors)
  }

  /** @internal */
  failed(error: unknown): void {
    logDefect(this.#options.logger, 'an exchange failed', error)
  }

  /** @internal */
  over(exchange: LiveExchange, isUpgrade: boolean, exchangeId: string): void {
    this.#orphans.delete(exchange)
    this.#ended(isUpgrade, exchangeId)
  }

  /** Undoes the bookkeeping of {@link #begin}. For safe exchanges, which are not remembered, `seen.end` does nothing. */
  #ended(isUpgrade: boolean, exchangeId: string): void {
    this.live--
    if (isUpgrade) this.webSockets--
    this.#options.seen.end(exchangeId)
  }
}

const giveUp = stepOf<LiveExchange>(exchange => exchange.giveUp())

/** An exchange in progress. It is counted until it ends, and answered for if its target fails. */
class LiveExchange extends PassThrough {
  readonly #owner: Exchanges
  readonly #request: HttpRequest
  /** The original path; a router may rewrite that of the request. */
  readonly #path: string
  readonly #exchangeId: string
  /** Whether it must not run twice. */
  readonly #isUnsafe: boolean
  #whole = false
  #runOn: NodeJS.Timeout | undefined
  #lost: SallyportError | undefined

  constructor(owner: Exchanges, request: HttpRequest, response: ResponseSink) {
    super(response)
    this.#owner = owner
    this.#request = request
    this.#path = request.path
    this.#exchangeId = request.exchangeId!
    this.#isUnsafe = !isSafe(request.method)
  }

  override requestEnd(trailers: HeaderList): void {
    this.#whole = true
    super.requestEnd(trailers)
  }

  override requestAbort(error: SallyportError): void {
    if (this.#lost !== undefined) return
    // A dying session does not cancel a request that the upstream has in full. It may finish.
    if (error.reason === 'session-lost' && this.#whole && this.#isUnsafe && !this.isOver) {
      this.#lost = error
      this.#runOn = setTimeout(giveUp, RUN_ON_MS, this)
      this.#owner.runsOn(this)
      return
    }
    super.requestAbort(error)
  }

  giveUp(): void {
    if (this.#lost !== undefined) super.requestAbort(this.#lost)
  }

  /** A failure in a timer ends the exchange. */
  threw(error: unknown): void {
    this.#owner.failed(error)
    this.responseAbort(toSallyportError(error))
  }

  override responseHead(head: ResponseHead): void {
    if (this.#lost === undefined) super.responseHead(head)
  }

  override responseData(chunk: Uint8Array): void {
    // Nobody receives the response any more, but it may still run to its end.
    if (this.#lost === undefined) super.responseData(chunk)
    else this.responseConsumed(chunk.length)
  }

  /** A failure that has no answer yet becomes one here, since resetting the stream would hide the cause. */
  override responseAbort(error: SallyportError): void {
    const wasOver = this.isOver
    const isAnswered = this.status !== 0 || this.#lost !== undefined
    if (isAnswered) super.responseAbort(error)
    this.detach()
    if (!isAnswered && !wasOver) this.#owner.answer(this.#request, this.#path, this, error)
  }

  protected override over(): void {
    clearTimeout(this.#runOn)
    this.#owner.over(this, this.#request.upgrade, this.#exchangeId)
  }
}
