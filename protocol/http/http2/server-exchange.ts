/** One stream of a downstream HTTP/2 session: reads the request, writes the response. */
import { constants, type ServerHttp2Stream } from 'node:http2'
import { timeLeft } from '../../base/deadline-watch.ts'
import { type ErrorCode, SallyportError, toSallyportError } from '../../base/errors.ts'
import { callHandler, endFor, type Failing, stepOf } from '../../base/guard.ts'
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
import { getHeader, hasHeader, plainNumber, stripTrailers, textBytes } from '../headers.ts'
import { Informational } from '../informational.ts'
import type { HttpLimits } from '../limits.ts'
import { answerProblem, type CorsPolicy } from '../problem.ts'
import { asObject, outgoingBlock, receivedTrailers, responseBlock } from './headers.ts'
import type { HeldPieces } from './held-pieces.ts'
import { expectsContinue } from './request-head.ts'
import { breakStream, cancelStream } from './reset.ts'
import type { SharedStrings } from './shared-strings.ts'
import { StreamReader, StreamWriter } from './stream-body.ts'

const { NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR } = constants

/** The most that frames and encoding add to the bytes of a head. */
const HEAD_OVERHEAD_BYTES = 4 * 1024
/** The most overhead that frames a piece of a body: header and padding. */
const FRAME_BYTES = 9 + 256

/** Memory of a stream, without its head and the part of its answer that waits. */
const STREAM_BYTES = 6 * 1024

/** State that the exchanges of a session share. */
export interface Http2SessionContext {
  /** Why exchanges end with their streams: `cancelled`, since their caller left, unless we end the session. */
  why: ErrorCode
  /** Bytes of cheap answers (errors, and others that are given at once) that the caller has not taken yet. */
  unsentBytes: number
  /** Counts what a stream holds for its answer, or no longer holds (a negative number). */
  readonly keep: (bytes: number) => void
  /** A head or trailers with these fields were given to Node. */
  readonly gave: (fields: HeaderList) => void
  /** A stream has ended, of whose body this much may be held. */
  readonly left: (bytes: number) => void
  readonly held: HeldPieces
  /** The handler pays for the bytes of bodies that wait, unless they are cheap. */
  readonly boundsBodies: boolean
  /** How many pieces of answer bodies have left. */
  pieces: number
  readonly limits: HttpLimits
  readonly strings: SharedStrings
  readonly logger: Logger
  /** Which pages may read an answer of our own. */
  readonly corsOf: ((request: HttpRequest) => CorsPolicy | undefined) | undefined
}

export class Http2ServerExchange implements ResponseSink, Failing {
  static readonly #unwanted = stepOf<Http2ServerExchange>(exchange => exchange.#cutRequest())
  readonly request: HttpRequest
  readonly #stream: ServerHttp2Stream
  readonly #context: Http2SessionContext
  readonly #limits: HttpLimits
  readonly #reader: StreamReader
  readonly #writer: StreamWriter
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
  /** The response ends with its trailers, when `node:http2` asks for them. */
  #awaitsTrailers = false
  readonly #takesTrailers: boolean
  #trailers: HeaderList = []
  #responseTrailers: HeaderList = []
  /** How many bytes of the response (or of the request) are still to come. BODY_UNKNOWN if it was not announced. */
  #responseLeft = 0
  /** The head ends the response, so what a handler gives as its body is discarded. */
  #bodiless = false
  #requestLeft: number
  #informational: Informational | undefined
  #raw = false
  /** The caller has left, or the stream has ended. */
  #over = false
  #status = 0
  /** What is counted of what the stream holds for its answer, and its part of the session's `unsentBytes`. */
  keptBytes = 0
  /** How often the bytes of its body that wait are counted: twice until the last has come, since the upstream's end holds as many. */
  #shares: number
  isShed = false
  #unsentBytes = 0
  readonly #since = performance.now()

