/** One request on a downstream connection, as the upstream end sees it. It writes the response. */
import { type ErrorCode, SallyportError, toSallyportError } from '../../base/errors.ts'
import {
  BODY_UNKNOWN,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from '../../exchange.ts'
import { hasHeader, stripResponseTrailers } from '../headers.ts'
import { Informational } from '../informational.ts'
import type { HttpLimits } from '../limits.ts'
import { answerProblem, type CorsPolicy } from '../problem.ts'
import { CONNECTION, FRAMING, fieldLines, lastChunk, responseHead, statusLine } from './encode.ts'
import type { RequestHead } from './request-head.ts'
import type { BodyOwner } from './socket-writer.ts'
import type { Unended } from './unended.ts'
import { webSocketAccept } from './websocket.ts'

/** What the exchange needs from its connection. */
export interface ServerWire {
  text(text: string): void
  body(chunk: Uint8Array, owner: BodyOwner): void
  /** A piece of a body in chunks. */
  chunk(piece: Uint8Array, owner: BodyOwner): void
  date(): string
  /** Which pages may read an answer of our own. */
  corsOf(request: HttpRequest): CorsPolicy | undefined
  /** Whether the connection can serve another request after this response. Asked once, at the head. */
  mayKeepAlive(exchange: ServerExchange, status: number): boolean
  requestConsumed(exchange: ServerExchange, bytes: number): void
  upgraded(exchange: ServerExchange): void
  responseEnded(exchange: ServerExchange): void
  /** All of the response has left, but its upstream end has not said so yet. */
  delivered(exchange: ServerExchange): void
  /** The upstream end of a response that ended before has ended, too. */
  over(exchange: ServerExchange): void
  /** An upgraded response has ended, so what the caller still sends is discarded. */
  unwanted(exchange: ServerExchange): void
  /** Only the close of the connection will end the response. */
  endsByClose(): void
  /** Cuts the response off so that the caller cannot mistake it for complete. */
  cut(exchange: ServerExchange): void
  /** Drops everything that waits to be written, and the connection with it. An exchange behind this one ends with `why`. */
  drop(why: ErrorCode): void
}

export class ServerExchange implements ResponseSink, BodyOwner, Unended {
  readonly asked: RequestHead
  sink: RequestSink | undefined
  headSent = false
  ended = false
  keepAlive = false
  /** Set if it has failed at our own end. The handler may not have returned yet. */
  failure: SallyportError | undefined
  /** An error is being answered. Another error during that answer cuts the connection. */
  #failed = false
  /** Bytes of its request that wait at the upstream end: its head, its trailers, and what was not consumed of its body. */
  heldBytes = 0
  /** The caller still waits for a 100. */
  awaitsContinue: boolean
  #wire: ServerWire
  #framing: number = FRAMING.none
  #left = 0
  #informational: Informational | undefined
  #raw = false
  /** Bytes of the body that have not left. */
  unsent = 0
  readonly #limits: HttpLimits

  constructor(wire: ServerWire, head: RequestHead, limits: HttpLimits) {
    this.#wire = wire
    this.asked = head
    this.awaitsContinue = head.expectsContinue
    this.#limits = limits
  }

  responseInformational(status: number, headers: HeaderList): void {
    if (this.ended || this.headSent || this.asked.http10 || status < 100 || status > 199 || status === 101) return
    if (status === 100) {
      if (!this.awaitsContinue) return
      this.awaitsContinue = false
    } else {
      this.#informational ??= new Informational(this.#limits)
      if (!this.#informational.admits(headers)) return
    }
    try {
      this.#wire.text(`${statusLine(status)}${fieldLines(headers, FRAMING.forbidden, 0)}\r\n\r\n`)
    } catch (error) {
      this.#fail(toSallyportError(error))
    }
  }

  responseHead(response: ResponseHead): void {
    if (this.ended || this.headSent) return
    try {
      if (response.status === 101) this.#upgrade(response)
      else this.#head(response)
    } catch (error) {
      this.#fail(toSallyportError(error))
    }
  }

  #head(response: ResponseHead): void {
    const { status } = response
    if (!(status >= 200 && status <= 599)) throw new SallyportError('upstream-broken', `status ${status}`)
    this.#framing = this.#framingOf(response)
    const mayKeepAlive = this.#framing !== FRAMING.close && this.#wire.mayKeepAlive(this, status)
    const connection = !mayKeepAlive ? CONNECTION.close : this.asked.http10 ? CONNECTION.keepAlive : CONNECTION.unsaid
    const date = hasHeader(response.headers, 'date') ? '' : this.#wire.date()
    const text = responseHead(response, this.#framing, connection, date)
    if (this.#framing === FRAMING.close) this.#wire.endsByClose()
    this.keepAlive = mayKeepAlive
    this.headSent = true
    this.awaitsContinue = false
    this.#left = response.bodyBytes
    this.#wire.text(text)
    if (this.delivered) this.#wire.delivered(this)
  }

  #framingOf(response: ResponseHead): number {
    if (response.status === 204) return FRAMING.forbidden
    if (this.asked.request.method === 'HEAD' || response.status === 304) return FRAMING.none
    if (response.bodyBytes !== BODY_UNKNOWN) return FRAMING.length
    return this.asked.http10 ? FRAMING.close : FRAMING.chunked
  }

  #upgrade(response: ResponseHead): void {
    const key = this.asked.webSocketKey
    if (key === undefined) throw new SallyportError('upstream-broken', '101 to a request that asked for no upgrade')
    const fields = fieldLines(response.headers, FRAMING.forbidden, 0)
    const accept = webSocketAccept(key)
    this.#wire.text(
      `${statusLine(101)}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${accept}${fields}\r\n\r\n`,
    )
    this.headSent = true
    this.#raw = true
    this.#wire.upgraded(this)
  }

  responseData(chunk: Uint8Array): void {
    // An empty chunk would end the body.
    if (this.ended || chunk.length === 0) return
    if (!this.headSent) {
      this.#fail(new SallyportError('internal', 'body before head'))
    } else if (this.#raw) {
      this.#body(chunk)
    } else if (this.#framing === FRAMING.length) {
      this.#left -= chunk.length
      if (this.#left < 0) this.#fail(new SallyportError('upstream-broken', 'body longer than announced'))
      else this.#body(chunk)
    } else if (this.#framing === FRAMING.chunked) {
      this.unsent += chunk.length
      this.#wire.chunk(chunk, this)
    } else if (this.#framing === FRAMING.close) {
      this.#body(chunk)
    } else {
      this.sink?.responseConsumed(chunk.length)
    }
  }

  #body(chunk: Uint8Array): void {
    this.unsent += chunk.length
    this.#wire.body(chunk, this)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.ended) {
      this.#wire.over(this)
      return
    }
    try {
      this.#finish(trailers)
    } catch (error) {
      this.#fail(toSallyportError(error))
      return
    }
    this.ended = true
    this.#wire.responseEnded(this)
  }

  #finish(trailers: HeaderList): void {
    if (!this.headSent) throw new SallyportError('upstream-broken', 'no head')
    if (this.#framing === FRAMING.length && this.#left > 0) {
      throw new SallyportError('upstream-broken', 'body shorter than announced')
    }
    if (this.#framing === FRAMING.chunked) this.#wire.text(lastChunk(stripResponseTrailers(trailers)))
  }

  unwanted(): void {
    if (this.ended) this.#wire.unwanted(this)
  }

  responseAbort(error: SallyportError): void {
    if (this.ended) {
      this.#wire.over(this)
      if (this.unsent > 0) this.#wire.drop(error.reason)
      return
    }
    if (this.#whole && error.reason !== 'cancelled') {
      this.responseEnd([])
    } else if (this.headSent || this.#failed || error.reason === 'cancelled') {
      this.ended = true
      this.#wire.cut(this)
    } else {
      this.#failed = true
      const { request } = this.asked
      answerProblem(this, request, error, this.#wire.corsOf(request))
    }
  }

  /** The response is complete for the caller, whatever its upstream does next. After HEAD, a 204 or a 304, the head is all of it. */
  get #whole(): boolean {
    if (!this.headSent || this.#raw) return false
    if (this.#framing === FRAMING.length) return this.#left === 0
    return this.#framing === FRAMING.none || this.#framing === FRAMING.forbidden
  }

  /** The caller needs nothing more, although the upstream end has not said that the response is complete. */
  get delivered(): boolean {
    return !this.ended && this.unsent === 0 && this.#whole
  }

  /** Our own end found a fault in the response, so the upstream is notified as well. */
  #fail(error: SallyportError): void {
    const sink = this.takeSink()
    this.failure = error
    this.responseAbort(error)
    sink?.requestAbort(error)
  }

  /** Returns the sink for its last call. The exchange makes no more calls to it. */
  takeSink(): RequestSink | undefined {
    const { sink } = this
    this.sink = undefined
    return sink
  }

  requestConsumed(bytes: number): void {
    this.heldBytes -= bytes
    this.#wire.requestConsumed(this, bytes)
  }

  sent(bytes: number): void {
    this.unsent -= bytes
    this.sink?.responseConsumed(bytes)
    if (this.delivered) this.#wire.delivered(this)
  }
}
