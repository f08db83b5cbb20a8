/**
 * One exchange with an upstream: takes a connection or waits for one, sends the request, and sends it again where that is safe
 * (R7). The connection enforces the deadline of the head.
 */
import { networkOf } from '../../protocol/base/address.ts'
import { type SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import { type Failing, stepOf } from '../../protocol/base/guard.ts'
import { KEPT_SHARE } from '../../protocol/base/own-bytes.ts'
import type { ReplayedBody } from '../../protocol/base/replay-budget.ts'
import type { HeaderList, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { UnprocessedError } from '../../protocol/http/http2/client-exchange.ts'
import { isRepeatable } from '../../protocol/http/methods.ts'
import { maySpeakHttp2, type UpstreamTarget } from '../target.ts'
import type { Pool, PooledUpstream, Pools } from './pool.ts'
import type { ForwardOptions, UpstreamRequest } from './types.ts'

const FIRST_PAUSE_MS = 100

const again = stepOf<UpstreamExchange>(exchange => exchange.again())

export class UpstreamExchange implements RequestSink, Failing, ReplayedBody {
  readonly #pools: Pools
  readonly #target: UpstreamTarget
  readonly #request: UpstreamRequest
  readonly #options: ForwardOptions
  readonly #response: ResponseSink
  /** The upstream end, once there is a connection. */
  #sink: RequestSink | undefined
  #attempt: Attempt | undefined
  /** Abandons the current wait for a connection or for the end of a pause. */
  #giveUp: (() => void) | undefined
  /** Body that arrived before there was a connection. The downstream end limits it. */
  #early: GatheredChunks | undefined
  /** Body kept for sending again; undefined if it may not be. The budget counts it for the network of the caller. */
  #kept: GatheredChunks | undefined
  /** @internal */
  readonly owner = ''
  /** @internal */
  readonly network: string
  /** Kept bytes for which credit was given. They are not credited again when they are sent again. */
  #credited = 0
  #skipCredit = 0
  #trailers: HeaderList | undefined
  #retriesLeft: number
  #pauseMs = FIRST_PAUSE_MS
  #staleReplaced = false
  #over = false

  constructor(
    pools: Pools,
    target: UpstreamTarget,
    request: UpstreamRequest,
    options: ForwardOptions,
    response: ResponseSink,
  ) {
    this.#pools = pools
    this.#target = target
    this.#request = request
    this.#options = options
    this.#response = response
    this.#retriesLeft = options.attempts
    const mayRepeat = request.idempotent || maySpeakHttp2(target)
    const { perExchange } = pools.replayBudget
    const keeps = mayRepeat && !request.upgrade && request.bodyBytes !== 0 && request.bodyBytes <= perExchange
    this.#kept = keeps ? new GatheredChunks(KEPT_SHARE) : undefined
    this.network = keeps ? networkOf(request.caller) : ''
  }

  start(): void {
    const connection = this.#pool.take(this.#request.caller)
    if (connection === undefined) this.#connect()
    else this.#send(connection, true)
  }

  get #pool(): Pool {
    return this.#pools.poolFor(this.#target, this.#request.upgrade)
  }

  #connect(): void {
    const { caller } = this.#request
    this.#giveUp = this.#pool.open(caller, this.#options.connectMs, (error, connection) => {
      this.#giveUp = undefined
      if (connection !== undefined) this.#send(connection, false)
      else if (!this.#retryLater(error!)) this.#fail(error!)
    })
  }

  #send(connection: PooledUpstream, reused: boolean): void {
    const attempt = new Attempt(this, connection, reused)
    this.#attempt = attempt
    const sink = connection.send(this.#request, attempt, this.#options.headMs)
    if (this.#attempt !== attempt || this.#over) return
    this.#sink = sink
    const chunks = this.#kept ?? this.#early
    this.#early = undefined
    if (chunks !== undefined) for (const chunk of chunks) sink.requestData(chunk)
    if (this.#trailers !== undefined && this.#attempt === attempt) sink.requestEnd(this.#trailers)
  }

  requestData(chunk: Uint8Array): void {
    if (this.#over) {
      this.#response.requestConsumed(chunk.length)
      return
    }
    if (this.#kept !== undefined) this.#keep(this.#kept, chunk)
    else if (this.#sink === undefined) {
      this.#early ??= new GatheredChunks()
      this.#early.add(chunk)
    }
    this.#sink?.requestData(chunk)
  }

  #keep(kept: GatheredChunks, chunk: Uint8Array): void {
    const { replayBudget } = this.#pools
    kept.add(chunk)
    if (kept.bytes <= replayBudget.perExchange) replayBudget.add(this, chunk.length)
    else this.release()
  }

  /** @internal The body can be sent only once from now on. */
  release(): void {
    if (this.#sink === undefined) this.#early = this.#kept
    this.#dropKept()
  }

  #dropKept(): void {
    if (this.#kept !== undefined) this.#pools.replayBudget.delete(this)
    this.#kept = undefined
  }

  requestEnd(trailers: HeaderList): void {
    // The half-close of an upgraded exchange is passed on whenever it comes.
    if (this.#over || (this.#trailers !== undefined && !this.#request.upgrade)) return
    this.#trailers = trailers
    this.#sink?.requestEnd(trailers)
  }

  requestAbort(error: SallyportError): void {
    if (this.#over) return
    this.#finish()
    this.#giveUp?.()
    this.#sink?.requestAbort(error)
  }

  responseConsumed(bytes: number): void {
    this.#sink?.responseConsumed(bytes)
  }

  /** Whether this attempt is still the current one. */
  isCurrent(attempt: Attempt): boolean {
    return this.#attempt === attempt && !this.#over
  }

  informational(status: number, headers: HeaderList): void {
    this.#response.responseInformational(status, headers)
  }

  head(head: ResponseHead): void {
    this.#dropKept()
    this.#response.responseHead(head)
  }

  answerData(chunk: Uint8Array): void {
    this.#response.responseData(chunk)
  }

  answerEnd(trailers: HeaderList): void {
    this.#response.responseEnd(trailers)
  }

  bodyTaken(bytes: number): void {
    if (this.#kept === undefined && this.#skipCredit === 0) {
      this.#response.requestConsumed(bytes)
      return
    }
    const skipped = Math.min(bytes, this.#skipCredit)
    this.#skipCredit -= skipped
    this.#credited += bytes - skipped
    if (bytes > skipped) this.#response.requestConsumed(bytes - skipped)
  }

  /** The attempt failed. `silent`: no byte of a response had arrived. */
  broken(error: SallyportError, reused: boolean, silent: boolean): void {
    this.#sink = undefined
    this.#attempt = undefined
    const unprocessed = error instanceof UnprocessedError
    if (!silent || error.reason !== 'upstream-broken' || !this.#maySendAgain(unprocessed)) {
      this.#fail(error)
      return
    }
    this.#skipCredit = this.#credited
    if ((reused || unprocessed) && !this.#staleReplaced) {
      this.#staleReplaced = true
      this.#connect()
    } else if (!this.#retryLater(error)) this.#fail(error)
  }

  #maySendAgain(unprocessed: boolean): boolean {
    const { bodyBytes, idempotent, upgrade } = this.#request
    if (bodyBytes === 0 && isRepeatable(this.#request)) return true
    return (idempotent || (unprocessed && !upgrade)) && (this.#kept !== undefined || bodyBytes === 0)
  }

  #retryLater(error: SallyportError): boolean {
    if (this.#retriesLeft === 0 || error.reason === 'overloaded') return false
    this.#retriesLeft--
    const timer = setTimeout(again, this.#pauseMs, this)
    this.#pauseMs *= 2
    this.#giveUp = () => clearTimeout(timer)
    return true
  }

  /** @internal */
  again(): void {
    this.#connect()
  }

  /** @internal */
  threw(error: unknown): void {
    this.#fail(toSallyportError(error))
  }

  #fail(error: SallyportError): void {
    if (this.#over) return
    this.#finish()
    this.#response.responseAbort(error)
  }

  #finish(): void {
    this.#over = true
    this.#early = undefined
    this.#dropKept()
  }
}

/** The response to one sending of the request. It is ignored once another attempt has replaced it. */
class Attempt implements ResponseSink {
  readonly #exchange: UpstreamExchange
  readonly #connection: PooledUpstream
  readonly #reused: boolean
  #answered = false

  constructor(exchange: UpstreamExchange, connection: PooledUpstream, reused: boolean) {
    this.#exchange = exchange
    this.#connection = connection
    this.#reused = reused
  }

  responseInformational(status: number, headers: HeaderList): void {
    this.#answered = true
    if (this.#exchange.isCurrent(this)) this.#exchange.informational(status, headers)
  }

  responseHead(head: ResponseHead): void {
    this.#answered = true
    if (this.#exchange.isCurrent(this)) this.#exchange.head(head)
  }

  responseData(chunk: Uint8Array): void {
    if (this.#exchange.isCurrent(this)) this.#exchange.answerData(chunk)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#exchange.isCurrent(this)) this.#exchange.answerEnd(trailers)
  }

  responseAbort(error: SallyportError): void {
    const silent = !this.#answered && !this.#connection.responseStarted
    if (this.#exchange.isCurrent(this)) this.#exchange.broken(error, this.#reused, silent)
  }

  requestConsumed(bytes: number): void {
    if (this.#exchange.isCurrent(this)) this.#exchange.bodyTaken(bytes)
  }
}
