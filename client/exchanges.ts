/**
 * What comes out of the sessions: each exchange is authorised, remembered if it must not run twice, and goes layer by layer
 * to the target.
 *
 *     stream ──▶ admit ──▶ unseal ──▶ record ──▶ live ──▶ inspect ──▶ (an embedder's layers) ──▶ target
 */

import { SallyportError } from '../protocol/base/errors.ts'
import { callHandler, stepOf, tellDefect } from '../protocol/base/guard.ts'
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
import { record } from '../protocol/http/record.ts'
import { compose, type Layer, PassThrough } from '../protocol/layer.ts'
import type { InboxKeys } from '../protocol/sealing/sealed-webhook.ts'
import { shielded } from '../protocol/shield.ts'
import { followTrace } from '../protocol/trace/follow.ts'
import type { Tracing } from '../protocol/trace/sampling.ts'
import type { CorsRule } from '../protocol/wire/control.ts'
import { acceptExchange, type ExchangeHandler } from '../protocol/wire/exchange/accept.ts'
import type { RefusalCode } from '../protocol/wire/exchange/refusal.ts'
import type { Preamble } from '../protocol/wire/preamble.ts'
import type { Stream } from '../protocol/wire/yamux/stream.ts'
import type { SeenExchanges } from './seen-exchanges.ts'
import { unsealing } from './unseal.ts'

/** The session that an exchange came by. */
export interface SessionView {
  readonly id: string
  readonly runtime: string
  /** Exchanges on an older epoch are refused, since their sender does not know who is active. */
  readonly epoch: number
  /** Streams with a higher id are refused: they were opened behind a drain. */
  readonly lastStream: number
  /** Undefined: the exchange is not traced. */
  tracingOf(preamble: Preamble): Tracing | undefined
}

interface ExchangesOptions {
  readonly target: Handler
  readonly seen: SeenExchanges
  /** For failures of targets that are no router; longest path first. */
  readonly cors: readonly CorsRule[]
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  /** An embedder's, in front of the target. */
  readonly layers: readonly Layer[]
  /** Keys that open what a server kept sealed. */
  readonly inboxKeys: InboxKeys | undefined
  /** Undefined: nobody inspects. */
  readonly inspect: Layer | undefined
  readonly logger: Logger
}

/** So long an unsafe exchange, whole at the upstream, runs on after its session has died. */
const RUN_ON_MS = 5000

export class Exchanges {
  readonly #options: ExchangesOptions
  readonly #handler: Handler
  /** Exchanges under way. */
  live = 0
  /** Those of them that asked for a WebSocket. */
  webSockets = 0
  /** Exchanges begun since the start. */
  total = 0
  /** Those whose session has died. */
  readonly #unheard = new Set<LiveExchange>()

  constructor(options: ExchangesOptions) {
    const { target, layers, logger } = options
    this.#options = options
    // A target is the service behind us. If it throws, it has broken.
    const guarded: Handler = (request, response) => callHandler(target, request, response, logger, 'upstream-broken')
    const inward = shielded(layers, guarded, logger, 'upstream-broken')
    const unseal = unsealing(options.inboxKeys, logger, ({ upgrade, exchangeId }) => {
      this.#ended(upgrade, exchangeId!)
    })
    const live: Layer = next => (request, response) => new LiveExchange(this, request, response).pass(next, request)
    const { inspect = next => next } = options
    this.#handler = compose([unseal, record(options.onExchange), live, inspect], inward)
  }

