/** One stream of an upstream HTTP/2 session: writes the request, reads the response. */
import { timeLeft, timeUntil } from '../../base/deadline-watch.ts'
import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { BODY_UNKNOWN, type HeaderList, type RequestSink, type ResponseSink } from '../../exchange.ts'
import { hasHeader, stripRequestTrailers, stripResponseTrailers } from '../headers.ts'
import { brokenUpstream, type OutgoingRequest, refusesRest } from '../http1/client-exchange.ts'
import type { HttpLimits } from '../limits.ts'
import { CODE } from './frames.ts'
import { MalformedError, outgoingBlock, type ReceivedHead, receivedHead, receivedTrailers } from './headers.ts'
import type { Http2Stream, Http2StreamOwner } from './stream.ts'

const STATUS = /^[1-5][0-9]{2}$/

/** The upstream has not started the request (RFC 9113, section 8.7), so it may be sent again whatever its method. */
export class UnprocessedError extends SallyportError {
  constructor(message: string) {
    super('upstream-broken', message)
  }
}

/** The session, as its exchanges see it. */
export interface ExchangeOwner {
  readonly limits: HttpLimits
  /** The session should accept no more exchanges: one got no answer or could not be sent. */
  close(): void
  /** An exchange is about to reset its stream. */
  resets(): void
  /** Why a stream was lost with this code. */
  lossOf(code: number): SallyportError
}

export class Http2ClientExchange implements RequestSink, Http2StreamOwner {
  readonly #stream: Http2Stream
  readonly #request: OutgoingRequest
  readonly #response: ResponseSink
  readonly #owner: ExchangeOwner
  readonly #limits: HttpLimits
  readonly #headTimeoutMs: number
  #requestDone: boolean
  #requestLeft: number
  #headReceived = false
  #responseDone = false
  #responseLeft = BODY_UNKNOWN
  #trailers: HeaderList = []
  #informational = 0
  #awaitsContinue: boolean
  #raw = false
  #sentAt = performance.now()

  constructor(
    stream: Http2Stream,
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
    this.#requestLeft = request.bodyBytes
    this.#requestDone = request.bodyBytes === 0 && !request.upgrade
    this.#awaitsContinue = request.bodyBytes !== 0 && hasHeader(request.headers, 'expect')
    stream.owner = this
    stream.start()
  }

  get awaitsContinue(): boolean {
    return this.#awaitsContinue
  }

  // Request

