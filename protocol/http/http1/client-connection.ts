/**
 * An upstream HTTP/1.1 connection: one exchange at a time, with responses parsed strictly. If an upstream breaks the rules, the
 * exchange ends as `upstream-broken`, and so does the connection. Bytes that belong to no request end it too.
 */

import type { Buffer } from 'node:buffer'
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import { ByteCache } from '../../base/byte-cache.ts'
import { DeadlineWatch, due, timeLeft, timeUntil } from '../../base/deadline-watch.ts'
import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { endFor, type Failing, guardWith } from '../../base/guard.ts'
import { noLogger } from '../../base/log.ts'
import { hangUp, resetSocket } from '../../base/reset-socket.ts'
import { isFalseEnd } from '../../base/tcp.ts'
import { BODY_UNKNOWN, type HeaderList, type RequestSink, type ResponseSink } from '../../exchange.ts'
import { listTokens } from '../headers.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import { BodyReader, type BodyReceiver } from './body-reader.ts'
import {
  brokenUpstream,
  ClientExchange,
  type ClientWire,
  HEAD_TIMEOUT_MS,
  type OutgoingRequest,
  refusesRest,
  type SendOptions,
} from './client-exchange.ts'
import { outliveFailedWrites } from './failed-writes.ts'
import type { Head } from './head-parser.ts'
import { HeadReader } from './head-reader.ts'
import { Intake, type IntakeOwner } from './intake.ts'
import { SocketReader } from './socket-reader.ts'
import { type BodyOwner, SocketWriter, type WriterOwner } from './socket-writer.ts'
import { webSocketAccept } from './websocket.ts'
import { lookMs, WriteProgress } from './write-progress.ts'

interface Http1ClientOptions {
  limits?: Partial<HttpLimits> | undefined
  /** Shared by the connections of a pool. */
  reader?: SocketReader | undefined
  /** Heads of earlier responses, shared by the connections of a pool. */
  heads?: ByteCache<Head> | undefined
  /** Called when an exchange has ended and the connection is ready for another. */
  onIdle?: ((connection: Http1ClientConnection) => void) | undefined
  /** Called once, when the connection can carry no more exchanges and its socket is closed or closing. */
  onClose?: ((connection: Http1ClientConnection) => void) | undefined
  /** Called if the kernel keeps the local port for a minute, since we have ended the connection before its upstream did, and without a reset. */
  onPortKept?: (() => void) | undefined
}

/** Allows for an upstream that closes slightly earlier than it announced. */
export const KEEP_ALIVE_MARGIN_MS = 1_000

/** How long an upstream may take to end a connection as it has said. The local port is then kept by its kernel, and not by ours. */
const ENDING_MS = 1_000

/** Bodies until close and bytes after the last response need no state of their own: in `idle`, no bytes are accepted. */
type State = 'idle' | 'head' | 'body' | 'raw' | 'ending' | 'closed'

export class Http1ClientConnection implements ClientWire, BodyReceiver, IntakeOwner, WriterOwner, Failing {
  /** How many exchanges have been started on it. */
  exchanges = 0
  /** Whether any byte of the response to the last request has arrived. */
  responseStarted = false
  /** How long the upstream keeps an idle connection open, if its last response said so (`Keep-Alive: timeout`). */
  keepAliveMs: number | undefined
  /** Set by `rest`: when the upstream might be about to close the connection. */
  idleUntil = 0
  readonly #socket: Duplex
  readonly #options: Http1ClientOptions
  readonly #limits: HttpLimits
  readonly #writer: SocketWriter
  readonly #heads: HeadReader
  readonly #body: BodyReader
  readonly #watch: DeadlineWatch
  readonly #intake: Intake
  #state: State = 'idle'
  #exchange: ClientExchange | undefined
  /** The upstream allows another exchange after this one. */
  #keepAlive = true
  /** The upstream has said that it ends the connection behind its answer. */
  #endsItself = false
  #ended = false
  #keepsPort = false
  /** Set from the first body on. A head without a body is written before anybody can have answered it. */
  #outlivesFailedWrites = false
  /** The peer accepts no more bytes. What it sent before is still read. */
  #writeFailed: SallyportError | undefined
  #sentAt = 0
  readonly #progress = new WriteProgress()
  /** The kernel may still hold some of a body, or of a WebSocket, for an upstream that reads late. A reset would drop it. */
  #mayOwe = false
  /** The same, of a body that belongs to an earlier exchange. */
  #mayOweEarlier = false

