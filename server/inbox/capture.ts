/**
 * One webhook at the edge. Either the receiver answers it, or it is stored and the sender gets 202.
 *
 *     passing ──▶ answering               the receiver has answered; nothing is kept
 *        │
 *        ▼
 *     capturing ──▶ storing ──▶ over      202 once it is durable; an attempt under way continues, and settles it on success
 *
 * While passing and answering, the request may still be arriving. While capturing, it is: the rest of it is only kept, and no attempt is
 * under way. Once an answer is no longer wanted, the rest of it is dropped.
 */
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { type Failing, guardWith, logDefect, stepOf } from '../../protocol/base/guard.ts'
import type { TokenBucket } from '../../protocol/base/token-bucket.ts'
import type {
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { hasHeader, textBytes } from '../../protocol/http/headers.ts'
import type { Span } from '../../protocol/trace/span.ts'
import { keptHead } from './head.ts'
import { laneDigest } from './identity.ts'
import type { WebhookIntake } from './intake.ts'
import { KeptBody } from './kept-body.ts'
import { outcomeOfError, outcomeOfHead, REST_MS } from './outgoing.ts'
import { isForSender, type Outcome } from './retry.ts'
import type { Rule } from './rules.ts'
import type { ClientSealer, Sealing } from './sealing.ts'
import { beginAccept } from './spans.ts'
import type { ChangeResult } from './store.ts'

/** Why a webhook was stored. */
export const CAPTURE_REASONS = ['always', 'behind', 'offline', 'failed', 'slow', 'lost'] as const
export type CaptureReason = (typeof CAPTURE_REASONS)[number]

interface CaptureOptions {
  readonly id: string
  readonly rule: Rule
  /** Webhooks with the same name are in the same lane, so they must not overtake each other. */
  readonly laneName: string
  /** Seals for the runtime's client. `undefined` if webhooks are stored unencrypted. */
  readonly sealer: ClientSealer | undefined
}

/** Most webhooks are answered within this time, so until then the body stays in the buffers that it was read into. */
const MOMENT_MS = 250

/** How often the head is in memory while it is stored: as JSON, and on its way to the store. */
const HEAD_COPIES = 2

/** What an attempt takes in memory, besides the texts of its head and the bytes that wait. */
const ATTEMPT_BYTES = 8 * 1024

const late = stepOf<Capture>(capture => capture.late())
const giveUp = stepOf<Capture>(capture => capture.giveUp())

export class Capture implements RequestSink, ResponseSink, Failing {
  readonly id: string
  readonly request: HttpRequest
  readonly rule: Rule
  readonly #laneName: string
  #lane: string | undefined
  readonly #sealer: ClientSealer | undefined
  /** A copy, since later layers may change the request. */
  readonly #original: HttpRequest
  readonly received: number
  /** `undefined` if the trace is not recorded. */
  span: Span | undefined
  /** @internal Room reserved for it in the ledger. */
  reservedBytes = 0
  /** @internal What it took of the rates of its sender. `undefined` if that is nothing. */
  taken: Map<TokenBucket, number> | undefined
  /** @internal Resolves once room is reserved for all parts that were given to the store. */
  room: Promise<void> | undefined
  /** @internal MACs of the parts that are already in the store, by part number. `undefined` if there are none. */
  macs: string[] | undefined
  #sealing: Sealing | undefined
  readonly #intake: WebhookIntake
  readonly #response: ResponseSink
  readonly #body: KeptBody
  /** Where the request is being forwarded. `undefined` if it is not. */
  #next: RequestSink | undefined
  #phase: 'passing' | 'answering' | 'capturing' | 'storing' | 'over' = 'passing'
  /** The sender gets the receiver's answer. True beyond its end, since the sender may still have some of it to consume. */
  #passesAnswer = false
  #reason: CaptureReason = 'always'
  #timer: NodeJS.Timeout | undefined
  /** Ends the attempt once nobody waits for its answer. */
  #attemptTimer: NodeJS.Timeout | undefined
  #trailers: HeaderList | undefined
  #signature: ReturnType<NonNullable<Rule['verifier']>['begin']> | undefined
  /** @internal Its signature is valid. What arrives before that is known may come from anybody. */
  isVerified = false
  /** Outcome of the attempt that began before the webhook was stored. `undefined` while there is none. */
  #outcome: Outcome | undefined
  #onOutcome: ((outcome: Outcome) => void) | undefined
  /** The receiver's answer, if it came before the receiver had the whole request. */
  #earlyOutcome: Outcome | undefined
  #attempted = false
  /** What the attempt holds after the 202, when nobody else counts it any more. */
  #held: KeptBody | undefined
  /** When the timer fires, in ms since the webhook arrived. */
  #dueMs = 0
  /** Request bytes: consumed by the next layer, kept safely, credited to the caller, and received. */
  #forwardedBytes = 0
  #keptBytes = 0
  #creditedBytes = 0
  #receivedBytes = 0

  constructor(
    intake: WebhookIntake,
    { id, rule, laneName, sealer }: CaptureOptions,
    request: HttpRequest,
    response: ResponseSink,
  ) {
    this.#intake = intake
    this.id = id
    this.rule = rule
    this.#laneName = laneName
    this.#sealer = sealer
    this.request = request
    this.#response = response
    this.received = intake.now()
    this.#original = { ...request, headers: [...request.headers] }
    this.#body = new KeptBody(intake.budgetOf(request), this)
  }

  get lane(): string {
    this.#lane ??= laneDigest(this.request.runtime!, this.#laneName)
    return this.#lane
  }

  get head(): ReturnType<typeof keptHead> {
    return keptHead(this.#original)
  }

  /** Seals every part of it. `undefined` if it is stored unencrypted. */
  get sealing(): Sealing | undefined {
    const { id, lane, received } = this
    this.#sealing ??= this.#sealer?.seal({ runtime: this.request.runtime!, id, lane, received })
    return this.#sealing
  }

  start(next: Handler): this {
    this.#signature = this.rule.verifier?.begin(this.request.headers, this.received)
    if (this.#signature?.refusal !== undefined) {
      this.#refuseSignature(this.#signature.refusal)
      return this
    }
    if (this.#signature?.isDecided === true) this.#verified()
    if (this.rule.mode === 'always') this.#capture('always')
    else if (this.#intake.isBusy(this)) this.#capture('behind')
    else {
      this.#attempted = true
      this.request.isBehind = () => this.#phase !== 'answering' && this.#intake.isBusy(this, this.received)
      this.#waitUntil(Math.min(MOMENT_MS, this.rule.answerWithinMs))
      const sink = next(this.request, this)
      // The handler may have answered already. If so, it gets no more of the request.
      if (this.#outcome === undefined || this.#phase === 'answering') this.#next = sink
    }
    return this
  }

  #verified(): void {
    this.isVerified = true
    this.#intake.remember(this.request)
  }

  // The request.

  requestData(chunk: Uint8Array): void {
    if (this.#phase === 'over') {
      this.#response.requestConsumed(chunk.length)
      return
    }
    this.#receivedBytes += chunk.length
    if (this.#phase !== 'answering') {
      if (this.#body.isFull) this.#keepFailed(undefined)
      else this.#keep(chunk)
    }
    this.#next?.requestData(chunk)
    this.#giveCredit()
  }

  #keep(chunk: Uint8Array): void {
    this.#signature?.update(chunk)
    this.#body.hold(this.#signature?.heldBytes ?? 0)
    this.#body.add(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    if (this.#phase === 'over') return
    const problem = this.#signature?.verdict()
    if (problem !== undefined) {
      this.#refuseSignature(problem)
      return
    }
    if (this.#signature !== undefined) this.#verified()
    this.#body.hold(0)
    this.#trailers = trailers
    this.#next?.requestEnd(trailers)
    if (this.#phase === 'capturing') this.#store()
  }

  /** The sender has gone. An incomplete webhook is dropped; a complete one may already be stored. It stays, and so does its attempt. */
  requestAbort(error: SallyportError): void {
    if (this.#phase === 'storing' || this.#onOutcome !== undefined) return
    this.#release(true)
    this.#phase = 'over'
    this.span?.end()
    this.#attemptLeft()
    this.#next?.requestAbort(error)
  }

  responseConsumed(bytes: number): void {
    if (this.#passesAnswer) this.#next?.responseConsumed(bytes)
  }

  /** Gives credit only for bytes that both the next layer has consumed and the body keeps. */
  #giveCredit(): void {
    const isOpen = this.#next !== undefined && this.#outcome === undefined
    const passed = isOpen ? this.#forwardedBytes : this.#receivedBytes
    const kept = this.#phase === 'passing' || this.#phase === 'capturing' ? this.#keptBytes : this.#receivedBytes
    const more = Math.min(passed, kept) - this.#creditedBytes
    if (more <= 0) return
    this.#creditedBytes += more
    this.#response.requestConsumed(more)
  }

  // The answer.

  responseInformational(status: number, headers: HeaderList): void {
    if (this.#phase === 'passing' || this.#phase === 'answering') this.#response.responseInformational(status, headers)
  }

  responseHead(head: ResponseHead): void {
    if (this.#phase === 'passing' && isForSender(head.status)) this.#passAnswer()
    if (this.#phase === 'answering') this.#response.responseHead(head)
    else this.#handleHead(outcomeOfHead(head, this.#intake.now()))
  }

  /** A receiver that answers 2xx early still gets the rest of the request. What counts is the end of its answer. */
  #handleHead(outcome: Outcome): void {
    const isWhole = this.#forwardedBytes >= this.#receivedBytes
    if (outcome.kind === 'delivered' && !isWhole) this.#earlyOutcome = outcome
    else this.#attemptEnded(outcome)
  }

  /** Nothing is kept from here on: the sender gets whatever the attempt answers. */
  #passAnswer(): void {
    this.#phase = 'answering'
    this.#passesAnswer = true
    this.#release()
    this.#giveCredit()
  }

  responseData(chunk: Uint8Array): void {
    if (this.#phase === 'answering') this.#response.responseData(chunk)
    else this.#next?.responseConsumed(chunk.length)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#earlyOutcome !== undefined) this.#attemptEnded(this.#earlyOutcome)
    this.#attemptLeft()
    if (this.#phase !== 'answering') return
    this.#phase = 'over'
    this.#response.responseEnd(trailers)
  }

  responseAbort(error: SallyportError): void {
    if (!this.#passesAnswer) this.#attemptEnded(outcomeOfError(error))
    this.#attemptLeft()
    if (!this.#passesAnswer) return
    this.#phase = 'over'
    this.#response.responseAbort(error)
  }

  requestConsumed(bytes: number): void {
    this.#forwardedBytes += bytes
    this.#giveCredit()
    this.#countAttempt()
  }

  acknowledged(): void {
    this.#response.acknowledged?.()
  }

  unwanted(): void {
    this.#response.unwanted?.()
  }

  /** The attempt that began before the webhook was stored is over, so nothing more is forwarded. */
  #attemptEnded(outcome: Outcome): void {
    if (this.#outcome !== undefined) return
    this.#outcome = outcome
    if (this.#trailers === undefined) {
      // The rest of the request is only kept.
      this.#next?.requestAbort(new SallyportError('cancelled'))
      this.#next = undefined
    } else this.#limitAttempt(REST_MS)
    if (this.#phase === 'passing') this.#capture(reasonOf(outcome))
    else {
      this.#onOutcome?.(outcome)
      this.#giveCredit()
    }
  }

  #waitUntil(ms: number): void {
    this.#timer = setTimeout(late, ms - this.#dueMs, this)
    this.#dueMs = ms
  }

  /** @internal Looks after a moment, at half of the time and at its end whether the sender may wait on. */
  late(): void {
    if (this.#phase !== 'passing') return
    const endMs = this.rule.answerWithinMs
    const halfMs = endMs / 2
    const mayComplete = this.#dueMs < halfMs || 2 * this.#receivedBytes >= this.#original.bodyBytes
    if (this.#dueMs < endMs && mayComplete) {
      this.#body.own()
      this.#waitUntil(this.#dueMs < halfMs ? halfMs : endMs)
      return
    }
    if (this.#trailers === undefined) this.#leaveReceiver()
    this.#capture('slow')
  }

  /** Its sender can send only as fast as the receiver reads. The receiver does not have the whole request, so it counts as not tried. */
  #leaveReceiver(): void {
    this.#next?.requestAbort(new SallyportError('upstream-timeout'))
    this.#next = undefined
    this.#attempted = false
  }

  /** Nobody waits for the attempt any more, so the rest of it gets this long. */
  #limitAttempt(ms: number): void {
    clearTimeout(this.#attemptTimer)
    this.#attemptTimer = setTimeout(giveUp, ms, this)
  }

  /** @internal */
  giveUp(): void {
    const error = new SallyportError('upstream-timeout')
    this.#next?.requestAbort(error)
    this.#next = undefined
    this.#attemptEnded(outcomeOfError(error))
    this.#attemptLeft()
  }

  #attemptLeft(): void {
    clearTimeout(this.#attemptTimer)
    this.#attemptTimer = undefined
    this.#held?.drop()
    this.#held = undefined
  }

  #countAttempt(): void {
    this.#held?.hold(ATTEMPT_BYTES + this.#headBytes + this.#receivedBytes - this.#forwardedBytes)
  }

  get #headBytes(): number {
    const { path, headers } = this.#original
    return path.length + textBytes(headers) + textBytes(this.#trailers ?? [])
  }

  threw(error: unknown): void {
    logDefect(this.#intake.logger, 'capturing a webhook failed', error)
    this.#refuse(toSallyportError(error))
  }

  /** The signature is invalid: nothing is stored, and the request that was forwarded so far is aborted. */
  #refuseSignature(problem: string): void {
    const error = new SallyportError('webhook-signature')
    const fields = { ...this.fields, code: error.reason, reason: problem }
    this.#intake.logger.warn(fields, 'a webhook has no valid signature')
    this.#refuse(error, true)
  }

  /** @internal For the log. */
  get fields(): object {
    const { runtime, requestId } = this.request
    return { runtime, route: this.rule.route, requestId }
  }

  // Called by the body.

  /** @internal */
  part(n: number, bytes: Uint8Array): Promise<unknown> {
    return this.#intake.part(this, n, bytes)
  }

  /** @internal The first `bytes` bytes are kept safely, so more may come. */
  kept(bytes: number): void {
    this.#keptBytes = bytes
    this.#giveCredit()
  }

  /** @internal */
  failed(error: unknown): void {
    this.#keepFailed(error)
  }

  #capture(reason: CaptureReason): void {
    clearTimeout(this.#timer)
    this.#phase = 'capturing'
    this.#reason = reason
    this.span = beginAccept(this.id, this.request, reason)
    this.#body.own()
    if (this.#receivedBytes === 0 && hasHeader(this.request.headers, 'expect'))
      this.#response.responseInformational(100, [])
    this.#giveCredit()
    if (this.#trailers !== undefined) this.#store()
  }

  /** No more of the body can be kept. While the request is still being forwarded, the sender gets whatever is answered. */
  #keepFailed(error: unknown): void {
    if (this.#phase === 'capturing') this.#refuse(this.#intake.refusal(this, error))
    else if (this.#phase === 'passing') this.#passAnswer()
  }

  #store(): void {
    this.#body.hold(HEAD_COPIES * this.#headBytes)
    if (this.#body.isFull) {
      this.#keepFailed(undefined)
      return
    }
    this.#phase = 'storing'
    const { rest, digest, parts } = this.#body.finish()
    const bodyBytes = this.#body.bytes
    const captured = { why: this.#reason, rest, digest, parts, bodyBytes, trailers: this.#trailers! }
    if (this.#attempted && this.#outcome === undefined) this.#limitAttempt(this.#intake.attemptMs)
    const guard = guardWith(error => this.threw(error))
    const stored = guard((done: ChangeResult) => this.#accept(done))
    const failed = guard((error: unknown) => this.#refuse(this.#intake.refusal(this, error)))
    this.#intake.store(this, captured, this.#attempted ? this.#attempt() : undefined).then(stored, failed)
  }

  #attempt(): Promise<Outcome> {
    if (this.#outcome !== undefined) return Promise.resolve(this.#outcome)
    return new Promise(resolve => {
      this.#onOutcome = resolve
    })
  }

  #accept({ id, status }: ChangeResult): void {
    this.#phase = 'over'
    this.span?.set('sallyport.inbox_id', id)
    this.span?.end()
    this.#body.drop()
    const body = Buffer.from(`${JSON.stringify({ id, status })}\n`)
    const headers: HeaderList = ['content-type', 'application/json', 'content-length', String(body.length)]
    headers.push('cache-control', 'no-store', 'sallyport-inbox-id', id, 'x-request-id', this.request.requestId)
    this.#response.responseHead({ status: 202, headers, bodyBytes: body.length })
    this.#response.responseData(body)
    this.#response.responseEnd([])
    if (this.#attemptTimer === undefined) return
    this.#held = new KeptBody(this.#intake.attempts, this)
    this.#countAttempt()
    if (this.#held.isFull) this.giveUp()
  }

  #refuse(error: SallyportError, isCharged = error.reason === 'inbox-full'): void {
    if (this.#phase === 'over') return
    this.#phase = 'over'
    this.span?.end(error.reason)
    this.#release(isCharged)
    if (this.#outcome === undefined) {
      this.#next?.requestAbort(new SallyportError('cancelled'))
      this.#attemptLeft()
    }
    this.#intake.refuse(this.request, this.#response, error)
    this.#response.requestConsumed(this.#receivedBytes - this.#creditedBytes)
    this.#creditedBytes = this.#receivedBytes
  }

  /** Nothing of it is kept. If that is due to its sender, or there is no room, the sender pays for what was stored of it meanwhile. */
  #release(isCharged = false): void {
    clearTimeout(this.#timer)
    this.#signature = undefined
    this.#body.drop()
    if (this.#body.parts > 0) this.#intake.forget(this, isCharged)
  }
}

function reasonOf({ kind, reason }: Outcome): CaptureReason {
  if (kind === 'offline') return 'offline'
  return reason === 'session-lost' ? 'lost' : 'failed'
}