  requestData(chunk: Uint8Array): void {
    if (this.#requestDone || this.#stream.closed || (this.#request.upgrade && !this.#raw)) {
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
    this.#stream.sendData(chunk)
  }

  sent(bytes: number): void {
    this.#response.requestConsumed(bytes)
  }

  requestEnd(trailers: HeaderList): void {
    if (this.#requestDone || this.#stream.closed || (this.#request.upgrade && !this.#raw)) return
    this.#requestDone = true
    this.#sentAt = performance.now()
    if (this.#requestLeft > 0) this.#broken(new SallyportError('bad-request', 'body shorter than announced'))
    else {
      try {
        this.#stream.end(this.#raw ? [] : outgoingBlock([], stripRequestTrailers(trailers)))
      } catch (error) {
        this.#broken(toSallyportError(error))
      }
    }
  }

  finished(): void {}

  kept(): void {}

  requestAbort(_error: SallyportError): void {
    this.#requestDone = true
    this.#responseDone = true
    this.#cancel()
  }

  // Response

  fields(block: string[], last: boolean): void {
    if (this.#responseDone) return
    if (this.#headReceived) {
      if (!last || this.#raw) throw new MalformedError('a second head')
      this.#trailers = stripResponseTrailers(receivedTrailers(block))
      return
    }
    const head = receivedHead(block, false)
    const text = head.pseudo[':status'] ?? ''
    if (!STATUS.test(text)) throw new MalformedError(`status ${JSON.stringify(text.slice(0, 8))}`)
    const status = Number(text)
    if (status >= 200) this.#head(head, status, last)
    else if (last || status === 101) throw new MalformedError(`status ${status}`)
    else this.#informed(head, status)
  }

  overlong(): void {
    this.threw(brokenUpstream(this.#headReceived ? 'trailers too large' : 'head too large'))
  }

  #informed({ headers }: ReceivedHead, status: number): void {
    if (++this.#informational > this.#limits.informational) throw brokenUpstream('too many informational responses')
    if (status === 100) {
      if (!this.#awaitsContinue) return
      this.#awaitsContinue = false
    }
    this.#response.responseInformational(status, headers)
  }

  #head(head: ReceivedHead, status: number, ended: boolean): void {
    this.#headReceived = true
    const isBodiless = this.#request.method === 'HEAD' || status === 204 || status === 304
    this.#raw = this.#request.upgrade && status === 200
    if (this.#raw) this.#responseLeft = BODY_UNKNOWN
    else if (isBodiless) this.#responseLeft = 0
    else if (!ended) this.#responseLeft = head.contentLength
    else {
      if (head.contentLength > 0) throw new MalformedError('content-length without a body')
      // There is no body at all (a trailers-only answer of gRPC). Every later hop can carry it as a head with length 0.
      if (head.contentLength === BODY_UNKNOWN) head.headers.push('content-length', '0')
      this.#responseLeft = 0
    }
    if (this.#awaitsContinue) {
      // No 100, as over HTTP/1.1: the next hop may be one that loses its answer if the body comes.
      this.#awaitsContinue = false
      if (refusesRest(status, this.#responseLeft)) this.#requestDone = true
    }
    const bodyBytes = this.#raw ? 0 : this.#responseLeft
    this.#response.responseHead({ status: this.#raw ? 101 : status, headers: head.headers, bodyBytes })
  }

  data(chunk: Uint8Array): void {
    if (this.#responseDone) return
    if (!this.#headReceived) throw new MalformedError('a body before its head')
    if (this.#responseLeft !== BODY_UNKNOWN) {
      this.#responseLeft -= chunk.length
      if (this.#responseLeft < 0) throw new MalformedError('body longer than announced')
    }
    this.#response.responseData(chunk)
  }

  ended(): void {
    if (this.#responseDone) return
    if (!this.#headReceived) throw new MalformedError('the answer broke off')
    if (this.#responseLeft > 0) throw new MalformedError('body shorter than announced')
    this.#responseDone = true
    this.#response.responseEnd(this.#trailers)
    if (this.#raw) return
    // The rest of the request is discarded.
    this.#requestDone = true
    this.#cancel()
  }

  responseConsumed(bytes: number): void {
    this.#stream.consumed(bytes)
  }

  // Ends and deadlines

  /** If the answer was complete, the rest of it is still passed on. */
  lost(code: number, fault?: string): void {
    this.#requestDone = true
    if (this.#stream.remoteEnded) return
    this.#broken(fault === undefined ? this.#owner.lossOf(code) : brokenUpstream(`HTTP/2: ${fault}`))
  }

  #cancel(code: number = CODE.cancel): void {
    if (!this.#stream.closed) this.#owner.resets()
    this.#stream.reset(code)
  }

  /** The upstream, our own code or that of the downstream end is at fault. */
  threw(error: unknown): void {
    const ours = toSallyportError(error)
    // Any fault in a response is the upstream's.
    const isTheirs = ours.reason === 'bad-request'
    const code = ours instanceof MalformedError ? CODE.protocol : CODE.cancel
    this.#broken(isTheirs ? new SallyportError('upstream-broken', ours.message, { cause: ours }) : ours, code)
  }

  #broken(error: SallyportError, code: number = CODE.cancel): void {
    const over = this.#responseDone
    this.#requestDone = true
    this.#responseDone = true
    this.#cancel(code)
    if (!over) this.#response.responseAbort(error)
  }

  /** Acts on deadlines that have passed. Returns the time until the next one. */
  check(now: number): number {
    return Math.min(this.#checkHead(now), this.#checkWrite(now))
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
    const sends = !this.#requestDone || this.#stream.waiting > 0
    if (sends && !this.#request.upgrade) return this.#headTimeoutMs
    const left = timeLeft(Math.max(this.#sentAt, this.#stream.progressAt), this.#headTimeoutMs, now)
    if (left > 0) return left
    this.#owner.close()
    this.#broken(new SallyportError('upstream-timeout', 'no response head in time'))
    return Number.POSITIVE_INFINITY
  }

  /** The upstream grants no window. If it does not read the connection either, the session watches that. */
  #checkWrite(now: number): number {
    const { stalledMs } = this.#limits
    if (!this.#stream.isStalled) return stalledMs || Number.POSITIVE_INFINITY
    const left = timeLeft(this.#stream.progressAt, stalledMs, now)
    if (left > 0) return left
    // Its session's window may be what is missing.
    if (!this.#responseDone) this.#owner.close()
    this.#broken(new SallyportError('upstream-timeout', 'the upstream stopped reading'))
    return Number.POSITIVE_INFINITY
  }
}