  /** `socket` is connected and, for TLS, verified. The connection owns it from now on. */
  constructor(socket: Duplex, options: Http1ClientOptions = {}) {
    this.#socket = socket
    this.#options = options
    this.#limits = { ...DEFAULT_HTTP_LIMITS, ...options.limits }
    this.#intake = new Intake(socket, this.#limits.bufferBytes, this)
    this.#writer = new SocketWriter(socket, this)
    this.#heads = new HeadReader(this.#limits, true, options.heads ?? new ByteCache())
    this.#body = new BodyReader(this, this.#limits, 'upstream-broken')
    this.#watch = new DeadlineWatch(now => this.#check(now), this)
    const guard = guardWith(error => this.threw(error))
    socket.on('end', guard(this.#onEnd))
    socket.on('error', guard(this.#onError))
    socket.on('close', guard(this.#onClose))
    const reader = options.reader ?? new SocketReader()
    reader.read(socket, this.#onRead, this)
  }

  /** Whether `send` may be called. */
  get idle(): boolean {
    return this.#state === 'idle' && !this.#socket.destroyed
  }

  /** Waits up to `mostMs` for another exchange, or less if the upstream said so. Returns false if the connection is no longer usable. */
  rest(mostMs: number): boolean {
    const told = this.keepAliveMs
    const ms = told === undefined ? mostMs : Math.min(mostMs, told - KEEP_ALIVE_MARGIN_MS)
    this.idleUntil = performance.now() + ms
    return ms > 0
  }

  /** Whether it is idle and its upstream is not about to close it. */
  fresh(now: number): boolean {
    return this.idle && now < this.idleUntil
  }

  /** Whether another exchange may follow the one in progress. */
  get reusable(): boolean {
    return this.#keepAlive && this.#state !== 'closed' && this.#state !== 'raw' && !this.#socket.destroyed
  }

  /** Sends a request whose headers are final. May be called only while `idle`. */
  send(request: OutgoingRequest, response: ResponseSink, options: SendOptions = {}): RequestSink {
    if (this.#state !== 'idle') throw new TypeError('the connection has an exchange in progress')
    const exchange = new ClientExchange(this, request, response, options.headTimeoutMs ?? HEAD_TIMEOUT_MS)
    this.#exchange = exchange
    this.#state = 'head'
    this.#keepAlive = true
    this.#mayOweEarlier = this.#mayOwe
    this.#mayOwe ||= request.bodyBytes !== 0
    this.#intake.forget()
    this.responseStarted = false
    this.exchanges++
    this.#sentAt = performance.now()
    if (request.bodyBytes !== 0 && !this.#outlivesFailedWrites) {
      this.#outlivesFailedWrites = true
      outliveFailedWrites(this.#socket, guardWith(error => this.threw(error))(this.#onWriteFailed))
    }
    try {
      exchange.start()
    } catch (error) {
      this.giveUp(exchange, toSallyportError(error))
      return exchange
    }
    const ms = exchange.awaitsContinue ? this.#limits.expectMs : exchange.headTimeoutMs || HEAD_TIMEOUT_MS
    this.#watch.within(ms, this.#sentAt)
    return exchange
  }

  // Reading

  readonly #onRead = (bytes: Buffer, lent: boolean): boolean => {
    if (this.#state === 'closed') return false
    this.responseStarted = true
    this.#intake.add(bytes, lent)
    const state = this.#state as State
    return state === 'body' || state === 'raw'
  }

  stepFailed(error: unknown): void {
    this.#broken(toSallyportError(error))
  }

  parsed(): void {
    this.#intake.regulate()
    // Wait until everything that came with the response has been looked at. Extra bytes after it make the connection unusable.
    if (this.#state === 'idle') this.#options.onIdle?.(this)
  }

  step(bytes: Buffer): boolean {
    switch (this.#state) {
      case 'head':
        return this.#readHead(bytes)
      case 'body':
        this.#intake.keep(bytes, this.#body.feed(bytes, 0))
        return true
      case 'raw':
        this.#intake.clear()
        this.bodyData(bytes)
        return false
      default:
        // We could not tell bytes after the response, or without a request, from the next response.
        this.#intake.clear()
        this.destroy()
        return false
    }
  }

  #readHead(bytes: Buffer): boolean {
    const head = this.#heads.read(bytes, 0)
    if (head === undefined) return false
    this.#intake.keep(bytes, this.#heads.end)
    if (head.status === 101) this.#upgrade(head)
    else if (head.status < 200) this.#informational(head)
    else this.#head(head)
    return true
  }

  #informational({ status, headers }: Head): void {
    const exchange = this.#exchange!
    if (++exchange.informational > this.#limits.informational) throw brokenUpstream('too many informational responses')
    if (status === 100) {
      // The caller did not ask for it, so it would mean nothing to the caller.
      if (!exchange.awaitsContinue) return
      exchange.awaitsContinue = false
    }
    exchange.response.responseInformational(status, headers)
  }

  /** `head` may be shared with other responses. */
  #head(head: Head): void {
    const exchange = this.#exchange!
    if (head.status > 599) throw brokenUpstream(`status ${head.status}`)
    const bodyBytes = this.#responseBody(exchange, head)
    const untilClose = bodyBytes === BODY_UNKNOWN && head.transferEncoding === undefined
    // A program on Node may answer as it would answer GET, for example with an event stream, and answers nothing else until that ends.
    const mayGoOn = exchange.request.method === 'HEAD'
    const refusesBody = exchange.awaitsContinue && refusesRest(head.status, bodyBytes)
    this.#keepAlive =
      !head.close &&
      !untilClose &&
      !mayGoOn &&
      (head.minor === 1 || head.keepAlive) &&
      !exchange.request.upgrade &&
      !refusesBody &&
      this.#writeFailed === undefined
    this.#endsItself = head.close || (head.minor === 0 && !head.keepAlive)
    this.keepAliveMs = keepAliveTimeout(head.keepAliveParameters)
    exchange.headReceived = true
    // Answers come in order, so everything before this request has been read.
    this.#mayOweEarlier = false
    if (exchange.request.bodyBytes === 0) this.#mayOwe = false
    if (refusesBody) {
      exchange.requestDone = true
      this.#mayOwe = false
    }
    // No 100: the caller would send its body at once, and an upstream that does not read it would drop the rest of its answer with it.
    exchange.awaitsContinue = false
    this.#state = 'body'
    exchange.response.responseHead({ status: head.status, headers: head.headers.slice(), bodyBytes })
    if (bodyBytes === 0) this.bodyEnd([])
  }

  /** RFC 9112 section 6.3; starts the reader. */
  #responseBody(exchange: ClientExchange, head: Head): number {
    const { status, minor, contentLength, transferEncoding } = head
    if (transferEncoding !== undefined) {
      if (contentLength !== -1) throw brokenUpstream('transfer-encoding and content-length')
      if (transferEncoding !== 'chunked' || minor === 0) throw brokenUpstream('transfer-encoding')
    }
    if (exchange.request.method === 'HEAD' || status === 204 || status === 304) return 0
    if (transferEncoding !== undefined) this.#body.startChunked()
    else if (contentLength > 0) this.#body.startLength(contentLength)
    else if (contentLength === 0) return 0
    else this.#body.startUntilClose()
    return transferEncoding === undefined && contentLength > 0 ? contentLength : BODY_UNKNOWN
  }

  #upgrade({ upgrade, connectionUpgrade, webSocketAccept: accept, headers }: Head): void {
    const exchange = this.#exchange!
    const key = exchange.webSocketKey
    if (key === undefined) throw brokenUpstream('101 to a request that asked for no upgrade')
    if (upgrade === undefined || !connectionUpgrade || !listTokens(upgrade).includes('websocket')) {
      throw brokenUpstream('101 without upgrade: websocket')
    }
    if (accept !== webSocketAccept(key)) throw brokenUpstream('101 with a wrong sec-websocket-accept')
    exchange.headReceived = true
    exchange.raw = true
    this.#mayOwe = true
    this.#state = 'raw'
    exchange.response.responseHead({ status: 101, headers, bodyBytes: 0 })
  }

  bodyData(chunk: Uint8Array): void {
    const exchange = this.#exchange
    if (exchange === undefined) return
    exchange.response.responseData(this.#intake.give(chunk))
  }

  bodyEnd(trailers: HeaderList): void {
    const exchange = this.#exchange
    if (exchange === undefined) return
    exchange.responseDone = true
    exchange.response.responseEnd(trailers)
    this.#exchangeOver(exchange)
  }

  responseConsumed(exchange: ClientExchange, bytes: number): void {
    if (exchange === this.#exchange) this.#intake.consumed(bytes)
  }

  // Writing, for the exchange

  text(text: string): void {
    this.#writer.text(text)
  }

  body(chunk: Uint8Array, owner: BodyOwner): void {
    this.#writer.body(chunk, owner)
  }

  chunk(piece: Uint8Array, owner: BodyOwner): void {
    this.#writer.chunk(piece, owner)
  }

  requestEnded(exchange: ClientExchange): void {
    this.#sentAt = performance.now()
    if (exchange.responseDone) this.#exchangeOver(exchange)
  }

  halfClose(exchange: ClientExchange): void {
    if (exchange !== this.#exchange) return
    this.#keepsPort = !this.#ended
    this.#writer.end()
  }

  giveUp(exchange: ClientExchange, error: SallyportError | undefined): void {
    if (exchange !== this.#exchange) return
    this.#exchange = undefined
    this.#end(exchange, error)
    // A program that has taken over a connection for a WebSocket may not expect a reset.
    if (!exchange.request.upgrade && !this.#mayOweEarlier) resetSocket(this.#socket)
    this.destroy()
  }

  #end(exchange: ClientExchange, error: SallyportError | undefined): void {
    exchange.requestDone = true
    if (exchange.responseDone) return
    exchange.responseDone = true
    if (error !== undefined) exchange.response.responseAbort(error)
  }

  /** The response is over. The connection is free only if the request is over as well. */
  #exchangeOver(exchange: ClientExchange): void {
    if (exchange !== this.#exchange) return
    const whole = exchange.requestDone
    if (!whole) this.#mayOwe = false
    exchange.requestDone = true
    this.#exchange = undefined
    this.#intake.forget()
    const mayWait = this.#endsItself && this.#mayOwe && this.#writeFailed === undefined
    if (!whole || this.#ended || !(this.#keepAlive || mayWait)) {
      this.destroy()
      return
    }
    this.#state = this.#keepAlive ? 'idle' : 'ending'
    if (this.#intake.paused) this.#intake.regulate()
    if (this.#state === 'ending') {
      this.#sentAt = performance.now()
      this.#watch.within(ENDING_MS, this.#sentAt)
      this.#options.onClose?.(this)
    } else if (!this.#intake.parsing) this.#options.onIdle?.(this)
  }

  // Ends and deadlines

  writeWaits(): void {
    this.#progress.at = 0
    this.#watch.within(lookMs(this.#limits.stalledMs))
  }

  wrote(): void {
    this.#progress.at = performance.now()
  }

  readonly #onEnd = (): void => {
    this.#ended = true
    const exchange = this.#exchange
    if (isFalseEnd(this.#socket)) {
      this.#broken(brokenUpstream('the connection to the upstream broke'))
      return
    }
    if (this.#state === 'raw' && exchange !== undefined) {
      exchange.responseDone = true
      exchange.response.responseEnd([])
      return
    }
    // After a reset, we cannot know whether a body without a length is complete.
    if (this.#state === 'body' && this.#writeFailed === undefined && this.#body.closed()) return
    this.#broken(this.#writeFailed ?? brokenUpstream('the upstream closed the connection'))
  }

  /** A reset, for example by a server that answered without reading the whole body and closed. Its answer may still be in the kernel. */
  readonly #onWriteFailed = (error: Error): void => {
    if (this.#writeFailed !== undefined || this.#state === 'closed') return
    const exchange = this.#exchange
    this.#writeFailed = new SallyportError('upstream-broken', error.message, { cause: error })
    this.#keepAlive = false
    if (exchange === undefined || this.#state === 'raw') {
      this.#broken(this.#writeFailed)
      return
    }
    exchange.awaitsContinue = false
    exchange.requestDone = true
    this.#sentAt = performance.now()
    this.#watch.within(exchange.headTimeoutMs || HEAD_TIMEOUT_MS, this.#sentAt)
  }

  readonly #onError = (error: Error): void => {
    this.#keepsPort = false
    this.#broken(new SallyportError('upstream-broken', error.message, { cause: error }))
  }

  readonly #onClose = (): void => {
    this.#broken(brokenUpstream('the connection to the upstream was lost'))
  }

  #broken(error: SallyportError): void {
    const exchange = this.#exchange
    this.#exchange = undefined
    this.destroy()
    if (exchange !== undefined) this.#end(exchange, error)
  }

  /** An error in an event handler or a timer ends the connection, and its exchange is notified. */
  threw(error: unknown): void {
    const broken = () => this.#broken(toSallyportError(error))
    endFor(error, noLogger, '', broken, () => this.destroy())
  }

  /** Ends the connection at once; an exchange in progress ends as `upstream-broken`. */
  destroy(): void {
    if (this.#state === 'closed') return
    const toldAlready = this.#state === 'ending'
    this.#state = 'closed'
    this.#intake.stop()
    this.#body.stop()
    this.#watch.stop()
    if (this.#mayOwe) {
      this.#keepsPort ||= !this.#ended && !this.#socket.destroyed
      this.#socket.destroy()
    } else hangUp(this.#socket)
    const exchange = this.#exchange
    this.#exchange = undefined
    if (this.#keepsPort) this.#options.onPortKept?.()
    if (!toldAlready) this.#options.onClose?.(this)
    // The exchange may go on over another connection, so this one no longer counts.
    if (exchange !== undefined) this.#end(exchange, brokenUpstream('the connection was ended'))
  }

  /** The same, and its socket is gone, too. A program that reads may hear of a reset. */
  cut(): void {
    if (!this.#mayOwe) resetSocket(this.#socket)
    this.destroy()
  }

  /** Acts on deadlines that have passed. Returns the time until the next one. */
  #check(now: number): number {
    const exchange = this.#exchange
    if (exchange === undefined) {
      return this.#state === 'ending'
        ? due(this.#sentAt, ENDING_MS, now, () => this.destroy())
        : Number.POSITIVE_INFINITY
    }
    let next = Number.POSITIVE_INFINITY
    if (!exchange.headReceived) next = this.#checkHead(exchange, now)
    if (this.#writer.waiting > 0) next = Math.min(next, this.#checkWrite(exchange, now))
    return this.#exchange === undefined ? Number.POSITIVE_INFINITY : next
  }

  #checkHead(exchange: ClientExchange, now: number): number {
    if (exchange.awaitsContinue) {
      const left = timeUntil(this.#sentAt + this.#limits.expectMs, now)
      if (left > 0) return left
      exchange.awaitsContinue = false
      exchange.response.responseInformational(100, [])
    }
    // While a request body is being sent, its upstream may take as long as it needs.
    if (exchange.headTimeoutMs === 0) return Number.POSITIVE_INFINITY
    const sends = !exchange.requestDone || this.#writer.waiting > 0
    if (sends && !exchange.request.upgrade) return exchange.headTimeoutMs
    const left = timeLeft(Math.max(this.#sentAt, this.#progress.at), exchange.headTimeoutMs, now)
    if (left > 0) return left
    this.#broken(new SallyportError('upstream-timeout', 'no response head in time'))
    return Number.POSITIVE_INFINITY
  }

  #checkWrite(exchange: ClientExchange, now: number): number {
    const left = this.#progress.left(this.#socket, this.#limits.stalledMs, now)
    if (left > 0) return left
    this.giveUp(exchange, new SallyportError('upstream-timeout', 'the upstream stopped reading'))
    return Number.POSITIVE_INFINITY
  }
}

/** `timeout` of a `Keep-Alive` field, in ms. */
function keepAliveTimeout(parameters: string | undefined): number | undefined {
  const match = parameters === undefined ? null : /(?:^|[,;\s])timeout=([0-9]{1,6})/i.exec(parameters)
  return match === null ? undefined : Number(match[1]) * 1000
}
