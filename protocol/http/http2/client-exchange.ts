/** One stream of an upstream HTTP/2 session: writes the request, reads the response. */
import { type ClientHttp2Stream, constants } from 'node:http2'
import { timeLeft, timeUntil } from '../../base/deadline-watch.ts'
import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { type Failing, stepOf } from '../../base/guard.ts'
import { BODY_UNKNOWN, type HeaderList, type RequestSink, type ResponseSink } from '../../exchange.ts'
import { hasHeader, stripTrailers } from '../headers.ts'
import { brokenUpstream, type OutgoingRequest } from '../http1/client-exchange.ts'
import type { HttpLimits } from '../limits.ts'
import { hasEnded, watchEnd } from './end-of-stream.ts'
import { asObject, outgoingBlock, receivedHead, receivedTrailers } from './headers.ts'
import type { HeldPieces } from './held-pieces.ts'
import { breakStream, cancelStream } from './reset.ts'
import { StreamReader, StreamWriter } from './stream-body.ts'

const { NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM, NGHTTP2_REFUSED_STREAM, NGHTTP2_STREAM_STATE_IDLE } = constants

/** The upstream has not started the request (RFC 9113, section 8.7), so it may be sent again whatever its method. */
export class UnprocessedError extends SallyportError {
  constructor(message: string) {
    super('upstream-broken', message)
  }
}

/** How long a reset may wait to be sent. Longer than that, the upstream reads nothing, or Node's session is stuck. */
export const RESET_MS = 1_000

/** The session, as its exchanges see it. */
export interface ExchangeOwner {
  readonly limits: HttpLimits
  readonly held: HeldPieces
  /** The session should accept no more exchanges: one got no answer or could not be sent, or its reset was not sent in time. */
  close(): void
  /** An exchange is about to reset its stream. */
  resets(): void
  /** The exchange's stream is gone. */
  ended(exchange: Http2ClientExchange): void
}

const EXCHANGE = Symbol('exchange')

interface OwnedStream extends ClientHttp2Stream {
  [EXCHANGE]?: Http2ClientExchange
}

type Raw = string[]

/** One listener for all streams, which looks up the exchange by its stream. If it throws, that exchange ends. */
function guarded<A = void, B = void, C = void>(step: (exchange: Http2ClientExchange, a: A, b: B, c: C) => void) {
  return function (this: OwnedStream, a: A, b: B, c: C): void {
    const exchange = this[EXCHANGE]!
    try {
      step(exchange, a, b, c)
    } catch (error) {
      exchange.threw(error)
    }
  }
}

