/**
 * One request of a caller, over all of its attempts: each attempt is a stream of a session, here or at another replica,
 * and only the last one is heard. It is sent again only where that is safe (`choice.ts`), and waits where a session may
 * come (`hold.ts`).
 */
import { performance } from 'node:perf_hooks'
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { openExchange } from '../../protocol/wire/exchange/open.ts'
import type {
  ExchangeRecord,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { cidrsContain } from '../../protocol/http/forwarded.ts'
import { stepOf } from '../../protocol/base/guard.ts'
import type { Carrier } from '../registry.ts'
import { Attempt } from './attempt.ts'
import { RetryPolicy, type CarrierPicker } from './retry-policy.ts'
import { Deadline } from './deadline.ts'
import type { Hold, HoldOutcomes, Ticket, Waiter } from './hold.ts'
import type { Usage } from './quotas.ts'
import { recordOf } from './record.ts'
import { Replay, type ReplayBudget } from './replay.ts'

/** What an exchange needs of the edge. */
export interface EdgeContext extends CarrierPicker {
  readonly replayBudget: ReplayBudget
  readonly hold: Hold
  /** How long the head of an answer may take, waiting for a session included; 0: as long as it takes. */
  readonly responseHeadMs: number
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  /** Whether a session of the runtime may come at any moment. */
  knows(runtime: string): boolean
  /** Whether the sessions of the runtime have as many streams as they take. */
  full(runtime: string): boolean
  /**
   * Asks the directory, if it may know more than we do (else: false); who waits is woken when it has answered. `refused`:
   * who calls from this address has asked for too many names that nobody serves.
   */
  ask(runtime: string, failed: Carrier | undefined, address: string | undefined): boolean | 'refused'
  /** Logs a failure of our own code. */
  defect(error: unknown): void
  /** Answers in our own name. */
  answerError(exchange: EdgeExchange, error: SallyportError): void
  /** Answers a preflight for a runtime that is offline, if its policy allows; else returns false. */
  answerOffline(exchange: EdgeExchange): boolean
}

const taken = stepOf<Attempt>(attempt => attempt.taken())

/** How long the directory may take to answer, also where nothing else is waited for. */
const ASK_MS = 2000

export class EdgeExchange implements RequestSink, Waiter {
  readonly request: HttpRequest
  readonly response: ResponseSink
  readonly runtime: string | undefined
  readonly #edge: EdgeContext
  readonly #startedAt = performance.now()
  readonly #replay: Replay
  readonly #usage: Usage | undefined
  #attempt: Attempt | undefined
  readonly #choice: RetryPolicy
  /** What the caller is told if no session comes. */
  #reason: SallyportError | undefined
  /** In the queue of those that wait for a session. */
  #place: Ticket | undefined
  /** In the queue, before this time. */
  #waitedMs = 0
  readonly #deadline: Deadline | undefined
  #requestEnded = false
  #responseEnded = false
  #finished = false
  /** Something of an answer went out. */
  #begun = false
  /** Request bytes that the caller's end was told are taken. */
  #consumed = 0
  #route: Carrier | undefined
  /** The session that counts this exchange as open. */
  #counted: Carrier | undefined
  #status = 0
  #code: string | undefined
  #bytesIn = 0
  #bytesOut = 0

  constructor(
    edge: EdgeContext,
    runtime: string | undefined,
    request: HttpRequest,
    response: ResponseSink,
    usage?: Usage,
  ) {
    this.#edge = edge
    this.runtime = runtime
    this.request = request
    this.response = response
    this.#replay = new Replay(edge.replayBudget, runtime ?? '')
    this.#usage = usage
    this.#choice = new RetryPolicy(edge, runtime ?? '')
    if (edge.responseHeadMs > 0) this.#deadline = new Deadline(this.#startedAt, edge.responseHeadMs, this)
  }

  // The way in.

  /** Picks a session and opens a stream; or waits for one; or answers why not. */
  start(): void {
    const route = this.#choice.next()
    if (route !== undefined) this.#try(route)
    else if (this.#edge.full(this.runtime!)) this.#wait(new SallyportError('overloaded'))
    else if (!this.#edge.answerOffline(this)) this.#wait(new SallyportError('runtime-offline'))
  }

  #try(route: Carrier): void {
    const { callers } = route
    if (callers !== undefined && !cidrsContain(callers, this.request.caller!.address)) {
      this.fail(new SallyportError('caller-not-allowed'))
      return
    }
    const attempt = new Attempt(this, route)
    this.#replay.taken = false
    try {
      const stream = route.open()
      this.#route = route
      this.#attempt = attempt
      this.#counted = route
      route.exchanges++
      const options = {
        runtime: this.runtime!,
        epoch: route.epoch,
        attempt: this.#choice.attempts++,
        hops: route.hops,
        timeLeftMs: this.#deadline?.leftMs ?? 0,
      }
      attempt.upstream = openExchange(stream, this.request, options, attempt)
    } catch (error) {
      if (!(error instanceof SallyportError)) throw error
      this.#leave()
      this.#again(route, error, true)
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
    else if (this.#finished) this.response.requestConsumed(chunk.length)
    else if (this.#place?.add(chunk.length) === false) this.fail(new SallyportError('overloaded'))
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
    if (!this.#finished) {
      this.#code ??= error.reason
      this.#finish()
    }
    upstream?.requestAbort(error)
    this.#attempt = undefined
  }

  responseConsumed(bytes: number): void {
    this.#attempt?.upstream?.responseConsumed(bytes)
  }

  // The way back.

  informational(attempt: Attempt, status: number, headers: HeaderList): void {
    if (attempt !== this.#attempt) return
    this.#begin()
    this.response.responseInformational(status, headers)
  }

  head(attempt: Attempt, head: ResponseHead): void {
    if (attempt !== this.#attempt) return
    this.#begin()
    this.#deadline?.stop()
    this.#status = head.status
    this.response.responseHead(head)
  }

  responseData(attempt: Attempt, chunk: Uint8Array): void {
    if (attempt !== this.#attempt) return
    this.#bytesOut += chunk.length
    this.response.responseData(chunk)
  }

  responseEnd(attempt: Attempt, trailers: HeaderList): void {
    if (attempt !== this.#attempt || this.#responseEnded) return
    this.#responseEnded = true
    if (this.#status !== 101 || this.#requestEnded) this.#finish()
    this.response.responseEnd(trailers)
  }

  /** The answer has ended, and so has the way of the request: nobody waits for the caller to close its half. */
  unwanted(attempt: Attempt): void {
    if (attempt !== this.#attempt) return
    this.#finish()
    this.response.unwanted?.()
  }

  /** The peer has the stream. If it refused the exchange at once, that is heard in this turn. */
  acknowledged(attempt: Attempt): void {
    if (this.#replay.long) setImmediate(taken, attempt)
    else this.taken(attempt)
  }

  /** @internal */
  taken(attempt: Attempt): void {
    if (attempt === this.#attempt) this.#replay.taken = true
  }

  requestConsumed(attempt: Attempt, bytes: number): void {
    attempt.consumedBytes += bytes
    if (attempt !== this.#attempt || attempt.consumedBytes <= this.#consumed) return
    const more = attempt.consumedBytes - this.#consumed
    this.#consumed = attempt.consumedBytes
    this.response.requestConsumed(more)
  }

  failed(attempt: Attempt, error: SallyportError): void {
    if (attempt !== this.#attempt) return
    if (this.#responseEnded) {
      // Of the answer some waits for a caller that does not take it, and must go.
      this.#finish(true)
      this.#discard()
      this.response.responseAbort(error)
      return
    }
    this.#leave()
    if (this.#finished) {
      this.#discard()
      return
    }
    if (this.#begun) this.fail(error)
    else this.#again(attempt.route, error, false)
  }

  #begin(): void {
    if (this.#begun) return
    this.#begun = true
    this.#replay.release()
  }

  // Sent again or not.

  /** `route` did not answer: another one is asked where that is safe, else the caller is told. */
  #again(route: Carrier, error: SallyportError, unsent: boolean): void {
    if (!this.#choice.mayRepeat(route, error, this.request.method, unsent) || !this.#replay.whole) {
      this.fail(error)
      return
    }
    const next = this.#choice.next()
    if (next !== undefined) this.#try(next)
    else if (error.reason === 'overloaded' && !this.#edge.full(this.runtime!)) this.fail(error)
    else this.#wait(error)
  }

  // Held.

  /** Nobody can take it now: it waits if a session may come, else the caller is told `reason` at once. */
  #wait(reason: SallyportError): void {
    const { hold } = this.#edge
    const asks = this.#ask(this.#choice.failed)
    if (asks === 'refused') {
      this.fail(new SallyportError('too-many-requests'))
      return
    }
    const patienceMs = this.#patienceMs(asks)
    const forMs = Math.min(patienceMs, this.#deadline?.leftMs ?? patienceMs)
    if (forMs <= 0 || !this.#edge.knows(this.runtime!)) {
      this.fail(reason)
      return
    }
    this.#place = hold.enter(this.runtime!, this.request.caller?.address ?? '', this, this.#replay.bytes, forMs)
    if (this.#place === undefined) {
      this.fail(new SallyportError('overloaded'))
      return
    }
    this.#reason = reason
    this.#replay.keepAll = true
  }

  #ask(failed: Carrier | undefined): boolean | 'refused' {
    return this.#edge.ask(this.runtime!, failed, this.request.caller?.address)
  }

  /** How long it may wait yet. */
  #patienceMs(asks: boolean): number {
    const { holdMs } = this.#edge.hold.limits
    return (asks ? Math.max(holdMs, ASK_MS) : holdMs) - this.#waitedMs
  }

  wake(): boolean {
    const route = this.#choice.next()
    if (route === undefined) {
      const asks = this.#ask(undefined)
      if (asks === 'refused' || this.#patienceMs(asks) <= 0 || !this.#edge.knows(this.runtime!)) this.#giveUp()
      return false
    }
    this.#waitedMs += this.#place!.waitedMs
    this.#choice.waited()
    this.#leaveQueue('resumed')
    this.#try(route)
    return true
  }

  expire(): void {
    this.#place = undefined
    this.fail(this.#reason!)
  }

  refuse(): void {
    this.#place = undefined
    this.fail(new SallyportError('overloaded'))
  }

  #giveUp(): void {
    this.#leaveQueue('expired')
    this.expire()
  }

  #leaveQueue(outcome: keyof HoldOutcomes): void {
    this.#place?.leave(outcome)
    this.#place = undefined
  }

  // The end.

  /** @internal No head of an answer came in time. */
  late(): void {
    if (this.#place !== undefined) {
      this.#giveUp()
      return
    }
    const upstream = this.#attempt?.upstream
    const error = new SallyportError('upstream-timeout')
    this.#leave()
    upstream?.requestAbort(error)
    this.fail(error)
  }

  /** Our own code failed: what is under way is given up, and the caller told. */
  threw(error: unknown): void {
    const known = toSallyportError(error)
    const upstream = this.#attempt?.upstream
    this.#edge.defect(error)
    this.#leave()
    upstream?.requestAbort(known)
    this.fail(known)
  }

  /** Answers with an error of ours; or cuts an answer whose head went out. */
  fail(cause: SallyportError): void {
    if (this.#finished) return
    // Who is told to come again must be sure that nothing has run.
    const unsure = (this.#begun || this.#choice.unsure) && cause.retryable
    const error = unsure ? new SallyportError('session-lost', cause.message, { cause }) : cause
    if (this.#status !== 0) {
      this.#cut(error)
      return
    }
    this.#begun = true
    this.#status = error.status
    this.#code = error.reason
    this.#finish()
    this.#discard()
    this.#edge.answerError(this, error)
  }

  /** An answer of ours that is no error: a preflight, a health check. */
  answered(status: number): void {
    this.#begun = true
    this.#status = status
    this.#finish()
    this.#discard()
  }

  /** Bytes that wait for nobody any more. */
  #discard(): void {
    const left = this.#bytesIn - this.#consumed
    this.#consumed = this.#bytesIn
    if (left > 0) this.response.requestConsumed(left)
  }

  #cut(error: SallyportError): void {
    this.#code = error.reason
    this.#finish(true)
    this.response.responseAbort(error)
  }

  #leave(): void {
    this.#attempt = undefined
    this.#release()
  }

  /** The session has one exchange less. */
  #release(): void {
    const route = this.#counted
    this.#counted = undefined
    route?.released()
  }

  #finish(cut = false): void {
    if (this.#finished) return
    this.#finished = true
    this.#leaveQueue('left')
    this.#deadline?.stop()
    this.#replay.release()
    this.#release()
    this.#usage?.leave()
    if (this.#edge.onExchange !== undefined) this.#edge.onExchange(this.#record(cut))
  }

  #record(cut: boolean): ExchangeRecord {
    const left = this.#code === 'cancelled' && this.#status !== 0 && !this.#responseEnded
    return recordOf(this.request, this.runtime, this.#route?.id, {
      status: this.#status,
      code: this.#code,
      cut: cut || left,
      durationMs: performance.now() - this.#startedAt,
      bytesIn: this.#bytesIn,
      bytesOut: this.#bytesOut,
    })
  }
}