  /** Takes a stream that the server opened. */
  accept(stream: Stream, session: SessionView): void {
    const admit: ExchangeHandler = (preamble, request, response) => {
      if (preamble.runtime !== session.runtime || preamble.epoch < session.epoch) return 'not-here'
      if (stream.id > session.lastStream) return 'draining'
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
    if (this.#options.inspect !== undefined) request.attempt = preamble.attempt
    this.live++
    if (request.upgrade) this.webSockets++
    this.total++
    const tracing = session.tracingOf(preamble)
    if (tracing === undefined) return this.#handler(request, response)
    return followTrace(tracing, true, this.#handler, request, response)
  }

  /** Ends those that run on for nobody. */
  close(): void {
    for (const exchange of this.#unheard) exchange.giveUp()
  }

  /** @internal */
  runsOn(exchange: LiveExchange): void {
    this.#unheard.add(exchange)
  }

  /** @internal Answers for a target that failed before it answered. */
  answer(request: HttpRequest, path: string, response: ResponseSink, error: SallyportError): void {
    // Longest prefix first.
    const cors = this.#options.cors.find(rule => isUnder(rule.path, path))
    answerProblem(response, request, error, cors)
  }

  /** @internal The sink of an embedder's handler threw. */
  tell(error: unknown): void {
    tellDefect(this.#options.logger, 'a target threw', error)
  }

  /** @internal */
  over(exchange: LiveExchange, isUpgrade: boolean, exchangeId: string): void {
    this.#unheard.delete(exchange)
    this.#ended(isUpgrade, exchangeId)
  }

  /** What {@link #begin} began; a safe one is not remembered, and its end alters nothing. */
  #ended(isUpgrade: boolean, exchangeId: string): void {
    this.live--
    if (isUpgrade) this.webSockets--
    this.#options.seen.end(exchangeId)
  }
}

const giveUp = stepOf<LiveExchange>(exchange => exchange.giveUp())

/** An exchange under way: counted until it is over, and shielded from what its target throws. */
class LiveExchange extends PassThrough {
  readonly #owner: Exchanges
  readonly #request: HttpRequest
  /** As it came: a router may change the request on its way. */
  readonly #path: string
  readonly #exchangeId: string
  /** It may not run twice. */
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

  override requestData(chunk: Uint8Array): void {
    try {
      super.requestData(chunk)
    } catch (error) {
      this.threw(error)
    }
  }

  override requestEnd(trailers: HeaderList): void {
    this.#whole = true
    try {
      super.requestEnd(trailers)
    } catch (error) {
      this.threw(error)
    }
  }

  override responseConsumed(bytes: number): void {
    try {
      super.responseConsumed(bytes)
    } catch (error) {
      this.threw(error)
    }
  }

  override requestAbort(error: SallyportError): void {
    if (this.#lost !== undefined) return
    // A session that dies cancels nothing: the upstream may finish a request that it has whole.
    if (error.reason === 'session-lost' && this.#whole && this.#isUnsafe && !this.isOver) {
      this.#lost = error
      this.#runOn = setTimeout(giveUp, RUN_ON_MS, this)
      this.#owner.runsOn(this)
      return
    }
    this.#abort(error)
  }

  #abort(error: SallyportError): void {
    try {
      super.requestAbort(error)
    } catch (thrown) {
      this.#owner.tell(thrown)
    }
  }

  giveUp(): void {
    if (this.#lost !== undefined) this.#abort(this.#lost)
  }

  /** The target's sink threw: it is asked nothing more, and its exchange ends. */
  threw(thrown: unknown): void {
    this.#owner.tell(thrown)
    this.detach()
    this.responseAbort(new SallyportError('upstream-broken', 'the target threw', { cause: thrown }))
  }

  override responseHead(head: ResponseHead): void {
    if (this.#lost === undefined) super.responseHead(head)
  }

  override responseData(chunk: Uint8Array): void {
    // Nobody hears it any more, and it may end all the same.
    if (this.#lost === undefined) super.responseData(chunk)
    else this.responseConsumed(chunk.length)
  }

  /** A failure that nobody has put into words yet becomes an answer here: a reset stream would not tell the cause. */
  override responseAbort(error: SallyportError): void {
    if (this.status !== 0 || this.#lost !== undefined) super.responseAbort(error)
    else if (!this.isOver) this.#owner.answer(this.#request, this.#path, this, error)
  }

  protected override over(): void {
    clearTimeout(this.#runOn)
    this.#owner.over(this, this.#request.upgrade, this.#exchangeId)
  }
}
