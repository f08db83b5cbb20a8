/**
 * The last layer of the edge: brings an exchange to a carrier, a session here or a hop to one of another replica. It may
 * take several attempts, of which only the last one is heard. Another one is made where that is safe (`retry-policy.ts`);
 * where no carrier is free but one may come, the exchange waits (`waiting.ts`).
 *
 *     choosing ──▶ trying ──▶ answering ──▶ over
 *      ▲    │        │
 *      │    ▼        │
 *      waiting ◀─────┘
 */
import { performance } from 'node:perf_hooks'
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { stepOf, tellDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type {
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { cidrsContain } from '../../protocol/http/forwarded.ts'
import { answerPreflight, type CorsPolicy, type Refuse } from '../../protocol/http/problem.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'
import { openExchange } from '../../protocol/wire/exchange/open.ts'
import type { Carrier } from '../registry.ts'
import { Attempt } from './attempt.ts'
import type { CarrierSource } from './carriers.ts'
import { Deadline } from './deadline.ts'
import { DeliverySpans } from './delivery-spans.ts'
import type { Hold } from './hold.ts'
import { Replay, type ReplayBudget } from './replay.ts'
import { RetryPolicy } from './retry-policy.ts'
import { Waiting } from './waiting.ts'

export interface DeliverOptions {
  readonly carriers: CarrierSource
  readonly hold: Hold
  readonly replayBudget: ReplayBudget
  /** How long the head of an answer may take, waiting for a carrier included; 0: as long as it takes. */
  readonly responseHeadMs: number
  /** Undefined: no trace is followed. */
  readonly tracing: Tracing | undefined
  readonly refuse: Refuse
  /** Answers preflights of a runtime that is away. */
  readonly corsOf: (request: HttpRequest) => CorsPolicy | undefined
  readonly logger: Logger
}

/** `request.runtime` and `request.caller` are set. */
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

const taken = stepOf<Attempt>(attempt => attempt.taken())

/** One exchange over all of its attempts. */
export class DeliveredExchange implements RequestSink {
  readonly request: HttpRequest
  readonly #response: ResponseSink
  readonly #options: DeliverOptions
  readonly #replay: Replay
  readonly #policy: RetryPolicy
  readonly #deadline: Deadline | undefined
  /** Undefined: its trace is not recorded. */
  readonly #spans: DeliverySpans | undefined
  #attempt: Attempt | undefined
  /** Set from the first time that it waits. */
  #waiting: Waiting | undefined
  /** The carrier that counts this exchange as open. */
  #counted: Carrier | undefined
  #requestEnded = false
  #responseEnded = false
  /** Something of an answer went out, a 1xx at least: the request is not sent again. */
  #answering = false
  /** Status of the head that went out; 0 before. */
  #status = 0
  #over = false
  #bytesIn = 0
  /** Request bytes that the caller's end was told are taken. */
  #consumed = 0

  constructor(options: DeliverOptions, request: HttpRequest, response: ResponseSink) {
    const runtime = request.runtime!
    this.#options = options
    this.request = request
    this.#response = response
    this.#replay = new Replay(options.replayBudget, runtime)
    this.#policy = new RetryPolicy(options.carriers, runtime, request.ownHost)
    const { responseHeadMs } = options
    if (request.span !== undefined) this.#spans = new DeliverySpans(request, request.span)
    if (responseHeadMs > 0) this.#deadline = new Deadline(performance.now(), responseHeadMs, this)
  }

  // The way in.

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
    this.#replay.taken = false
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
        attempt: this.#policy.attempts++,
        hops: carrier.hops,
        timeLeftMs: this.#deadline?.leftMs ?? 0,
        traced: this.#options.tracing !== undefined,
        span: carrier.hops === 0 ? undefined : span?.context.spanId,
        ownHost: carrier.hops === 0 ? undefined : this.request.ownHost,
      }
      attempt.upstream = openExchange(stream, this.request, options, attempt)
    } catch (error) {
      if (!(error instanceof SallyportError)) throw error
      this.#leave(error)
      this.#again(carrier, error, true)
      return
    }
    if (this.#attempt === attempt) this.#sendAgain(attempt.upstream)
  }

  /** What came of the body before this attempt. */
  #sendAgain(upstream: RequestSink): void {
    if (this.#bytesIn > 0) for (const chunk of this.#replay.chunks) upstream.requestData(chunk)
    if (this.#requestEnded) upstream.requestEnd(this.#replay.trailers ?? [])
    this.#replay.keepAll = false
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

  // The response comes back: what the attempt says, if it still counts.

  isHeard(attempt: Attempt): boolean {
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

  /** The answer has ended, and so has the way of the request: nobody waits for the caller to close its half. */
  unwanted(): void {
    this.#finish()
    this.#response.unwanted?.()
  }

  /** The peer has the stream. If it refused the exchange at once, that is heard in this turn. */
  acknowledged(attempt: Attempt): void {
    if (this.#replay.long) setImmediate(taken, attempt)
    else this.taken()
  }

  taken(): void {
    this.#replay.taken = true
  }

  /** The attempt has taken this many bytes of the request in all. */
  consumed(bytes: number): void {
    const more = bytes - this.#consumed
    if (more <= 0) return
    this.#consumed = bytes
    this.#response.requestConsumed(more)
  }

  failed(attempt: Attempt, error: SallyportError): void {
    if (this.#responseEnded) {
      // Some of the answer waits for a caller that does not take it, and must go.
      this.#finish()
      this.#discard()
      this.#response.responseAbort(error)
      return
    }
    this.#leave(error)
    if (this.#over) this.#discard()
    else if (this.#answering) this.fail(error)
    else this.#again(attempt.carrier, error, false)
  }

  #begin(): void {
    if (this.#answering) return
    this.#answering = true
    this.#replay.release()
  }

  // Again, or not.

  /** `carrier` did not answer. Another one is asked if that is safe; otherwise the caller is told. */
  #again(carrier: Carrier, error: SallyportError, unsent: boolean): void {
    if (!this.#policy.mayRepeat(carrier, error, this.request.method, unsent) || !this.#replay.whole) {
      this.fail(error)
      return
    }
    const next = this.#policy.next()
    if (next !== undefined) this.#try(next)
    // A session that is not full tells nobody of room. Another replica is asked again, after a rest.
    else if (error.reason === 'overloaded' && carrier.hops === 0 && !this.#isFull()) this.fail(error)
    else this.#wait(error)
  }

  /** No carrier is free: it waits if one may come, else the caller is told `reason` at once. */
  #wait(reason: SallyportError): void {
    const { carriers, hold } = this.#options
    this.#waiting ??= new Waiting(carriers, hold, this)
    const refusal = this.#waiting.enter(reason, this.#policy.failed, this.#replay.bytes, this.#deadline?.leftMs)
    if (refusal !== undefined) {
      this.fail(refusal)
      return
    }
    this.#spans?.waits(reason)
    this.#replay.keepAll = true
  }

  /** A session may have come. False: it still waits, or has given up. */
  resume(): boolean {
    const carrier = this.#policy.next()
    if (carrier === undefined) {
      this.#waiting!.look()
      return false
    }
    this.#waiting!.leave('resumed')
    this.#spans?.waited()
    this.#policy.waited()
    this.#try(carrier)
    return true
  }

  // The end.

  /** @internal No head of an answer came in time. */
  late(): void {
    if (this.#waiting?.giveUp() === true) return
    this.#breakOff(new SallyportError('upstream-timeout'))
  }

  /** Our own code failed. The attempt is given up, and the caller is told. */
  threw(error: unknown): void {
    tellDefect(this.#options.logger, 'an exchange failed', error)
    this.#breakOff(toSallyportError(error))
  }

  #breakOff(error: SallyportError): void {
    const upstream = this.#attempt?.upstream
    this.#leave(error)
    upstream?.requestAbort(error)
    this.fail(error)
  }

  /** Answers with an error of ours, or cuts an answer whose head has left. */
  fail(cause: SallyportError): void {
    if (this.#over) return
    // Who is told to come again must be sure that nothing has run.
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

  /** Bytes that wait for nobody any more. */
  #discard(): void {
    this.consumed(this.#bytesIn)
  }

  #leave(error: SallyportError): void {
    this.#attempt = undefined
    this.#spans?.failed(error)
    this.#release()
  }

  /** The carrier has one exchange less. */
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
  }
}
