/** One stream of a downstream HTTP/2 session: reads the request, writes the response. */
import { due, timeLeft } from '../../base/deadline-watch.ts'
import { type ErrorCode, SallyportError, toSallyportError } from '../../base/errors.ts'
import { callHandler, endFor } from '../../base/guard.ts'
import type { Logger } from '../../base/log.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from '../../exchange.ts'
import {
  getHeader,
  hasHeader,
  plainNumber,
  stripRequestTrailers,
  stripResponseTrailers,
  textBytes,
} from '../headers.ts'
import { Informational } from '../informational.ts'
import type { HttpLimits } from '../limits.ts'
import { answerProblem, type CorsPolicy } from '../problem.ts'
import { CODE } from './frames.ts'
import { MalformedError, outgoingBlock, receivedTrailers } from './headers.ts'
import { expectsContinue } from './request-head.ts'
import type { Http2Stream, Http2StreamOwner } from './stream.ts'

/** Memory of an exchange and its stream, without heads, trailers and bodies. */
export const STREAM_BYTES = 4 * 1024
/** The longest body of a cheap answer. A longer one is an upstream's, which pays for it. */
const MAX_CHEAP_BYTES = 4 * 1024

/** State that the exchanges of a session share. */
export interface Http2SessionContext {
  /** Why exchanges end with their streams: `cancelled`, since their caller left, unless we end the session. */
  why: ErrorCode
  /** Bytes of cheap answers (short errors, and short ones that are given at once) that the caller has not taken yet. */
  unsentBytes: number
  /** WebSockets whose both halves have ended, and whose upstream end has not taken everything. */
  readonly untaken: Set<Http2ServerExchange>
  /** Counts what is held for a stream, or no longer held (a negative number). */
  readonly keep: (bytes: number) => void
  /** The handler pays for the bytes of bodies that wait, unless they are cheap. */
  readonly boundsBodies: boolean
  readonly limits: HttpLimits
  readonly logger: Logger
  /** Which pages may read an answer of our own. */
  readonly corsOf: ((request: HttpRequest) => CorsPolicy | undefined) | undefined
}

export class Http2ServerExchange implements ResponseSink, Http2StreamOwner {
  readonly request: HttpRequest
  readonly #stream: Http2Stream
  readonly #context: Http2SessionContext
  readonly #limits: HttpLimits
  #sink: RequestSink | undefined
  /** Set if our own end found a fault in the response. */
  #failure: SallyportError | undefined
  /** An error is being answered. Another error during that answer breaks the stream. */
  #failed = false
  #headSent = false
  #headBytes = 0
  #responseEnded = false
  #responseEndedAt = 0
  #requestEnded: boolean
  #awaitsContinue: boolean
  #trailers: HeaderList = []
  /** How many bytes of the response (or of the request) are still to come. BODY_UNKNOWN if it was not announced. */
  #responseLeft = 0
  /** How many bytes of its body were given. */
  #bodyBytes = 0
  /** The head ends the response, so what a handler gives as its body is discarded. */
  #bodiless = false
  /** Trailers may follow a body of known length: they are announced, or the caller said `te: trailers`, as gRPC does. */
  #mayTrail = false
  readonly #takesTrailers: boolean
  #requestLeft: number
  #informational: Informational | undefined
  #raw = false
  /** The rest of the request is not wanted, and is discarded behind the answer. */
  #cutsRequest = false
  /** The caller has left, or the stream has ended. */
  #over = false
  #status = 0
  /** What is counted of what is held for the request and its answer. */
  keptBytes = 0
  /** The part of it that is not body: of the answer only once it is complete. */
  #headsBytes: number
  /** How often the bytes of its body that wait are counted: twice until the last has come, since the upstream's end holds as many. */
  #shares: number
  isShed = false
  /** Its part of the session's `unsentBytes`. */
  #unsentBytes = 0
  readonly #since = performance.now()