export class Http2ClientExchange implements RequestSink, Failing {
  static readonly #onHeaders = guarded<object, number, Raw>((exchange, _, _flags, raw) => exchange.#informed(raw))
  static readonly #onResponse = guarded<object, number, Raw>((exchange, _, flags, raw) =>
    exchange.#answered(flags, raw),
  )
  static readonly #onTrailers = guarded<object, number, Raw>((exchange, _, _flags, raw) => exchange.#trailed(raw))
  static readonly #onWantTrailers = guarded(exchange => exchange.#sendTrailers())
  static readonly #onEnd = guarded(exchange => exchange.#ended())
  static readonly #onAborted = guarded(exchange => exchange.#reset())
  static readonly #onError = guarded<Error>((exchange, error) => exchange.#failed(error))
  static readonly #onClose = guarded(exchange => exchange.#closed())
  static readonly #closedDue = stepOf<Http2ClientExchange>(exchange => {
    if (!exchange.#mayBeAsked) exchange.#stream.destroy()
  })
  readonly #stream: ClientHttp2Stream
  readonly #request: OutgoingRequest
  readonly #response: ResponseSink
  readonly #owner: ExchangeOwner
  readonly #limits: HttpLimits
  readonly #headTimeoutMs: number
  readonly #reader: StreamReader
  readonly #writer: StreamWriter
  #requestDone: boolean
  #requestLeft: number
  #requestTrailers: HeaderList = []
  #headReceived = false
  #responseDone = false
  #answeredAt = 0
  #responseLeft = BODY_UNKNOWN
  #trailers: HeaderList = []
  #informational = 0
  #awaitsContinue: boolean
  #raw = false
  /** When the stream was reset. `undefined` before. */
  #resetAt: number | undefined
  /** Node has asked for the trailers of the request, or never will. */
  #asked: boolean
  /** We closed the stream before its head left. Node does not tell such a stream from one that is gone. */
  #isUnopened = false
  /** The whole answer has arrived. The stream may be destroyed before it reports this. */
  #settled = false
  /** The part of the body that was read from the stream before the head was passed on. */
  #rest: Buffer | undefined
  #sentAt = performance.now()

  constructor(
    stream: ClientHttp2Stream,
    request: OutgoingRequest,
    response: ResponseSink,
    owner: ExchangeOwner,
    headTimeoutMs: number,
  ) {
    this.#stream = stream
    this.#request = request
    this.#response = response
    this.#owner = owner
    this.#limits = owner.limits
    this.#headTimeoutMs = headTimeoutMs
    watchEnd(stream)
    this.#reader = new StreamReader(stream, owner.limits.bufferBytes, this)
    this.#writer = new StreamWriter(stream, this.#sent, this, owner.held)
    this.#requestLeft = request.bodyBytes
    this.#requestDone = request.bodyBytes === 0 && !request.upgrade
    this.#awaitsContinue = request.bodyBytes !== 0 && hasHeader(request.headers, 'expect')
    this.#asked = request.bodyBytes === 0 || request.upgrade
    if (!this.#asked) this.#outliveTrailers()
    const owned: OwnedStream = stream
    owned[EXCHANGE] = this
    stream.on('headers', Http2ClientExchange.#onHeaders)
    stream.on('response', Http2ClientExchange.#onResponse)
    stream.on('trailers', Http2ClientExchange.#onTrailers)
    stream.on('wantTrailers', Http2ClientExchange.#onWantTrailers)
    stream.on('end', Http2ClientExchange.#onEnd)
    stream.on('aborted', Http2ClientExchange.#onAborted)
    stream.on('error', Http2ClientExchange.#onError)
    stream.on('close', Http2ClientExchange.#onClose)
  }

  get awaitsContinue(): boolean {
    return this.#awaitsContinue
  }

  get lostBytes(): number {
    return this.#writer.lostBytes
  }

  // Request

  requestData(chunk: Uint8Array): void {
    if (this.#requestDone || this.#stream.destroyed || (this.#request.upgrade && !this.#raw)) {
      this.#response.requestConsumed(chunk.length)
      return
    }
    this.#awaitsContinue = false
    this.#sentAt = performance.now()
    if (this.#requestLeft !== BODY_UNKNOWN && !this.#raw) {
      this.#requestLeft -= chunk.length
      if (this.#requestLeft < 0) {
        this.#broken(new SallyportError('bad-request', 'body longer than announced'))
        return
      }
    }
    this.#writer.write(chunk)
  }

  readonly #sent = (bytes: number): void => {
    this.#response.requestConsumed(bytes)
  }

  requestEnd(trailers: HeaderList): void {
    if (this.#requestDone || (this.#request.upgrade && !this.#raw)) return
    this.#requestDone = true
    this.#sentAt = performance.now()
    if (this.#requestLeft > 0) {
      this.#broken(new SallyportError('bad-request', 'body shorter than announced'))
      return
    }
    this.#requestTrailers = stripTrailers(trailers)
    if (!this.#stream.destroyed) this.#writer.end()
  }

  #sendTrailers(): void {
    this.#asked = true
    try {
      this.#stream.sendTrailers(asObject(outgoingBlock([], this.#requestTrailers)))
    } catch {
      this.#owner.resets()
      breakStream(this.#stream)
    }
  }

  requestAbort(_error: SallyportError): void {
    this.#requestDone = true
    this.#responseDone = true
    this.#cancel()
  }

  // Response

  #informed(raw: Raw): void {
    if (this.#headReceived || this.#responseDone) return
    try {
      const head = receivedHead(raw)
      const status = Number(head.pseudo[':status'])
      if (++this.#informational > this.#limits.informational) throw brokenUpstream('too many informational responses')
      if (status === 100) {
        if (!this.#awaitsContinue) return
        this.#awaitsContinue = false
      }
      this.#response.responseInformational(status, head.headers)
    } catch (error) {
      this.#broken(asUpstreamFault(error))
    }
  }

  #answered(flags: number, raw: Raw): void {
    if (this.#responseDone) return
    try {
      this.#head(raw, (flags & NGHTTP2_FLAG_END_STREAM) !== 0)
    } catch (error) {
      this.#broken(asUpstreamFault(error))
    }
  }

  #head(raw: string[], ended: boolean): void {
    const head = receivedHead(raw)
    let status = Number(head.pseudo[':status'])
    const { headBytes, headFields } = this.#limits
    if (head.bytes > headBytes || head.count > headFields + 1) throw brokenUpstream('head too large')
    if (!(status >= 200 && status <= 599)) throw brokenUpstream(`status ${status}`)
    this.#headReceived = true
    const none = ended || this.#request.method === 'HEAD' || status === 204 || status === 304
    if (this.#request.upgrade && status === 200) {
      this.#raw = true
      status = 101
    } else if (!none) {
      this.#responseLeft = head.contentLength
    } else if (this.#request.method !== 'HEAD' && status !== 304 && status !== 204) {
      if (head.contentLength > 0) throw brokenUpstream('content-length without a body')
      // There is no body at all (a trailers-only answer of gRPC). Every later hop can carry it as a head with length 0.
      if (head.contentLength === BODY_UNKNOWN) head.headers.push('content-length', '0')
    }
    if (this.#awaitsContinue) {
      // The final answer came instead of the 100, so the upstream does not want the body.
      this.#awaitsContinue = false
      this.#requestDone = true
    }
    const bodyBytes = none || this.#raw ? 0 : head.contentLength
    this.#response.responseHead({ status, headers: head.headers, bodyBytes })
    if (this.#responseDone) return
    // Nothing can follow. A reset after a whole response does it no harm.
    if (ended) this.#finish()
    else if (this.#rest !== undefined) this.#onData(this.#rest)
    else this.#reader.start(this.#onData)
  }

  readonly #onData = (chunk: Buffer): void => {
    try {
      this.#data(chunk)
    } catch (error) {
      this.threw(error)
    }
  }

  #data(chunk: Buffer): void {
    if (this.#responseDone) return
    if (this.#responseLeft !== BODY_UNKNOWN) {
      this.#responseLeft -= chunk.length
      if (this.#responseLeft < 0) {
        this.#broken(brokenUpstream('body longer than announced'))
        return
      }
    }
    this.#response.responseData(chunk)
  }

  #trailed(raw: Raw): void {
    this.#trailers = stripTrailers(receivedTrailers(raw))
    if (this.#stream.readableLength === 0) this.#ended()
  }

  #ended(): void {
    if (this.#responseDone) return
    if (!this.#headReceived || !hasEnded(this.#stream)) this.#broken(brokenUpstream('the answer broke off'))
    else if (this.#responseLeft > 0) this.#broken(brokenUpstream('body shorter than announced'))
    else this.#finish()
  }

  #finish(): void {
    const unsent = !this.#stream.writableEnded || this.#writer.waiting > 0
    this.#responseDone = true
    this.#answeredAt = performance.now()
    this.#response.responseEnd(this.#trailers)
    if (!unsent || this.#raw) return
    // The rest of the request is discarded.
    this.#requestDone = true
    this.#cancel()
  }

  responseConsumed(bytes: number): void {
    this.#reader.consumed(bytes)
  }

  // Ends and deadlines

  /** The upstream has reset the stream, and accepts no more of the request. */
  #reset(): void {
    this.#requestDone = true
    this.#writer.drop()
    if (hasEnded(this.#stream)) this.#takeOut()
  }

  /** The session is about to end. Its streams end with it, and so does everything that waits in them. */
  settle(error: SallyportError): void {
    if (!hasEnded(this.#stream)) this.#broken(error)
    else {
      this.#takeOut()
      this.#cancel()
    }
  }

  /** Saves the rest of a complete answer, whatever becomes of its stream. At most one window of it waits. */
  #takeOut(): void {
    if (this.#responseDone || this.#settled) return
    this.#settled = true
    const rest: Buffer | null = this.#stream.read()
    // Otherwise the reader has it already.
    if (!this.#headReceived) this.#rest = rest ?? undefined
  }

  #failed(error: Error): void {
    if (!this.#settled)
      this.#broken(this.#refused ?? new SallyportError('upstream-broken', error.message, { cause: error }))
  }

  #closed(): void {
    this.#owner.ended(this)
    this.#writer.drop()
    if (this.#settled) this.#ended()
    this.#broken(this.#refused ?? brokenUpstream(`the upstream reset the stream (${this.#stream.rstCode})`))
  }

  /** Node also uses this code to close the streams after the last one that a go-away names. */
  get #refused(): UnprocessedError | undefined {
    if (this.#stream.rstCode !== NGHTTP2_REFUSED_STREAM) return undefined
    return new UnprocessedError('the upstream refused the stream')
  }

  #cancel(): void {
    if (this.#stream.destroyed || this.#resetAt !== undefined) return
    this.#resetAt = performance.now()
    this.#owner.resets()
    this.#reader.discard()
    cancelStream(this.#stream)
  }

  /**
   * Node asks a stream for trailers after its last data, even if the stream was destroyed in the meantime. Then an assertion ends the
   * process, and an upstream can provoke that. So a stream that may still be asked, even if its head has not left yet, is reset, and
   * destroyed once nghttp2 has closed it.
   */
  #outliveTrailers(): void {
    const stream = this.#stream
    const destroy = stream.destroy.bind(stream)
    let first: Error | undefined
    stream.destroy = error => {
      try {
        first ??= error
        return this.#closesFirst() ? stream : destroy(first)
      } catch (thrown) {
        return destroy(toSallyportError(thrown))
      }
    }
  }

  #closesFirst(): boolean {
    const stream = this.#stream
    if (!this.#mayBeAsked) return false
    const isIdle = stream.state.state === NGHTTP2_STREAM_STATE_IDLE
    if (!stream.closed) {
      this.#isUnopened = isIdle
      stream.close(NGHTTP2_CANCEL)
      return true
    }
    // Node destroys it while closing it. One turn later that is done.
    if (!isIdle) this.#isUnopened = false
    setImmediate(Http2ClientExchange.#closedDue, this)
    return true
  }

  get #mayBeAsked(): boolean {
    const stream = this.#stream
    if (this.#asked || !stream.writableEnded || stream.session?.destroyed !== false) return false
    return !stream.closed || this.#isUnopened || stream.state.state !== NGHTTP2_STREAM_STATE_IDLE
  }

  /** Called when our own code or that of the downstream end is at fault. */
  threw(error: unknown): void {
    this.#broken(toSallyportError(error))
  }

  #broken(error: SallyportError): void {
    const over = this.#responseDone
    this.#requestDone = true
    this.#responseDone = true
    this.#cancel()
    if (!over) this.#response.responseAbort(error)
  }

  /** Acts on deadlines that have passed. Returns the time until the next one. */
  check(now: number): number {
    return Math.min(this.#checkHead(now), this.#checkWrite(now), this.#checkReset(now))
  }

  /** Its reset was not sent in time. Nobody waits for anything of it any more. */
  get isStuck(): boolean {
    return this.#resetAt === Number.POSITIVE_INFINITY
  }

  #checkReset(now: number): number {
    if (this.#resetAt === undefined) return Number.POSITIVE_INFINITY
    const left = timeUntil(this.#resetAt + RESET_MS, now)
    if (left > 0) return left
    this.#resetAt = Number.POSITIVE_INFINITY
    this.#owner.close()
    return Number.POSITIVE_INFINITY
  }

  #checkHead(now: number): number {
    if (this.#headReceived || this.#responseDone) return Number.POSITIVE_INFINITY
    if (this.#awaitsContinue) {
      const left = timeUntil(this.#sentAt + this.#limits.expectMs, now)
      if (left > 0) return left
      this.#awaitsContinue = false
      this.#response.responseInformational(100, [])
    }
    if (this.#headTimeoutMs === 0) return Number.POSITIVE_INFINITY
    // While a request body is being sent, its upstream may take as long as it needs.
    const sends = !this.#requestDone || this.#writer.waiting > 0
    if (sends && !this.#request.upgrade) return this.#headTimeoutMs
    const left = timeLeft(Math.max(this.#sentAt, this.#writer.progressAt), this.#headTimeoutMs, now)
    if (left > 0) return left
    this.#owner.close()
    this.#broken(new SallyportError('upstream-timeout', 'no response head in time'))
    return Number.POSITIVE_INFINITY
  }

  #checkWrite(now: number): number {
    if (this.#limits.stalledMs === 0) return Number.POSITIVE_INFINITY
    // The end of a request needs window, too: nghttp2 holds back even an empty DATA. If the answer is over, nothing else watches it.
    const endWaits = this.#responseDone && this.#writer.ended
    if (this.#writer.waiting === 0 && !endWaits) return this.#limits.stalledMs
    const since = Math.max(this.#writer.progressAt, this.#answeredAt)
    const left = timeLeft(since, this.#limits.stalledMs, now)
    if (left > 0) return left
    // Its session's window may be what is missing.
    if (!this.#responseDone) this.#owner.close()
    this.#broken(new SallyportError('upstream-timeout', 'the upstream stopped reading'))
    return Number.POSITIVE_INFINITY
  }
}

/** Any fault in a response is the upstream's. */
function asUpstreamFault(error: unknown): SallyportError {
  const ours = toSallyportError(error)
  return ours.reason === 'bad-request' ? new SallyportError('upstream-broken', ours.message, { cause: ours }) : ours
}
