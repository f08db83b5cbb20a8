/**
 * One webhook at the edge: either its answer comes from the receiver, or it is stored and the sender told so.
 *
 *     passing ──▶ answering            the receiver has answered, and nothing is kept
 *        │
 *        ▼
 *     taking ──▶ storing ──▶ over      202 once it is durable; an attempt may go on, and settles it if it succeeds
 *
 * Both ends may be in any of these: what still comes of a request that is taken is kept, and what comes of an answer that is
 * not wanted is dropped.
 */
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { type Failing, guardWith, stepOf, tellDefect } from '../../protocol/base/guard.ts'
import type {
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { hasHeader } from '../../protocol/http/headers.ts'
import type { Span } from '../../protocol/trace/span.ts'
import { keptHead } from './head.ts'
import { laneDigest } from './identity.ts'
import type { Inbox } from './inbox.ts'
import { KeptBody } from './kept-body.ts'
import { outcomeOfError, outcomeOfHead, REST_MS } from './outgoing.ts'
import { isForSender, type Outcome } from './retry.ts'
import type { Rule } from './rules.ts'
import type { Sealing, Seals } from './sealing.ts'
import { beginAccept } from './spans.ts'
import type { Applied } from './store.ts'

/** Why a webhook was stored. */
export const WHYS = ['always', 'behind', 'offline', 'failed', 'slow', 'lost'] as const
export type Why = (typeof WHYS)[number]

interface CaptureOptions {
  readonly id: string
  readonly rule: Rule
  /** What it shares with those that it must not overtake. */
  readonly laneName: string
  /** For the runtime's client; undefined: it stays in clear. */
  readonly seals: Seals | undefined
}

/** Until then what came of a body stays where it was read. */
const MOMENT_MS = 250

const late = stepOf<Capture>(capture => capture.late())
const giveUp = stepOf<Capture>(capture => capture.giveUp())

export class Capture implements RequestSink, ResponseSink, Failing {
  readonly id: string
  readonly request: HttpRequest
  readonly rule: Rule
  /** Digest of its lane. */
  readonly #laneName: string
  #lane: string | undefined
  readonly #seals: Seals | undefined
  /** As it came: those behind may change it. */
  readonly #asked: HttpRequest
  readonly received: number
  /** That it was taken; undefined: nobody records it. */
  span: Span | undefined
  /** @internal Room in the inbox that was promised to it. */
  reservedBytes = 0
  /** @internal MACs of its parts that are in the store, by their numbers; undefined: none. */
  macs: string[] | undefined
  #sealing: Sealing | undefined
  readonly #inbox: Inbox
  readonly #response: ResponseSink
  readonly #body: KeptBody
  /** Where the request goes, while it goes anywhere. */
  #next: RequestSink | undefined
  #phase: 'passing' | 'answering' | 'taking' | 'storing' | 'over' = 'passing'
  /** Its sender gets the receiver's answer, and may hold some of it after its end. */
  #letsThrough = false
  #why: Why = 'always'
  #timer: NodeJS.Timeout | undefined
  /** Of the attempt, once its answer is nobody's. */
  #attemptTimer: NodeJS.Timeout | undefined
  #trailers: HeaderList | undefined
  #signature: ReturnType<NonNullable<Rule['verifier']>['begin']> | undefined
  /** Of the attempt from before it was stored; undefined: there was none. */
  #outcome: Outcome | undefined
  #onOutcome: ((outcome: Outcome) => void) | undefined
  /** What its receiver said before it had the request. */
  #early: Outcome | undefined
  #attempted = false
  /** The moment is over in which most webhooks are answered. */
  #waited = false
  /** Request bytes that the next end has taken, that are kept, and that the caller's end was told. */
  #passed = 0
  #kept = 0
  #told = 0
  #came = 0

  constructor(
    inbox: Inbox,
    { id, rule, laneName, seals }: CaptureOptions,
    request: HttpRequest,
    response: ResponseSink,
  ) {
    this.#inbox = inbox
    this.id = id
    this.rule = rule
    this.#laneName = laneName
    this.#seals = seals
    this.request = request
    this.#response = response
    this.received = inbox.now()
    this.#asked = { ...request, headers: [...request.headers] }
    this.#body = new KeptBody(inbox.budget, this)
  }

  get lane(): string {
    this.#lane ??= laneDigest(this.request.runtime!, this.#laneName)
    return this.#lane
  }

  get head(): ReturnType<typeof keptHead> {
    return keptHead(this.#asked)
  }

  /** How it is sealed, from the first part on; undefined: it is not. */
  get sealing(): Sealing | undefined {
    const { id, lane, received } = this
    this.#sealing ??= this.#seals?.seal({ runtime: this.request.runtime!, id, lane, received })
    return this.#sealing
  }

  start(next: Handler): this {
    this.#signature = this.rule.verifier?.begin(this.request.headers, this.received)
    if (this.#signature?.refusal !== undefined) this.#distrust(this.#signature.refusal)
    else if (this.rule.mode === 'always') this.#take('always')
    else if (this.#inbox.isBusy(this)) this.#take('behind')
    else {
      this.#attempted = true
      this.#timer = setTimeout(late, Math.min(MOMENT_MS, this.rule.answerWithinMs), this)
      const sink = next(this.request, this)
      // It may have answered by now: nothing more is sent to it then.
      if (this.#outcome === undefined || this.#phase === 'answering') this.#next = sink
    }
    return this
  }

  // The request.

  requestData(chunk: Uint8Array): void {
    if (this.#phase === 'over') {
      this.#response.requestConsumed(chunk.length)
      return
    }
    this.#came += chunk.length
    this.#signature?.update(chunk)
    if (this.#phase !== 'answering') {
      if (this.#inbox.budget.isFull(this.request.runtime!)) this.#cannotKeep(undefined)
      else this.#body.add(chunk)
    }
    this.#next?.requestData(chunk)
    this.#giveCredit()
  }

  requestEnd(trailers: HeaderList): void {
    if (this.#phase === 'over') return
    const problem = this.#phase === 'answering' ? undefined : this.#signature?.verdict()
    if (problem !== undefined) {
      this.#distrust(problem)
      return
    }
    this.#trailers = trailers
    this.#next?.requestEnd(trailers)
    if (this.#phase === 'taking') this.#store()
  }

  /** The sender has gone. What it did not send whole is no webhook; what it did may be stored by now, and stays. */
  requestAbort(error: SallyportError): void {
    if (this.#phase === 'storing') return
    if (this.#phase === 'taking') this.#inbox.leave(this)
    this.#release()
    this.#phase = 'over'
    this.span?.end()
    clearTimeout(this.#attemptTimer)
    this.#next?.requestAbort(error)
  }

  responseConsumed(bytes: number): void {
    if (this.#letsThrough) this.#next?.responseConsumed(bytes)
  }

  /** Bytes are taken once both have them: whom they are passed to, and what they are kept by. */
  #giveCredit(): void {
    const passed = this.#next === undefined ? this.#came : this.#passed
    const kept = this.#phase === 'passing' || this.#phase === 'taking' ? this.#kept : this.#came
    const more = Math.min(passed, kept) - this.#told
    if (more <= 0) return
    this.#told += more
    this.#response.requestConsumed(more)
  }

  // The answer.

  responseInformational(status: number, headers: HeaderList): void {
    if (this.#phase === 'passing' || this.#phase === 'answering') this.#response.responseInformational(status, headers)
  }

  responseHead(head: ResponseHead): void {
    if (this.#phase === 'passing' && isForSender(head.status)) this.#letGo()
    if (this.#phase === 'answering') this.#response.responseHead(head)
    else this.#answered(outcomeOfHead(head, this.#inbox.now()))
  }

  /** Who says 2xx before it has the whole request is still to get the rest: what counts is the end of its answer. */
  #answered(outcome: Outcome): void {
    const isWhole = this.#trailers !== undefined && this.#passed >= this.#came
    if (outcome.kind === 'delivered' && !isWhole) this.#early = outcome
    else this.#ended(outcome)
  }

  /** Nothing is kept from here on: whatever comes of the attempt is the sender's answer. */
  #letGo(): void {
    this.#phase = 'answering'
    this.#letsThrough = true
    this.#release()
    this.#giveCredit()
  }

  responseData(chunk: Uint8Array): void {
    if (this.#phase === 'answering') this.#response.responseData(chunk)
    else this.#next?.responseConsumed(chunk.length)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#early !== undefined) this.#ended(this.#early)
    clearTimeout(this.#attemptTimer)
    if (this.#phase !== 'answering') return
    this.#phase = 'over'
    this.#response.responseEnd(trailers)
  }

  responseAbort(error: SallyportError): void {
    if (!this.#letsThrough) this.#ended(outcomeOfError(error))
    clearTimeout(this.#attemptTimer)
    if (!this.#letsThrough) return
    this.#phase = 'over'
    this.#response.responseAbort(error)
  }

  requestConsumed(bytes: number): void {
    this.#passed += bytes
    if (this.#phase === 'over') this.#response.requestConsumed(bytes)
    else this.#giveCredit()
  }

  acknowledged(): void {
    this.#response.acknowledged?.()
  }

  unwanted(): void {
    this.#response.unwanted?.()
  }

  /** The attempt from before it was stored is over: nothing more is sent there. */
  #ended(outcome: Outcome): void {
    if (this.#outcome !== undefined) return
    this.#outcome = outcome
    if (this.#trailers === undefined) {
      // What comes of the request is kept from here on, and goes nowhere else.
      this.#next?.requestAbort(new SallyportError('cancelled'))
      this.#next = undefined
    } else {
      this.#passed = this.#came
      this.#within(REST_MS)
    }
    if (this.#phase === 'passing') this.#take(whyOf(outcome))
    else {
      this.#onOutcome?.(outcome)
      this.#giveCredit()
    }
  }

  /** @internal Its sender waits no longer. */
  late(): void {
    if (this.#phase !== 'passing') return
    const leftMs = this.rule.answerWithinMs - MOMENT_MS
    if (this.#waited || leftMs <= 0) this.#take('slow')
    else {
      this.#waited = true
      this.#body.last()
      this.#timer = setTimeout(late, leftMs, this)
    }
  }

  /** What is left of the attempt has as long as that: nobody waits for it any more. */
  #within(ms: number): void {
    clearTimeout(this.#attemptTimer)
    this.#attemptTimer = setTimeout(giveUp, ms, this)
  }

  /** @internal */
  giveUp(): void {
    this.#next?.requestAbort(new SallyportError('cancelled'))
    this.#next = undefined
    this.#ended(outcomeOfError(new SallyportError('upstream-timeout')))
  }

  threw(error: unknown): void {
    tellDefect(this.#inbox.logger, 'a webhook could not be taken', error)
    this.#refuse(toSallyportError(error))
  }

  /** The signature is wrong: nothing is stored, and what was passed on so far never ends. */
  #distrust(problem: string): void {
    this.#inbox.logger.warn({ ...this.#fields, reason: problem }, 'a webhook has no good signature')
    this.#refuse(new SallyportError('webhook-signature'))
  }

  get #fields(): object {
    const { runtime, requestId } = this.request
    return { runtime, route: this.rule.route, requestId }
  }

  // Keeping it, as its body says.

  /** @internal */
  part(n: number, bytes: Uint8Array): Promise<unknown> {
    return this.#inbox.part(this, n, bytes)
  }

  /** @internal So many bytes from the beginning are kept well enough for more to come. */
  kept(bytes: number): void {
    this.#kept = bytes
    this.#giveCredit()
  }

  /** @internal */
  failed(error: unknown): void {
    this.#cannotKeep(error)
  }

  #take(why: Why): void {
    clearTimeout(this.#timer)
    this.#phase = 'taking'
    this.#why = why
    this.span = beginAccept(this.id, this.request, why)
    this.#body.last()
    this.#inbox.expect(this)
    if (this.#came === 0 && hasHeader(this.request.headers, 'expect')) this.#response.responseInformational(100, [])
    this.#giveCredit()
    if (this.#trailers !== undefined) this.#store()
  }

  /** No more of the body can be kept: the answer, if one comes, is all that its sender gets. */
  #cannotKeep(error: unknown): void {
    if (this.#phase === 'taking') this.#refuse(this.#inbox.refusal(error))
    else if (this.#phase === 'passing') this.#letGo()
  }

  #store(): void {
    this.#phase = 'storing'
    const { rest, digest, parts } = this.#body.finish()
    const bodyBytes = this.#body.bytes
    const taken = { why: this.#why, rest, digest, parts, bodyBytes, trailers: this.#trailers! }
    if (this.#attempted && this.#outcome === undefined) this.#within(this.#inbox.attemptMs)
    const guard = guardWith(error => this.threw(error))
    const stored = guard((done: Applied) => this.#answer(done))
    const failed = guard((error: unknown) => this.#refuse(this.#inbox.refusal(error)))
    this.#inbox.store(this, taken, this.#attempted ? this.#attempt() : undefined).then(stored, failed)
  }

  #attempt(): Promise<Outcome> {
    if (this.#outcome !== undefined) return Promise.resolve(this.#outcome)
    return new Promise(resolve => {
      this.#onOutcome = resolve
    })
  }

  #answer({ id, status }: Applied): void {
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
  }

  #refuse(error: SallyportError): void {
    if (this.#phase === 'over') return
    if (this.#phase === 'taking') this.#inbox.leave(this)
    this.#phase = 'over'
    this.span?.end(error.reason)
    this.#release()
    if (this.#outcome === undefined) this.#next?.requestAbort(new SallyportError('cancelled'))
    this.#inbox.refuse(this.request, this.#response, error)
    this.#response.requestConsumed(this.#came - this.#told)
    this.#told = this.#came
  }

  #release(): void {
    clearTimeout(this.#timer)
    this.#body.drop()
    if (this.#body.parts > 0) this.#inbox.forget(this)
  }
}

function whyOf({ kind, reason }: Outcome): Why {
  if (kind === 'offline') return 'offline'
  return reason === 'session-lost' ? 'lost' : 'failed'
}