  constructor(stream: ServerHttp2Stream, request: HttpRequest, context: Http2SessionContext) {
    this.#stream = stream
    this.request = request
    this.#context = context
    this.#limits = context.limits
    this.#shares = context.boundsBodies ? 0 : 2
    this.#reader = new StreamReader(stream, context.limits.bufferBytes, this)
    this.#writer = new StreamWriter(stream, this.#sent, this, context.held)
    this.#requestLeft = request.bodyBytes
    this.#requestEnded = request.bodyBytes === 0 && !request.upgrade
    this.#awaitsContinue = expectsContinue(request)
    this.#takesTrailers = hasHeader(request.headers, 'te')
    // Until the 101, nobody reads what the caller of a WebSocket sends.
    if (request.upgrade) this.#reader.hold()
    stream.on('aborted', this.gone)
    stream.on('close', this.gone)
  }

  start(handler: Handler): void {
    const { request } = this
    const sink = callHandler(handler, request, this, this.#context.logger)
    if (this.#failure !== undefined) {
      sink.requestAbort(this.#failure)
      return
    }
    this.#sink = sink
    if (this.#over) this.#tell(new SallyportError(this.#context.why))
    else if (request.upgrade) {
      // The handler accepted it at once, and the caller's half had ended before.
      if (this.#requestEnded) sink.requestEnd(this.#trailers)
    } else if (request.bodyBytes === 0) this.#endEmpty(sink)
    else if (this.#responseEnded) this.#reader.discard()
    else this.#readRequest()
  }

  #endEmpty(sink: RequestSink): void {
    // Without a reader the stream would not close.
    this.#stream.resume()
    sink.requestEnd([])
  }

  /** Bytes on the wire that this exchange accounts for: its head, its body, and their framing. */
  get received(): number {
    const { bodyBytes, upgrade } = this.request
    const unread = unreadBytes(this.#limits, bodyBytes === 0 && !upgrade)
    return unread + this.#reader.bytes + this.#reader.frames * FRAME_BYTES
  }

  get lostBytes(): number {
    return this.#writer.lostBytes
  }

  // Request

  #readRequest(): void {
    // An empty body may have ended before anybody listened.
    if (this.#stream.readableEnded) this.#requestOver()
    else this.#stream.on('end', this.#onEnd)
    this.#reader.start(this.#onData)
  }

  /** Trailers of the request, as they arrived. */
  trailers(raw: string[]): void {
    this.#trailers = stripTrailers(receivedTrailers(this.#context.strings.share(raw)))
    // With a content-length of 0, the request was passed on without waiting for them.
    if (this.#requestEnded && !this.#over) this.#logDropped(this.#trailers)
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#awaitsContinue = false
    if (this.#requestLeft !== BODY_UNKNOWN && !this.#raw) {
      this.#requestLeft -= chunk.length
      if (this.#requestLeft < 0) {
        this.#refuse(new SallyportError('bad-request', 'body longer than content-length'))
        return
      }
    }
    this.#sink?.requestData(chunk)
  }

  readonly #onEnd = (): void => {
    try {
      this.#requestOver()
    } catch (error) {
      this.threw(error)
    }
  }

  #requestOver(): void {
    // A stream that was reset also ends, and so does one that is dropped after an early answer.
    if (this.#requestEnded || this.#over || (this.#responseEnded && !this.#raw)) return
    if ((this.#stream.rstCode ?? NGHTTP2_NO_ERROR) !== NGHTTP2_NO_ERROR) return
    this.#requestEnded = true
    // A WebSocket is complete once both halves are.
    if (this.#raw && this.#responseEnded) this.#count(false)
    if (this.#requestLeft > 0) this.#refuse(new SallyportError('bad-request', 'body shorter than content-length'))
    else this.#sink?.requestEnd(this.#trailers)
  }

  requestConsumed(bytes: number): void {
    this.#reader.consumed(bytes)
  }

  /** The caller broke the rules in the middle of its body. */
  #refuse(error: SallyportError): void {
    this.#tell(error, !this.#headSent)
    this.responseAbort(error)
  }

  // Response

  /**
   * Nothing more can be sent: everything has been, or the stream is over. Node shows that as `closed`. `destroyed` comes much later
   * while a stream that was reset still has bytes to be read.
   */
  get #mute(): boolean {
    return this.#responseEnded || this.#stream.closed
  }

  responseInformational(status: number, headers: HeaderList): void {
    if (this.#headSent || this.#mute) return
    if (status < 100 || status > 199 || status === 101) return
    if (status === 100) {
      if (!this.#awaitsContinue) return
      this.#awaitsContinue = false
    } else {
      this.#informational ??= new Informational(this.#limits)
      if (!this.#informational.admits(headers)) return
    }
    try {
      this.#stream.additionalHeaders(asObject(outgoingBlock([':status', String(status)], headers)))
      this.#context.gave(headers)
    } catch (error) {
      this.#fail(toSallyportError(error))
    }
  }

  responseHead(response: ResponseHead): void {
    if (this.#headSent || this.#mute) return
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
    const without = method === 'HEAD' || status === 204 || status === 304
    const awaitsTrailers = !this.#raw && !without && this.#mayHaveTrailers(response)
    const none = !this.#raw && (without || (bodyBytes === 0 && !awaitsTrailers))
    if (!this.#raw && status !== 204) this.#putLength(block, response, none && (method === 'HEAD' || status === 304))
    this.#stream.respond(responseBlock(block), { endStream: none, waitForTrailers: awaitsTrailers })
    this.#awaitsTrailers = awaitsTrailers
    if (awaitsTrailers) this.#stream.on('wantTrailers', this.#onWantTrailers)
    this.#headSent = true
    this.#headBytes = textBytes(response.headers)
    this.#status = status
    this.#awaitsContinue = false
    this.#bodiless = none
    this.#responseLeft = none ? 0 : this.#raw ? BODY_UNKNOWN : bodyBytes
    this.#context.gave(response.headers)
    if (this.#raw) this.#readRequest()
  }

  /**
   * Node must know with the head whether trailers may follow. If none do, that costs a frame and a turn. So if the length is known,
   * trailers are sent only if they are announced or the caller said `te: trailers` (RFC 9110 section 6.5.1). A gRPC answer without a
   * body consists only of its head.
   */
  #mayHaveTrailers({ bodyBytes, headers }: ResponseHead): boolean {
    return bodyBytes === BODY_UNKNOWN || (bodyBytes > 0 && this.#takesTrailers) || hasHeader(headers, 'trailer')
  }

  #putLength(block: string[], response: ResponseHead, asSaid: boolean): void {
    const said = getHeader(response.headers, 'content-length')
    if (!asSaid) {
      if (response.bodyBytes !== BODY_UNKNOWN) block.push('content-length', String(response.bodyBytes))
    } else if (said !== undefined && plainNumber(said) !== -1) block.push('content-length', said)
  }

  readonly #onWantTrailers = (): void => {
    try {
      this.#stream.sendTrailers(asObject(outgoingBlock([], this.#responseTrailers)))
      this.#context.gave(this.#responseTrailers)
      this.#awaitsTrailers = false
      if (!this.#requestEnded) this.#onFinish()
    } catch {
      breakStream(this.#stream)
    }
  }

  responseData(chunk: Uint8Array): void {
    if (this.#mute) return
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
    this.#keep(this.#shares * chunk.length)
    this.#writer.write(chunk)
  }

  readonly #sent = (bytes: number): void => {
    this.#context.pieces++
    this.#keep(-this.#shares * bytes)
    this.#sink?.responseConsumed(bytes)
  }

  #keep(bytes: number): void {
    if (this.#over || bytes === 0) return
    this.keptBytes += bytes
    this.#context.keep(bytes)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#mute) return
    if (!this.#headSent || this.#responseLeft > 0) {
      this.#fail(new SallyportError('upstream-broken', 'body shorter than announced'))
      return
    }
    if (this.#awaitsTrailers) this.#responseTrailers = stripTrailers(trailers)
    else this.#logDropped(trailers)
    this.#responseEnded = true
    this.#responseEndedAt = performance.now()
    this.#writer.end()
    if (!this.#raw) this.unwanted()
    // Without a sink, the handler has not returned yet.
    if (!this.#raw || this.#requestEnded) this.#count(this.#status >= 400 || this.#sink === undefined)
  }

  /**
   * The answer is complete before the request (RFC 9113 section 8.1), so the rest of the request is not wanted. The upstream end
   * is notified when the stream ends, since until then it accounts for the part of the answer that waits.
   */
  unwanted(): void {
    if (this.#requestEnded || this.#over || !this.#responseEnded) return
    this.#reader.discard()
    if (this.#awaitsTrailers) return
    if (this.#stream.writableFinished) this.#onFinish()
    else this.#stream.once('finish', this.#onFinish)
  }

  #logDropped(trailers: HeaderList): void {
    if (trailers.length > 0) this.#context.logger.debug({ names: namesOf(trailers) }, 'trailers dropped')
  }

  /** The answer is complete. A handler that bounds bodies pays for those that it passes on, but for nothing else. */
  #count(cheap: boolean): void {
    const { path, headers } = this.request
    const bytes = STREAM_BYTES + path.length + textBytes(headers) + this.#headBytes
    const { waiting } = this.#writer
    this.#unsentBytes = cheap ? bytes + waiting : 0
    this.#context.unsentBytes += this.#unsentBytes
    const shares = cheap || !this.#context.boundsBodies ? 1 : 0
    this.#keep(bytes + textBytes(this.#responseTrailers) + (shares - this.#shares) * waiting)
    this.#shares = shares
  }

  /** nghttp2 sends RST_STREAM before the data that it holds. So the end of the response leaves in this turn, and the reset after it. */
  readonly #onFinish = (): void => {
    setImmediate(Http2ServerExchange.#unwanted, this)
  }

  #cutRequest(): void {
    if (!this.#stream.destroyed) this.#stream.close(NGHTTP2_NO_ERROR)
  }

  responseAbort(error: SallyportError): void {
    if (this.#mute) {
      // Drop the part of the answer that has not left.
      if (this.#writer.waiting > 0) breakStream(this.#stream)
      return
    }
    if (this.#isWhole && error.reason !== 'cancelled') {
      this.responseEnd([])
    } else if (this.#headSent || this.#failed || error.reason === 'cancelled') {
      this.#responseEnded = true
      if (error.reason === 'cancelled') cancelStream(this.#stream)
      else breakStream(this.#stream)
    } else {
      this.#failed = true
      answerProblem(this, this.request, error, this.#context.corsOf?.(this.request))
    }
  }

  /** The response is complete for the caller, whatever its upstream does next. */
  get #isWhole(): boolean {
    return this.#headSent && !this.#awaitsTrailers && this.#responseLeft === 0
  }

  /** Our own end rejected the response, so the upstream is notified as well. */
  #fail(error: SallyportError): void {
    this.#failure = error
    this.#tell(error)
    this.responseAbort(error)
  }

  /**
   * Node destroys the streams next, one by one, with the code of the caller's go-away. If that is CANCEL, a destroyed stream may still
   * be asked for its trailers, and an assertion ends the process. Any other reset leaves first.
   */
  sessionEnds(): void {
    if (this.#awaitsTrailers && this.#stream.writableEnded) this.#stream.close(NGHTTP2_INTERNAL_ERROR)
  }

  /** Drops the answer that the caller does not take. */
  shed(): void {
    this.isShed = true
    this.gone()
    breakStream(this.#stream)
  }

  /** The last call to the upstream end. */
  #tell(error: SallyportError, answered = false): void {
    const sink = this.#sink
    this.#sink = undefined
    sink?.requestAbort(error, answered)
  }

  // Ends and deadlines

  /** Every exchange ends here. Node emits `aborted` for a reset and `close` for any other end. What is shed does not wait for them. */
  readonly gone = (): void => {
    try {
      this.#gone()
    } catch (error) {
      this.threw(error)
    }
  }

  #gone(why = this.isShed ? 'overloaded' : this.#context.why): void {
    if (this.#over) return
    this.#over = true
    const whole = this.#responseEnded && this.#requestEnded
    this.#responseEnded = true
    this.#requestEnded = true
    this.#context.unsentBytes -= this.#unsentBytes
    this.#context.keep(-this.keptBytes)
    this.keptBytes = 0
    this.#writer.drop()
    this.#context.left(this.#writer.givenBytes)
    if (!whole) this.#tell(new SallyportError(why))
    // After RST_STREAM(NO_ERROR), the stream lives until everything that arrived has been read.
    if (!this.#stream.destroyed) this.#reader.discard()
  }

  /** An error in an event handler or a timer resets this stream and no other. */
  threw(error: unknown): void {
    const told = () => this.#tell(toSallyportError(error))
    const broken = () => breakStream(this.#stream)
    // In this order: the end of the stream would tell the upstream that the caller left.
    endFor(error, this.#context.logger, 'an exchange over HTTP/2 failed', told, broken)
  }

  /** Acts on deadlines that have passed. Returns the time until the next one. */
  check(now: number): number {
    try {
      return this.#check(now)
    } catch (error) {
      this.threw(error)
      return Number.POSITIVE_INFINITY
    }
  }

  #check(now: number): number {
    // If our half is already closed, as it is from the start for HEAD, Node does not report such a reset.
    if (this.#stream.closed && !this.#responseEnded) this.#gone()
    return Math.min(this.#checkRead(now), this.#checkWrite(now))
  }

  #checkRead(now: number): number {
    if (this.#requestEnded) return Number.POSITIVE_INFINITY
    if (this.#raw && this.#responseEnded) return this.#checkEnd(now)
    // Once the answer has begun, both directions may be quiet, as on a WebSocket.
    if (this.#responseEnded || this.#headSent || this.request.upgrade) return Number.POSITIVE_INFINITY
    const { bodyIdleMs, expectMs } = this.#limits
    if (this.#reader.full) return bodyIdleMs || Number.POSITIVE_INFINITY
    if (this.#awaitsContinue) {
      const left = timeLeft(this.#since, expectMs, now)
      if (left === 0) this.responseInformational(100, [])
      else if (left !== Number.POSITIVE_INFINITY) return left
    }
    const left = timeLeft(this.#reader.readAt, bodyIdleMs, now)
    if (left > 0) return left
    this.#refuse(new SallyportError('request-timeout'))
    return Number.POSITIVE_INFINITY
  }

  /** Our half of a WebSocket is closed. A caller that has read everything and neither sends nor closes its half is gone. */
  #checkEnd(now: number): number {
    const { stalledMs } = this.#limits
    if (this.#writer.waiting > 0) return stalledMs || Number.POSITIVE_INFINITY
    const since = Math.max(this.#responseEndedAt, this.#writer.progressAt, this.#reader.readAt)
    const left = timeLeft(since, stalledMs, now)
    if (left > 0) return left
    cancelStream(this.#stream)
    return Number.POSITIVE_INFINITY
  }

  #checkWrite(now: number): number {
    const { stalledMs } = this.#limits
    // The end of an answer needs window, too: nghttp2 holds back even an empty DATA. While a WebSocket's caller sends, `#checkEnd` watches.
    const endWaits = this.#responseEndedAt > 0 && (this.#requestEnded || !this.#raw)
    if (this.#writer.waiting === 0 && !endWaits) return stalledMs || Number.POSITIVE_INFINITY
    const left = timeLeft(Math.max(this.#writer.progressAt, this.#responseEndedAt), stalledMs, now)
    if (left > 0) return left
    this.#gone('request-timeout')
    cancelStream(this.#stream)
    return Number.POSITIVE_INFINITY
  }
}

/** The most bytes of a request that no reader sees: its head, and what waits in the session or is dropped with the stream. */
export function unreadBytes({ headBytes, http2WindowBytes }: HttpLimits, bodiless: boolean): number {
  return headBytes + HEAD_OVERHEAD_BYTES + (bodiless ? 0 : 3 * http2WindowBytes)
}

function namesOf(fields: HeaderList): string[] {
  return fields.filter((_, i) => i % 2 === 0)
}
