/**
 * The last layer of the edge. It hands an exchange to a carrier: a session here, or a hop to a session at another replica. It may
 * take several attempts, of which only the last one counts. Another attempt is made only if that is safe (`retry-policy.ts`). If no
 * carrier is free but one may come, the exchange waits (`waiting.ts`).
 *
 *     choosing ──▶ trying ──▶ answering ──▶ over
 *      ▲    │        │
 *      │    ▼        │
 *      waiting ◀─────┘
 */

import { performance } from 'node:perf_hooks'
import { cidrsContain } from '../../protocol/base/address.ts'
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { logDefect, stepOf } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { ReplayBudget } from '../../protocol/base/replay-budget.ts'
import type {
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { answerPreflight, type CorsPolicy, type Refuse } from '../../protocol/http/problem.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'
import { openExchange } from '../../protocol/wire/exchange/open.ts'
import type { Carrier } from '../registry.ts'
import { Attempt } from './attempt.ts'
import type { CarrierSource } from './carriers.ts'
import { Deadline } from './deadline.ts'
import { DeliverySpans } from './delivery-spans.ts'
import type { Hold } from './hold.ts'
import { Replay } from './replay.ts'
import { RetryPolicy } from './retry-policy.ts'
import { Waiting } from './waiting.ts'

export interface DeliverOptions {
  readonly carriers: CarrierSource
  readonly hold: Hold
  readonly replayBudget: ReplayBudget
  /** How long the head of an answer may take, including the wait for a carrier. 0 means no limit. */
  readonly responseHeadMs: number
  /** `undefined` if tracing is off. */
  readonly tracing: Tracing | undefined
  readonly refuse: Refuse
  /** CORS policy for preflights of a runtime that is offline. */
  readonly corsOf: (request: HttpRequest) => CorsPolicy | undefined
  readonly logger: Logger
}

/** Expects `request.runtime` and `request.caller`. */
export function deliver(options: DeliverOptions): Handler {
  return (request, response) => {
    const delivery = new DeliveredExchange(options, request, response)
    try {
      delivery.start()
    } catch (error) {
      delivery.threw(error)
    }
    return delivery
  }
}

const markAcknowledged = stepOf<Attempt>(attempt => attempt.markAcknowledged())

const passTurn = stepOf<DeliveredExchange>(exchange => exchange.passTurn())
/** How long others wait for an exchange that was woken and is not answered. */
const TURN_MS = 250

/** One exchange over all of its attempts. */
export class DeliveredExchange implements RequestSink {
  readonly request: HttpRequest
  readonly #response: ResponseSink
  readonly #options: DeliverOptions
  readonly #replay: Replay
  readonly #policy: RetryPolicy
  readonly #deadline: Deadline | undefined
  /** `undefined` if the trace is not recorded. */
  readonly #spans: DeliverySpans | undefined
  #attempt: Attempt | undefined
  /** Set from the first wait on. */
  #waiting: Waiting | undefined
  /** Runs after a wait, until we know whether another replica accepts the exchange. Then, or when it fires, others try. */
  #turn: NodeJS.Timeout | undefined
  /** The carrier that counts this exchange as open. */
  #counted: Carrier | undefined
  #requestEnded = false
  #responseEnded = false
  /** Some of an answer was sent to the caller, if only a 1xx, so the request must not be sent again. */
  #answering = false
  /** Status of the head that was sent to the caller. 0 until then. */
  #status = 0
  #over = false
  #bytesIn = 0
  /** Request bytes reported to the caller's end as consumed. */
  #consumed = 0

  constructor(options: DeliverOptions, request: HttpRequest, response: ResponseSink) {
    const runtime = request.runtime!
    this.#options = options
    this.request = request
    this.#response = response
    this.#replay = new Replay(options.replayBudget, runtime, request.caller?.address ?? '')
    this.#policy = new RetryPolicy(options.carriers, runtime, request.ownHost)
    const { responseHeadMs } = options
    if (request.span !== undefined) this.#spans = new DeliverySpans(request, request.span)
    if (responseHeadMs > 0) this.#deadline = new Deadline(performance.now(), responseHeadMs, this)
  }

  // The request.

  start(): void {
    const carrier = this.#policy.next()
    if (carrier !== undefined) this.#try(carrier)
    else if (this.#isFull()) this.#wait(new SallyportError('overloaded'))
    else if (!this.#answerPreflight()) this.#wait(new SallyportError('runtime-offline'))
  }

  #isFull(): boolean {
    return this.#options.carriers.isFull(this.request.runtime!, this.request.ownHost)
  }

  #answerPreflight(): boolean {
    if (this.request.method !== 'OPTIONS') return false
    const policy = this.#options.corsOf(this.request)
    if (policy === undefined || !answerPreflight(this.#response, this.request, policy)) return false
    this.#finish()
    return true
  }

  #try(carrier: Carrier): void {
    const { callers } = carrier
    if (callers !== undefined && !cidrsContain(callers, this.request.caller!.address)) {
      this.fail(new SallyportError('caller-not-allowed'))
      return
    }
    const attempt = new Attempt(this, carrier)
    this.#replay.acknowledged = false
    this.#replay.keepAll = true
    try {
      const stream = carrier.open()
      this.#attempt = attempt
      this.#counted = carrier
      carrier.exchanges++
      if (this.request.notes !== undefined) this.request.notes.session = carrier.id
      const span = this.#spans?.tries(carrier, this.#policy.attempts)
      const options = {
        runtime: this.request.runtime!,
        epoch: carrier.epoch,
        attempt: this.#policy.begin(),
        hops: carrier.hops,
        timeLeftMs: this.#deadline?.leftMs ?? 0,
        traced: this.#options.tracing !== undefined,
        span: carrier.hops === 0 ? undefined : span?.context.spanId,
        ownHost: carrier.hops === 0 ? undefined : this.request.ownHost,
        heldMs: this.#waiting && Math.round(this.#waiting.waitedMs),
      }
      attempt.upstream = openExchange(stream, this.request, options, attempt)
    } catch (error) {
      if (!(error instanceof SallyportError)) throw error
      this.#dropAttempt(error)
      this.#retry(carrier, error, true)
      return
    }
    if (this.#attempt === attempt) this.#resend(attempt.upstream)
    if (this.#attempt === attempt) this.#replay.keepAll = false
  }

  /** Sends what was received of the body before this attempt. */
  #resend(upstream: RequestSink): void {
    if (this.#bytesIn > 0) for (const chunk of this.#replay.chunks) upstream.requestData(chunk)
    if (this.#requestEnded) upstream.requestEnd(this.#replay.trailers ?? [])
  }

  requestData(chunk: Uint8Array): void {
    this.#bytesIn += chunk.length
    this.#replay.add(chunk)
    if (this.#attempt?.upstream !== undefined) this.#attempt.upstream.requestData(chunk)
    else if (this.#over) this.#response.requestConsumed(chunk.length)
    else if (this.#waiting?.add(chunk.length) === false) this.fail(new SallyportError('overloaded'))
  }

  requestEnd(trailers: HeaderList): void {
    if (this.#requestEnded) return
    this.#requestEnded = true
    if (trailers.length > 0 && this.#replay.whole) this.#replay.trailers = [...trailers]
    this.#attempt?.upstream?.requestEnd(trailers)
    if (this.#responseEnded) this.#finish()
  }

  /** The caller has gone. */
  requestAbort(error: SallyportError): void {
    const upstream = this.#attempt?.upstream
    this.#finish()
    upstream?.requestAbort(error)
    this.#attempt = undefined
  }

  responseConsumed(bytes: number): void {
    this.#attempt?.upstream?.responseConsumed(bytes)
  }

  // The response, called by the current attempt.

  isCurrent(attempt: Attempt): boolean {
    return attempt === this.#attempt
  }

  informational(status: number, headers: HeaderList): void {
    this.#begin()
    this.#response.responseInformational(status, headers)
  }

  head(head: ResponseHead): void {
    this.#begin()
    this.#deadline?.stop()
    this.#spans?.head(head.status)
    this.#status = head.status
    this.#response.responseHead(head)
  }

  data(chunk: Uint8Array): void {
    this.#response.responseData(chunk)
  }

  end(trailers: HeaderList): void {
    if (this.#responseEnded) return
    this.#responseEnded = true
    if (this.#status !== 101 || this.#requestEnded) this.#finish()
    this.#response.responseEnd(trailers)
  }

  /** The answer of an upgraded connection is complete, and the peer wants no more of the request. Does not wait for its end. */
  unwanted(): void {
    this.#finish()
    this.#response.unwanted?.()
  }

  /** The peer has accepted the stream. If it refuses the exchange right away, we read that in the same turn of the event loop. */
  acknowledged(attempt: Attempt): void {
    if (this.#replay.long || this.#turn !== undefined) setImmediate(markAcknowledged, attempt)
    else this.markAcknowledged()
  }

  markAcknowledged(): void {
    this.#replay.acknowledged = true
    this.passTurn()
  }

  /** `bytes` is the total that the attempt has consumed of the request. */
  consumed(bytes: number): void {
    const more = bytes - this.#consumed
    if (more <= 0) return
    this.#consumed = bytes
    this.#response.requestConsumed(more)
  }

  failed(attempt: Attempt, error: SallyportError): void {
    if (this.#responseEnded) {
      // Part of the answer still waits for the caller to read it, and must be dropped.
      this.#finish()
      this.#discard()
      this.#response.responseAbort(error)
      return
    }
    this.#dropAttempt(error)
    if (this.#over) this.#discard()
    else if (this.#answering) this.fail(error)
    else this.#retry(attempt.carrier, error, false)
  }

  #begin(): void {
    if (this.#answering) return
    this.#answering = true
    this.#replay.release()
  }

  // Retries.

  /** `carrier` failed. Tries another one if that is safe; otherwise the caller gets the error. */
  #retry(carrier: Carrier, error: SallyportError, unsent: boolean): void {
    if (!this.#policy.mayRetry(carrier, error, this.request, unsent) || !this.#replay.whole) {
      this.fail(error)
      return
    }
    const next = this.#policy.next()
    if (next !== undefined) this.#try(next)
    // A session that refuses although it is not full would never wake us. Another replica is tried again after its cooldown.
    else if (error.reason === 'overloaded' && carrier.hops === 0 && !this.#isFull()) this.fail(error)
    else this.#wait(error)
  }

  /** No carrier is free. Waits if one may come; otherwise the caller gets `reason` at once. */
  #wait(reason: SallyportError): void {
    const { carriers, hold } = this.#options
    this.#waiting ??= new Waiting(carriers, hold, this)
    const leftMs = Math.min(this.#policy.leftMs, this.#deadline?.leftMs ?? Number.POSITIVE_INFINITY)
    const refusal = this.#waiting.enter(reason, this.#policy.failed, this.#replay.bytes, leftMs)
    if (refusal !== undefined) {
      this.fail(refusal)
      return
    }
    this.#spans?.waits(reason)
    this.#replay.keepAll = true
    this.passTurn()
  }

  /** A session may have become ready. False if the exchange still waits, or has given up. */
  resume(): boolean {
    const carrier = this.#policy.next()
    if (carrier === undefined) {
      this.#waiting!.recheck()
      return false
    }
    this.#waiting!.leave('resumed')
    this.#spans?.waited()
    if (this.request.isBehind?.() === true) {
      this.fail(new SallyportError('runtime-offline'))
      return false
    }
    this.#policy.waited()
    if (carrier.hops > 0) this.#turn = setTimeout(passTurn, TURN_MS, this)
    this.#try(carrier)
    return true
  }

  /** @internal Others that wait may try what this exchange has tried. If it was refused, they find no carrier. */
  passTurn(): void {
    if (this.#turn === undefined) return
    clearTimeout(this.#turn)
    this.#turn = undefined
    const { carriers, hold } = this.#options
    hold.tryFew(this.request.runtime!, carriers)
  }

  // The end.

  /** @internal The head of the answer did not come in time. */
  late(): void {
    if (this.#waiting?.giveUp() === true) return
    this.#giveUp(new SallyportError('upstream-timeout'))
  }

  /** Our own code failed. Ends the attempt and answers the caller. */
  threw(error: unknown): void {
    logDefect(this.#options.logger, 'an exchange failed', error)
    this.#giveUp(toSallyportError(error))
  }

  #giveUp(error: SallyportError): void {
    const upstream = this.#attempt?.upstream
    this.#dropAttempt(error)
    upstream?.requestAbort(error)
    this.fail(error)
  }

  /** Answers with an error of ours, or cuts the answer if its head was already sent. */
  fail(cause: SallyportError): void {
    if (this.#over) return
    // A retryable error promises that nothing was executed. We cannot promise that here.
    const unsure = (this.#answering || this.#policy.unsure) && cause.retryable
    const error = unsure ? new SallyportError('session-lost', cause.message, { cause }) : cause
    if (this.#status !== 0) {
      this.#cut(error)
      return
    }
    this.#answering = true
    this.#spans?.waited(error)
    this.#finish()
    this.#discard()
    this.#options.refuse(this.request, this.#response, error)
  }

  #cut(error: SallyportError): void {
    this.#finish()
    this.#response.responseAbort(error)
  }

  /** Gives credit for all bytes, since nobody will consume them any more. */
  #discard(): void {
    this.consumed(this.#bytesIn)
  }

  #dropAttempt(error: SallyportError): void {
    this.#attempt = undefined
    this.#spans?.failed(error)
    this.#release()
  }

  /** Releases the carrier. */
  #release(): void {
    const carrier = this.#counted
    this.#counted = undefined
    this.#spans?.attemptOver()
    carrier?.released()
  }

  #finish(): void {
    if (this.#over) return
    this.#over = true
    this.#waiting?.leave('left')
    this.#spans?.waited()
    this.#deadline?.stop()
    this.#replay.release()
    this.#release()
    this.passTurn()
  }
}