  constructor(stream: Http2Stream, request: HttpRequest, context: Http2SessionContext) {
    this.#stream = stream
    this.request = request
    this.#context = context
    this.#limits = context.limits
    this.#shares = context.boundsBodies ? 0 : 2
    this.#requestLeft = request.bodyBytes
    this.#requestEnded = request.bodyBytes === 0 && !request.upgrade
    this.#awaitsContinue = expectsContinue(request)
    this.#takesTrailers = hasHeader(request.headers, 'te')
    this.#headsBytes = STREAM_BYTES + request.path.length + textBytes(request.headers)
    stream.owner = this
  }

  start(handler: Handler): void {
    try {
      this.#start(handler)
    } catch (error) {
      this.threw(error)
    }
  }

  #start(handler: Handler): void {
    const { request } = this
    const sink = callHandler(handler, request, this, this.#context.logger)
    if (this.#failure !== undefined) {
      sink.requestAbort(this.#failure)
      return
    }
    this.#sink = sink
    if (this.#over) this.#tell(new SallyportError(this.#context.why))
    else {
      if (request.bodyBytes === 0 && !request.upgrade) sink.requestEnd([])
      this.#read()
      this.#recount()
    }
  }

  /**
   * Until the 101, nobody reads what the caller of a WebSocket sends. Once both halves have ended, the exchange is over for its caller. So
   * that what the upstream end has not taken counts until then, it learns of the end of its half behind that.
   */
  #read(): void {
    if (this.#sink !== undefined && (this.#raw || !this.request.upgrade)) this.#stream.start(this.#raw)
  }

  // Request

  fields(block: string[]): void {
    if (this.request.upgrade) throw new MalformedError('a second head of a WebSocket')
    this.#trailers = stripRequestTrailers(receivedTrailers(block))
    this.#headsBytes += textBytes(this.#trailers)
    this.#recount()
    // With a content-length of 0, the request was passed on without waiting for them.
    if (this.#requestEnded && !this.#over) this.#logDropped(this.#trailers)
  }

  overlong(): void {
    if (this.request.upgrade) throw new MalformedError('a second head of a WebSocket')
    this.#refuse(new SallyportError('head-too-large', 'trailers'))
  }

  data(chunk: Uint8Array): void {
    this.#awaitsContinue = false
    if (this.#requestLeft !== BODY_UNKNOWN && !this.#raw) {
      this.#requestLeft -= chunk.length
      if (this.#requestLeft < 0) throw new MalformedError('body longer than content-length')
    }
    this.#sink?.requestData(chunk)
    this.#recount()
  }

  kept(): void {
    this.#recount()
  }

  ended(): void {
    if (!this.#requestEnded && !this.#cutsRequest) this.#endRequest()
    // Our half has ended before: by the head of a bodiless answer, or by an answer that came first.
    if (this.#stream.closed) this.#gone()
  }

  #endRequest(): void {
    if (this.#requestLeft > 0) throw new MalformedError('body shorter than content-length')
    this.#requestEnded = true
    // A WebSocket is complete once both halves are.
    if (this.#raw && this.#responseEnded) this.#count(false)
    this.#sink?.requestEnd(this.#trailers)
  }

  requestConsumed(bytes: number): void {
    this.#stream.consumed(bytes)
    this.#recount()
  }

  /** The caller broke the rules in the middle of its body. */
  #refuse(error: SallyportError): void {
    this.#tell(error, !this.#headSent)
    this.responseAbort(error)
  }

  // Response

  /** Nothing more can be sent: everything has been, or the stream is over. */
  get #isMute(): boolean {
    return this.#responseEnded || this.#stream.closed
  }

  responseInformational(status: number, headers: HeaderList): void {
    if (this.#headSent || this.#isMute) return
    if (status < 100 || status > 199 || status === 101) return
    if (status === 100) {
      if (!this.#awaitsContinue) return
      this.#awaitsContinue = false
    } else {
      this.#informational ??= new Informational(this.#limits)
      if (!this.#informational.admits(headers)) return
    }
    try {
      this.#stream.sendFields(outgoingBlock([':status', String(status)], headers))
    } catch (error) {
      this.#fail(toSallyportError(error))
    }
  }

  responseHead(response: ResponseHead): void {
    if (this.#headSent || this.#isMute) return
    try {
      this.#head(response)
    } catch (error) {
      this.#fail(toSallyportError(error))
    }
  }

  #head(response: ResponseHead): void {
    const { upgrade, method } = this.request
    const { bodyBytes } = response
    this.#raw = response.status === 101
    if (this.#raw && !upgrade) throw new SallyportError('upstream-broken', '101 to a request that asked for no upgrade')
    const status = this.#raw ? 200 : response.status
    // Any 2xx accepts an extended CONNECT (RFC 8441 section 5), and what follows would be read as frames.
    if (upgrade && !this.#raw && status < 300) throw new SallyportError('upstream-broken', `${status} to an upgrade`)
    if (!(status >= 200 && status <= 599)) throw new SallyportError('upstream-broken', `status ${status}`)
    const block = outgoingBlock([':status', String(status)], response.headers)
    const isBodiless = !this.#raw && (method === 'HEAD' || status === 204 || status === 304)
    if (!this.#raw && status !== 204) this.#putLength(block, response, isBodiless)
    this.#headSent = true
    this.#headBytes = textBytes(response.headers)
    this.#status = status
    this.#awaitsContinue = false
    this.#bodiless = isBodiless
    this.#mayTrail = !isBodiless && (this.#takesTrailers || hasHeader(response.headers, 'trailer'))
    this.#responseLeft = isBodiless ? 0 : this.#raw ? BODY_UNKNOWN : bodyBytes
    this.#stream.sendFields(block, isBodiless)
    if (this.#raw) this.#read()
  }

  #putLength(block: string[], response: ResponseHead, asSaid: boolean): void {
    const said = getHeader(response.headers, 'content-length')
    if (!asSaid) {
      if (response.bodyBytes !== BODY_UNKNOWN) block.push('content-length', String(response.bodyBytes))
    } else if (said !== undefined && plainNumber(said) !== -1) block.push('content-length', said)
  }

  responseData(chunk: Uint8Array): void {
    if (this.#isMute) return
    if (!this.#headSent) {
      this.#fail(new SallyportError('internal', 'body before head'))
    } else if (this.#bodiless) {
      this.#sink?.responseConsumed(chunk.length)
    } else if (this.#responseLeft === BODY_UNKNOWN) {
      this.#write(chunk)
    } else {
      this.#responseLeft -= chunk.length
      if (this.#responseLeft < 0) this.#fail(new SallyportError('upstream-broken', 'body longer than announced'))
      else this.#write(chunk)
    }
  }

  #write(chunk: Uint8Array): void {
    this.#bodyBytes += chunk.length
    this.#stream.sendData(chunk)
    this.#recount()
  }

  sent(bytes: number): void {
    this.#recount()
    this.#sink?.responseConsumed(bytes)
    this.#endEarly()
  }

  /** Follows what is held from what there is, since it may be shed, and end, in the middle of any step. */
  #recount(): void {
    const { heldBytes, waiting } = this.#stream
    const kept = this.#over ? 0 : this.#headsBytes + heldBytes + this.#shares * waiting
    const change = kept - this.keptBytes
    this.keptBytes = kept
    if (change !== 0) this.#context.keep(change)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#isMute) return
    if (!this.#headSent || this.#responseLeft > 0) {
      this.#fail(new SallyportError('upstream-broken', 'body shorter than announced'))
      return
    }
    const sent = this.#raw || this.#bodiless ? [] : stripResponseTrailers(trailers)
    this.#logDropped(sent.length > 0 ? [] : trailers)
    this.#responseEnded = true
    this.#responseEndedAt = performance.now()
    try {
      this.#stream.end(outgoingBlock([], sent))
    } catch {
      this.#reset(CODE.internal)
      return
    }
    // Without a sink, the handler has not returned yet.
    if (!this.#raw || this.#requestEnded) this.#count(this.#status >= 400 || this.#sink === undefined)
    if (!this.#raw) this.unwanted()
  }

  /**
   * The answer is complete before the request (RFC 9113 section 8.1), so the rest of the request is not wanted. The upstream end
   * is notified when the stream ends, since until then it accounts for the part of the answer that waits.
   */
  unwanted(): void {
    if (this.#requestEnded || this.#over || !this.#responseEnded) return
    this.#stream.discard()
    this.#recount()
    this.#cutsRequest = true
    if (this.#stream.localEnded) this.finished()
  }

  #logDropped(trailers: HeaderList): void {
    if (trailers.length > 0) this.#context.logger.debug({ names: namesOf(trailers) }, 'trailers dropped')
  }

  /** The answer is complete. A handler that bounds bodies pays for those that it passes on, but no longer once they are complete. */
  #count(cheap: boolean): void {
    if (this.#over) return
    this.#headsBytes += this.#headBytes
    // Many callers may share the connection. One that does not take what is long must not keep the others' requests out.
    this.#unsentBytes = cheap && this.#bodyBytes <= MAX_CHEAP_BYTES ? this.#headsBytes + this.#stream.waiting : 0
    this.#context.unsentBytes += this.#unsentBytes
    this.#shares = 1
    this.#recount()
  }

  finished(): void {
    // What the caller of a WebSocket has sent completely is still passed on, unless nobody wants it. `ended` follows.
    if (this.#raw && !this.#requestEnded && !this.#cutsRequest) return
    if (this.#stream.closed) this.#gone()
    else if (this.#cutsRequest) {
      this.#releaseUnsent()
      this.#endEarly()
    }
  }

  /** The answer has left, and the caller still sends. Only its stream is left of the exchange. */
  #endEarly(): void {
    const { localEnded, waiting } = this.#stream
    if (!this.#cutsRequest || this.#requestEnded || !localEnded || waiting > 0) return
    this.#requestEnded = true
    this.#tell(new SallyportError(this.#context.why))
  }

  responseAbort(error: SallyportError): void {
    if (this.#isMute) {
      // Drop the part of the answer that has not left.
      if (!this.#stream.localEnded) this.#reset(CODE.internal)
      return
    }
    if (this.#isWhole && error.reason !== 'cancelled') {
      this.responseEnd([])
    } else if (this.#headSent || this.#failed || error.reason === 'cancelled') {
      this.#responseEnded = true
      this.#reset(error.reason === 'cancelled' ? CODE.cancel : CODE.internal)
    } else {
      this.#failed = true
      answerProblem(this, this.request, error, this.#context.corsOf?.(this.request))
    }
  }

  /** The response is complete for the caller, whatever its upstream does next. */
  get #isWhole(): boolean {
    return this.#headSent && this.#responseLeft === 0 && !this.#mayTrail
  }

  /** Our own end rejected the response, so the upstream is notified as well. */
  #fail(error: SallyportError): void {
    this.#failure = error
    this.#tell(error)
    this.responseAbort(error)
  }

  /** Drops a request or an answer that nobody takes. */
  shed(): void {
    this.isShed = true
    this.#reset(CODE.internal)
  }

  /** The last call to the upstream end. */
  #tell(error: SallyportError, answered = false): void {
    const sink = this.#sink
    this.#sink = undefined
    sink?.requestAbort(error, answered)
  }

  // Ends and deadlines

  #reset(code: number, why?: ErrorCode): void {
    this.#stream.reset(code)
    this.#gone(why)
  }

  lost(_code: number, fault?: string): void {
    this.#gone(fault === undefined ? undefined : 'bad-request')
  }

  /** Every exchange ends here. */
  #gone(why: ErrorCode = this.isShed ? 'overloaded' : this.#context.why): void {
    if (this.#over) return
    this.#over = true
    this.#context.untaken.delete(this)
    const whole = this.#responseEnded && this.#requestEnded
    this.#responseEnded = true
    this.#requestEnded = true
    this.#releaseUnsent()
    this.#recount()
    if (!whole) this.#tell(new SallyportError(why))
    this.#stream.discard()
  }

  #releaseUnsent(): void {
    this.#context.unsentBytes -= this.#unsentBytes
    this.#unsentBytes = 0
  }

  /** An error in an event handler or a timer resets this stream and no other. */
  threw(error: unknown): void {
    if (error instanceof MalformedError) {
      this.#tell(error)
      this.#reset(CODE.protocol)
      return
    }
    const told = () => this.#tell(toSallyportError(error))
    const broken = () => this.#reset(CODE.internal)
    // In this order: the end of the stream would tell the upstream that the caller left.
    endFor(error, this.#context.logger, 'an exchange over HTTP/2 failed', told, broken)
  }

  /** Acts on deadlines that have passed. Returns the time until the next one. */
  check(now: number): number {
    try {
      return Math.min(this.#checkRead(now), this.#checkWrite(now))
    } catch (error) {
      this.threw(error)
      return Number.POSITIVE_INFINITY
    }
  }

  #checkRead(now: number): number {
    if (this.#requestEnded) return this.#checkUnended(now)
    if (this.#raw && this.#responseEnded) return this.#checkEnd(now)
    // Once the answer has begun, both directions may be quiet, as on a WebSocket.
    if (this.#responseEnded || this.#headSent || this.request.upgrade) return Number.POSITIVE_INFINITY
    const { bodyIdleMs, expectMs } = this.#limits
    if (this.#stream.full) return bodyIdleMs || Number.POSITIVE_INFINITY
    if (this.#awaitsContinue) {
      const left = timeLeft(this.#since, expectMs, now)
      if (left === 0) this.responseInformational(100, [])
      else if (left !== Number.POSITIVE_INFINITY) return left
    }
    const left = timeLeft(this.#stream.readAt, bodyIdleMs, now)
    if (left > 0) return left
    this.#refuse(new SallyportError('request-timeout'))
    return Number.POSITIVE_INFINITY
  }

  /**
   * A request was answered, and its caller goes on sending, or does not end it. As over HTTP/1.1, it has time for that: many callers read the
   * answer only then, and some lose one that comes together with a reset (curl 7.88).
   */
  #checkUnended(now: number): number {
    if (!this.#responseEnded || !this.#stream.localEnded) return Number.POSITIVE_INFINITY
    const { drainMs, lingerMs } = this.#limits
    const { progressAt, readAt } = this.#stream
    const since = Math.max(this.#responseEndedAt, progressAt)
    const end = () => this.#reset(CODE.noError)
    return Math.min(due(Math.max(since, readAt), drainMs, now, end), due(since, lingerMs, now, end))
  }

  /** Our half of a WebSocket is closed. A caller that has read everything and neither sends nor closes its half is gone. */
  #checkEnd(now: number): number {
    const { stalledMs } = this.#limits
    const { waiting, progressAt, readAt } = this.#stream
    if (waiting > 0) return stalledMs || Number.POSITIVE_INFINITY
    const left = timeLeft(Math.max(this.#responseEndedAt, progressAt, readAt), stalledMs, now)
    if (left > 0) return left
    this.#reset(CODE.cancel)
    return Number.POSITIVE_INFINITY
  }

  /** The caller grants no window. If it does not read the connection either, the session watches that. */
  #checkWrite(now: number): number {
    const { stalledMs } = this.#limits
    if (!this.#stream.isStalled) return stalledMs || Number.POSITIVE_INFINITY
    const left = timeLeft(this.#stream.progressAt, stalledMs, now)
    if (left > 0) return left
    this.#reset(CODE.cancel, 'request-timeout')
    return Number.POSITIVE_INFINITY
  }
}

function namesOf(fields: HeaderList): string[] {
  return fields.filter((_, i) => i % 2 === 0)
}
