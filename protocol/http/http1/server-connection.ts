/**
 * A downstream HTTP/1.1 connection. It reads requests one after the other and hands each to the handler. Bytes that arrive early
 * (pipelined requests, bytes after an upgrade request) wait until it is their turn.
 *
 *     readHead -> readBody -> await -> readHead ...        ordinary requests
 *                    |          |
 *                    |          +-> upgrade -> raw         after a 101
 *                    +-> drain -> readHead                 the response came first: the rest is discarded, for a while
 *     any -> linger                                        our half is closed: what arrives is discarded for a while
 *
 * A request is started only while the writer holds little. A caller that does not read its answers is not read from, either.
 */

import type { Buffer } from 'node:buffer'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import process from 'node:process'
import type { TLSSocket } from 'node:tls'
import { canonicalAddress } from '../../base/address.ts'
import type { BudgetMember, BufferBudget } from '../../base/budget.ts'
import { DeadlineWatch, due, LOOK_MS, timeLeft } from '../../base/deadline-watch.ts'
import { type ErrorCode, SallyportError, toSallyportError } from '../../base/errors.ts'
import { callHandler, endFor, guardWith, stepOf } from '../../base/guard.ts'
import { type Logger, noLogger } from '../../base/log.ts'
import { resetSocket } from '../../base/reset-socket.ts'
import { type Beginner, beginLater } from '../../base/socket-turns.ts'
import { isBroken, isFalseEnd } from '../../base/tcp.ts'
import type { Handler, HeaderList, HttpRequest } from '../../exchange.ts'
import type { ConnectionSet, ManagedConnection } from '../connection-set.ts'
import { textBytes } from '../headers.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import { isRepeatable } from '../methods.ts'
import type { CorsPolicy } from '../problem.ts'
import { BodyReader, type BodyReceiver } from './body-reader.ts'
import { CR, LF } from './bytes.ts'
import { DateClock } from './encode.ts'
import { HeadReader } from './head-reader.ts'
import { Intake, type IntakeOwner } from './intake.ts'
import { type RequestHead, requestHead } from './request-head.ts'
import { ServerExchange, type ServerWire } from './server-exchange.ts'
import { SocketReader } from './socket-reader.ts'
import { type BodyOwner, SocketWriter, type WriterOwner } from './socket-writer.ts'
import { UnendedExchanges } from './unended.ts'
import { unreadHead } from './unread-head.ts'
import { lookMs, WriteProgress } from './write-progress.ts'

export interface Http1ServerOptions {
  handler: Handler
  limits?: Partial<HttpLimits> | undefined
  /** Whether the caller's connection is encrypted; by default, whether the socket is a TLSSocket. */
  encrypted?: boolean | undefined
  /** Address of the caller, if that differs from the socket's peer (PROXY protocol). */
  peerAddress?: string | undefined
  logger?: Logger | undefined
  /** The set that the connection belongs to while it is open. */
  connections?: ConnectionSet | undefined
  dates?: DateClock | undefined
  /** Closes after the first answer. */
  oneRequest?: boolean | undefined
  /** See `ListenerOptions`. */
  boundsBodies?: boolean | undefined
  /** Shared by the connections of a listener. */
  reader?: SocketReader | undefined
  /** Called for each request that was refused before the handler got it, with what could be read of it. */
  onBadRequest?: ((error: SallyportError, request: HttpRequest) => void) | undefined
  /** Which pages may read an answer that is not the handler's. If the head was refused, the function gets what could be read of it. */
  corsOf?: ((request: HttpRequest) => CorsPolicy | undefined) | undefined
}

/**
 * Serves HTTP/1.1 on an accepted socket. `first` holds bytes that were already read from it. The connection owns the socket from now
 * on.
 */
export function serveHttp1(socket: Socket | TLSSocket, options: Http1ServerOptions, first?: Buffer): ManagedConnection {
  return new Http1ServerConnection(socket, options, first)
}

/** Every answer begins with this. */
const STATUS_LINE = 'HTTP/1.1 '
/** How long after its FIN, or after we stopped reading, a caller is first probed. Each further probe waits twice as long. */
const ASK_MS = 1000

type State = 'readHead' | 'readBody' | 'await' | 'upgrade' | 'raw' | 'drain' | 'linger' | 'closed'

class Http1ServerConnection
  implements ManagedConnection, BudgetMember, ServerWire, BodyReceiver, IntakeOwner, WriterOwner, Beginner
{
  static readonly #parseDue = stepOf<Http1ServerConnection>(connection => connection.#intake.parse())
  static readonly #settleDue = stepOf<Http1ServerConnection>(connection => connection.#settle())
  static readonly #endDue = stepOf<Http1ServerConnection>(connection => connection.#endRaw())
  readonly #socket: Socket | TLSSocket
  readonly #handler: Handler
  readonly #limits: HttpLimits
  readonly #logger: Logger
  readonly #connections: ConnectionSet | undefined
  readonly #dates: DateClock
  readonly #onBadRequest: Http1ServerOptions['onBadRequest']
  readonly #corsOf: Http1ServerOptions['corsOf']
  readonly #encrypted: boolean
  readonly #boundsBodies: boolean
  readonly address: string
  readonly #writer: SocketWriter
  readonly #heads: HeadReader
  readonly #body: BodyReader
  readonly #watch: DeadlineWatch
  readonly #intake: Intake
  #state: State = 'readHead'
  #exchange: ServerExchange | undefined
  /** What is held for requests, and of answers. */
  usedBytes = 0
  readonly #unread: BufferBudget | undefined
  #unended: UnendedExchanges | undefined
  /** How many requests may begin now. The first one does not wait for those of others. */
  #mayBegin = 1
  /** The rest of a pipeline waits for the next turn, or for the writer. */
  #behind = false
  /** The rest of a pipeline waits for the writer. */
  #choked = false
  #closing: boolean
  /** How long an idle connection that was asked to close is still read, since a request may be on its way. */
  #patienceMs = 0
  #patientSince = 0
  /** Until when an answer that ends leaves the connection open. What follows it needs time before the grace is over. */
  #patientUntil = 0
  #halfClosed = false
  /** The upstream end of a WebSocket has not learned that the caller has ended its half. */
  #endWaits = false
  /** Why the exchange in progress ends with the connection: `cancelled`, since its caller left, unless we end it. */
  #why: ErrorCode = 'cancelled'
  /** Only the close ends the last answer. */
  #untilClose = false
  /** How many characters of the status line were sent, each to find out whether the caller is still there. */
  #asked = 0
  /** Bytes written for the answers before this one. */
  #earlierBytes = 0
  // Times, for the deadlines.
  #since = performance.now()
  #headBegun = true
  #readAt = 0
  readonly #progress = new WriteProgress()

  constructor(socket: Socket | TLSSocket, options: Http1ServerOptions, first: Buffer | undefined) {
    this.#socket = socket
    this.#handler = options.handler
    this.#limits = { ...DEFAULT_HTTP_LIMITS, ...options.limits }
    this.#logger = options.logger ?? noLogger
    this.#connections = options.connections
    this.#dates = options.dates ?? new DateClock()
    this.#onBadRequest = options.onBadRequest
    this.#corsOf = options.corsOf
    this.#closing = options.oneRequest ?? false
    this.#encrypted = options.encrypted ?? 'encrypted' in socket
    this.#boundsBodies = options.boundsBodies ?? false
    this.address = canonicalAddress(options.peerAddress ?? socket.remoteAddress ?? '')
    this.#intake = new Intake(socket, this.#limits.bufferBytes, this)
    this.#writer = new SocketWriter(socket, this)
    this.#heads = new HeadReader(this.#limits, false)
    this.#body = new BodyReader(this, this.#limits, 'bad-request')
    this.#watch = new DeadlineWatch(now => this.#check(now), this)
    const guard = guardWith(error => this.threw(error))
    socket.on('end', guard(this.#onEnd))
    socket.on('error', guard(this.#onError))
    socket.on('close', guard(this.#onClose))
    // Whoever accepted it may close our half with the caller's, as an `https.Server` does.
    socket.allowHalfOpen = true
    socket.setNoDelay(true)
    this.#connections?.add(this)
    this.#unread = this.#connections?.unreadOf(this.address)
    this.#unread?.join(this)
    this.#watch.within(this.#limits.headMs)
    const reader = options.reader ?? new SocketReader()
    reader.read(socket, this.#onRead, this)
    if (first !== undefined && first.length > 0) this.#onRead(first, false, performance.now())
  }

  // Reading

  readonly #onRead = (bytes: Buffer, lent: boolean, now: number): boolean => {
    this.#readAt = now
    if (!this.#behind) this.#mayBegin = 1
    this.#intake.add(bytes, lent)
    return this.#state === 'readBody' || this.#state === 'raw'
  }

  stepFailed(error: unknown): void {
    this.#refuse(toSallyportError(error))
  }

  parsed(): void {
    if (this.#halfClosed && !this.#behind) this.#cutShort()
    const exchange = this.#exchange
    if (this.#state === 'await' && exchange?.delivered === true) {
      // The next request does not wait until the upstream end has taken the last of this one.
      this.#intake.forget()
      // To the caller, the connection is idle. If it is to close, it must do so before another request is sent on it. But the end of a body
      // may still be on its way to the upstream end.
      if (this.#closing && exchange.keepAlive && exchange.asked.request.bodyBytes === 0) this.#passOver()
    }
    this.#intake.regulate()
    this.#settle()
  }

  /** The caller has closed its half. Whatever is incomplete by now will remain incomplete. */
  #cutShort(): void {
    switch (this.#state) {
      case 'readHead':
      case 'drain':
        this.#linger()
        return
      case 'readBody':
      case 'upgrade': {
        const exchange = this.#exchange!
        if (exchange.headSent) {
          this.destroy('cancelled')
          return
        }
        // Answers to earlier requests are still being sent.
        exchange.ended = true
        exchange.takeSink()?.requestAbort(new SallyportError('cancelled'))
        this.#linger()
      }
    }
  }

  #fallBehind(): void {
    this.#behind = true
    beginLater(this)
  }

  beginMore(most: number): void {
    this.#behind = false
    this.#mayBegin = most
    this.#intake.parse()
  }

  step(bytes: Buffer): boolean {
    if (this.#behind) return false
    switch (this.#state) {
      case 'readHead':
        return this.#readHead(bytes)
      case 'readBody':
      case 'drain':
        this.#intake.keep(bytes, this.#body.feed(bytes, 0))
        return true
      case 'raw':
        this.#intake.clear()
        if (this.#exchange?.ended === true) this.#since = performance.now()
        if (this.#exchange !== undefined) this.#pass(this.#exchange, bytes)
        return false
      case 'await':
        return this.#passOver()
      case 'linger':
      case 'closed':
        this.#intake.clear()
        return false
      default:
        return false
    }
  }

  #readHead(bytes: Buffer): boolean {
    if (this.#writer.held > this.#limits.bufferBytes) {
      this.#behind = true
      this.#choked = true
      return false
    }
    if (this.#mayBegin === 0) {
      this.#fallBehind()
      return false
    }
    // One empty line before a request line is skipped (RFC 9112 section 2.2) once it is complete.
    const half = bytes.length === 1 && bytes[0] === CR
    const parsed = half ? undefined : this.#heads.read(bytes, bytes[0] === CR && bytes[1] === LF ? 2 : 0)
    if (parsed === undefined) {
      this.#awaitHead()
      return false
    }
    const head = requestHead(parsed, this.address, this.#encrypted)
    this.#intake.keep(bytes, this.#heads.end)
    this.#mayBegin--
    this.#begin(head)
    return true
  }

  #awaitHead(): void {
    if (this.#headBegun) return
    this.#headBegun = true
    this.#since = performance.now()
    this.#watch.within(this.#limits.headMs)
  }

  #begin(head: RequestHead): void {
    const { request } = head
    const exchange = new ServerExchange(this, head, this.#limits)
    this.#exchange = exchange
    exchange.heldBytes = this.#heads.end
    this.#earlierBytes = this.#writer.writtenBytes
    this.#headBegun = false
    if (this.#halfClosed) this.#since = performance.now()
    if (request.upgrade) this.#state = 'upgrade'
    else if (request.bodyBytes === 0) this.#state = 'await'
    else {
      this.#state = 'readBody'
      if (request.bodyBytes > 0) this.#body.startLength(request.bodyBytes)
      else this.#body.startChunked()
      this.#watch.within(head.expectsContinue ? this.#limits.expectMs : this.#limits.bodyIdleMs)
    }
    const sink = callHandler(this.#handler, request, exchange, this.#logger)
    if (exchange.failure !== undefined) {
      sink.requestAbort(exchange.failure)
      return
    }
    exchange.sink = sink
    if ((this.#state as State) === 'closed') sink.requestAbort(new SallyportError('cancelled'))
    else if (request.bodyBytes === 0 && !request.upgrade) sink.requestEnd([])
    else if (exchange.ended)
      exchange.takeSink()?.requestAbort(new SallyportError('cancelled', 'the response came first'))
  }

  bodyData(chunk: Uint8Array): void {
    if (this.#state === 'drain') return
    const exchange = this.#exchange!
    exchange.awaitsContinue = false
    this.#pass(exchange, chunk)
  }

  #pass(exchange: ServerExchange, part: Uint8Array): void {
    if (exchange.sink === undefined) return
    exchange.heldBytes += part.length
    exchange.sink.requestData(this.#intake.give(part))
  }

  bodyEnd(trailers: HeaderList): void {
    const exchange = this.#exchange
    if (this.#state === 'drain' || exchange === undefined) {
      this.#next()
      return
    }
    this.#state = 'await'
    exchange.heldBytes += textBytes(trailers)
    exchange.sink?.requestEnd(trailers)
  }

  requestConsumed(exchange: ServerExchange, bytes: number): void {
    if (exchange === this.#exchange) this.#intake.consumed(bytes)
    // Not within this call: an owner may give credit before it uses what the credit is for.
    if (this.#endWaits) process.nextTick(Http1ServerConnection.#endDue, this)
    this.#recount()
  }

  /** Reading stops while the rest of a pipeline waits for its turn, and while more than `bufferBytes` of it has arrived. */
  holdsBack(): boolean {
    if (this.#behind) return true
    const waits = this.#state === 'await' || this.#state === 'upgrade'
    return waits && (this.#intake.bytes?.length ?? 0) > this.#limits.bufferBytes
  }

  paced(paused: boolean): void {
    if (paused) {
      if (!this.#halfClosed && this.#exchange !== undefined) this.#since = performance.now()
      this.#watch.within(LOOK_MS)
    } else {
      this.#readAt = performance.now()
      if (this.#state === 'readBody') this.#watch.within(this.#limits.bodyIdleMs)
    }
  }

  // Writing, for the exchange

  text(text: string): void {
    this.#writer.text(this.#asked === 0 ? text : this.#goOn(text))
  }

  /** Sends the rest of an answer whose first characters were sent to find out whether the caller is still there. */
  #goOn(text: string): string {
    const rest = text.slice(this.#asked)
    this.#asked = 0
    this.#since = performance.now()
    return rest
  }

  body(chunk: Uint8Array, owner: BodyOwner): void {
    this.#writer.body(chunk, owner)
    if (this.#writer.waiting > 0) this.#settle()
  }

  chunk(piece: Uint8Array, owner: BodyOwner): void {
    this.#writer.chunk(piece, owner)
    if (this.#writer.waiting > 0) this.#settle()
  }

  date(): string {
    return this.#dates.now()
  }

  corsOf(request: HttpRequest): CorsPolicy | undefined {
    return this.#corsOf?.(request)
  }

  mayKeepAlive(exchange: ServerExchange, status: number): boolean {
    const { asked: head } = exchange
    if (!head.keepAlive || this.#closing || head.request.upgrade) return false
    if (this.#halfClosed && this.#intake.bytes === undefined) return false
    if (this.#state !== 'readBody') return true
    // The rest of the body is still due. After an error it may be long, and without a 100 it may never come.
    return !exchange.awaitsContinue && (status < 400 || this.#body.left <= this.#limits.drainBytes)
  }

  upgraded(exchange: ServerExchange): void {
    if (exchange !== this.#exchange) return
    this.#state = 'raw'
    // The handler may have answered before it returned. Until it has, there is no sink for the waiting bytes.
    process.nextTick(Http1ServerConnection.#parseDue, this)
  }

  responseEnded(exchange: ServerExchange): void {
    if (exchange !== this.#exchange) return
    switch (this.#state) {
      case 'raw':
        this.#since = performance.now()
        this.#watch.within(this.#limits.stalledMs)
        this.#writer.end()
        return
      case 'readBody':
        this.#leaveBody(exchange)
        return
      default:
        this.#next()
        this.#intake.parse()
    }
  }

  unwanted(exchange: ServerExchange): void {
    if (exchange === this.#exchange) this.#linger()
  }

  delivered(exchange: ServerExchange): void {
    if (exchange !== this.#exchange) return
    if (this.#state === 'readBody') {
      this.#since = performance.now()
      if (this.#limits.drainMs > 0) this.#watch.within(this.#limits.drainMs)
    }
    // In a later turn, since the upstream end usually ends in this one.
    else if (this.#intake.bytes !== undefined || this.#intake.paused || this.#closing)
      setImmediate(Http1ServerConnection.#parseDue, this)
  }

  /**
   * The next request has arrived. It does not wait for an upstream end that does not end a complete response: behind a proxy, it may be
   * that of another caller, for another runtime.
   */
  #passOver(): boolean {
    const exchange = this.#exchange
    if (exchange?.delivered !== true) return false
    exchange.ended = true
    this.#unended ??= new UnendedExchanges()
    this.#unended.add(exchange)
    this.#next(this.#intake.bytes !== undefined)
    return true
  }

  over(exchange: ServerExchange): void {
    this.#unended?.delete(exchange)
    this.#recount()
  }

  /**
   * The response is over before the request. If it said that the connection stays, the rest of the request is read and discarded for
   * `drainMs`, however long it is. Otherwise a caller that sends it all, and then its next request, would lose that one.
   */
  #leaveBody(exchange: ServerExchange): void {
    this.#exchange = exchange.keepAlive ? exchange : undefined
    // The upstream end knows that the request is over. All it still hears is that response bytes have left.
    this.#intake.forget()
    if (!exchange.keepAlive) {
      this.#linger()
      return
    }
    this.#state = 'drain'
    this.#since = performance.now()
    this.#watch.within(this.#limits.drainMs)
    this.#intake.regulate()
    this.#recount()
  }

  /** Both the request and the response are over. `isFollowed`: some of the next request has arrived. */
  #next(isFollowed = false): void {
    const keepAlive = this.#exchange?.keepAlive ?? false
    this.#exchange = undefined
    this.#intake.forget()
    const now = performance.now()
    if (!keepAlive || (this.#closing && !isFollowed && now >= this.#patientUntil)) {
      this.#linger()
      return
    }
    // The head of this answer left before the connection was asked to close, so it did not say so.
    if (this.#closing) this.#patientSince = now
    this.#state = 'readHead'
    this.#headBegun = false
    this.#since = now
    // 0 means no limit. It is not passed on as 0, which would schedule a check after each request.
    const idleMs = this.#limits.keepAliveMs || Number.POSITIVE_INFINITY
    this.#watch.within(this.#closing ? this.#patienceMs : idleMs, now)
  }

  /**
   * Closes our half and gives the caller a little time to read what we sent. What the caller still sends is read. If we closed the
   * socket on it, the kernel would answer with a reset, and a sender that sees a reset does not look for the answer.
   */
  #linger(): void {
    if (this.#state === 'closed' || this.#state === 'linger') return
    this.#state = 'linger'
    this.#body.stop()
    this.#exchange = undefined
    this.#intake.clear()
    this.#intake.forget()
    this.#behind = false
    this.#choked = false
    this.#since = performance.now()
    this.#watch.within(Math.min(this.#limits.drainMs, this.#limits.lingerMs))
    this.#writer.end()
    if (this.#intake.paused) this.#intake.regulate()
    this.#recount()
  }

  /** Answers a request that must not be forwarded, or ends one whose body turned out to be malformed. */
  #refuse(error: SallyportError): void {
    const { bytes } = this.#intake
    this.#intake.clear()
    this.#body.stop()
    this.#logger.debug({ peer: this.address, code: error.reason, err: error }, 'request refused')
    const exchange = this.#exchange
    if (exchange !== undefined && !exchange.ended) {
      // First, since an upstream end might end the response in the call, and no more of the body is read.
      exchange.keepAlive = false
      this.#closing = true
      exchange.takeSink()?.requestAbort(error, !exchange.headSent)
      exchange.responseAbort(error)
      return
    }
    if (this.#state !== 'readHead') {
      // Its answer has been written already. That answer and those before it may still be unread.
      this.#linger()
      return
    }
    const head = unreadHead(bytes, this.address)
    this.#onBadRequest?.(error, head.request)
    this.#closing = true
    this.#state = 'await'
    this.#exchange = new ServerExchange(this, head, this.#limits)
    this.#exchange.responseAbort(error)
  }

  /** Follows what is held from what there is. */
  #recount(): void {
    // What is drained is held by nobody.
    const current = this.#state === 'drain' ? 0 : (this.#exchange?.heldBytes ?? 0)
    const passedOn = current + (this.#unended?.heldBytes ?? 0)
    const requests = passedOn + this.#intake.heldBytes + this.#body.heldBytes
    const bytes = this.#state === 'closed' ? current : requests + this.#answerBytes
    this.#unread?.take(bytes - this.usedBytes)
    this.usedBytes = bytes
  }

  /** A handler that bounds bodies pays for those that it passes on, but for nothing else, and no longer once they are complete. */
  get #answerBytes(): number {
    const exchange = this.#exchange
    const isPaid = this.#boundsBodies && exchange?.ended === false
    return this.#writer.held - (isPaid ? exchange.unsent : 0)
  }

  #settle(): void {
    this.#recount()
    this.#unread?.enforce()
  }

  /** Of its network's connections, this one holds the most. The request is answered, if that can still be done. */
  shed(bytes: number): number {
    const before = this.usedBytes
    // Their answers have left.
    this.#unended?.end('overloaded')
    this.#recount()
    if (before - this.usedBytes >= bytes) return before - this.usedBytes
    const exchange = this.#exchange
    // It may be executed, also if only a part of it was passed on, and `overloaded` would ask its sender to repeat it.
    const mayRun = exchange?.headSent === false && !isRepeatable(exchange.asked.request)
    const mayAnswer = !this.#intake.parsing && exchange?.ended !== true && this.#writer.held === 0
    if (mayAnswer) this.#refuse(new SallyportError(mayRun ? 'session-lost' : 'overloaded'))
    if (this.usedBytes > 0) this.destroy('overloaded')
    if (this.#state === 'closed') this.#forgetRaw()?.takeSink()?.requestAbort(new SallyportError('overloaded'))
    return before - this.usedBytes
  }

  endsByClose(): void {
    this.#untilClose = true
  }

  cut(exchange: ServerExchange): void {
    if (exchange !== this.#exchange) return
    this.#exchange = undefined
    const looksWhole = this.#untilClose || this.#state === 'raw'
    if (!looksWhole && this.#earlierWait()) {
      this.#linger()
      return
    }
    this.#writer.flush()
    if (looksWhole) this.#reset()
    this.destroy('upstream-broken')
  }

  /** To a caller that reads until the close, a plain close would look like a proper end. With TLS, it does not. */
  #reset(): void {
    if (!('encrypted' in this.#socket)) resetSocket(this.#socket)
  }

  /** Whether earlier answers still wait, and only little of the cut answer waits after them. */
  #earlierWait(): boolean {
    const { held, writtenBytes } = this.#writer
    const earlier = this.#earlierBytes - (writtenBytes - held)
    return earlier > 0 && held - earlier <= this.#limits.bufferBytes
  }

  drop(why: ErrorCode): void {
    this.#why = why
    resetSocket(this.#socket)
    this.#gone()
  }

  // Ends and deadlines

  writeWaits(): void {
    this.#progress.at = 0
    this.#watch.within(lookMs(this.#limits.stalledMs))
    setImmediate(Http1ServerConnection.#settleDue, this)
  }

  wrote(): void {
    this.#recount()
    if (this.#halfClosed || this.#writer.waiting > 0) this.#progress.at = performance.now()
    if (this.#choked && this.#writer.held <= this.#limits.bufferBytes) {
      this.#choked = false
      this.#fallBehind()
    }
  }

  readonly #onEnd = (): void => {
    if (isFalseEnd(this.#socket)) {
      this.destroy('cancelled')
      return
    }
    this.#halfClosed = true
    this.#since = performance.now()
    this.#watch.within(Math.min(ASK_MS, this.#limits.halfCloseMs || ASK_MS))
    if (this.#state === 'raw') {
      this.#endWaits = true
      this.#endRaw()
    } else this.#intake.parse()
  }

  /**
   * Once both halves of a WebSocket have ended, the exchange is over for its caller. So that what the upstream end has not taken counts
   * until then, it learns of the end of its half behind that.
   */
  #endRaw(): void {
    const sink = this.#exchange?.sink
    if (!this.#endWaits || (sink !== undefined && this.#intake.unconsumed > 0)) return
    this.#endWaits = false
    if (this.#state === 'closed') this.#forgetRaw()
    sink?.requestEnd([])
  }

  /** A WebSocket whose caller has gone no longer counts. */
  #forgetRaw(): ServerExchange | undefined {
    const exchange = this.#exchange
    this.#exchange = undefined
    this.#leaveBudget()
    return exchange
  }

  readonly #onError = (error: Error): void => {
    this.#logger.debug({ peer: this.address, err: error }, 'downstream connection broke')
  }

  readonly #onClose = (): void => {
    this.#gone()
  }

  #gone(): void {
    if (this.#state === 'closed') return
    const exchange = this.#exchange
    const isOver = exchange === undefined || this.#state === 'drain' || (exchange.ended && this.#halfClosed)
    this.#state = 'closed'
    this.#intake.stop()
    this.#body.stop()
    this.#watch.stop()
    if (!isOver || !this.#endWaits) this.#exchange = undefined
    this.#connections?.delete(this)
    this.#leaveBudget()
    this.#unended?.end(this.#why)
    if (isOver) return
    exchange.ended = true
    exchange.failure = new SallyportError(this.#why)
    exchange.takeSink()?.requestAbort(exchange.failure)
  }

  /** Once the socket has gone, and the last that was held for it. */
  #leaveBudget(): void {
    this.#recount()
    if (this.#exchange === undefined) this.#unread?.leave(this)
  }

  get idle(): boolean {
    if (this.#exchange !== undefined || this.#writer.held > 0) return false
    return this.#state !== 'readHead' || this.#intake.bytes === undefined
  }

  close(patienceMs: number, patientUntil: number): void {
    this.#closing = true
    this.#patienceMs = patienceMs
    this.#patientSince = performance.now()
    this.#patientUntil = patientUntil
    if (patienceMs > 0) this.#watch.within(patienceMs)
    else if (this.#state === 'readHead' && this.#intake.bytes === undefined) this.#linger()
    this.#intake.parse()
  }

  destroy(why: ErrorCode): void {
    this.#why = why
    if (this.#untilClose && (this.#exchange !== undefined || this.#writer.held > 0)) this.#reset()
    this.#socket.destroy()
    this.#gone()
  }

  /** An error in an event handler or a timer ends this connection and no other. */
  threw(error: unknown): void {
    endFor(error, this.#logger, 'a connection of a caller failed', () => this.destroy('internal'))
  }

  /** Acts on deadlines that have passed. Returns the time until the next one. */
  #check(now: number): number {
    // A stream that is no socket still fills while nothing is read from it.
    this.#settle()
    const unheard = this.#intake.paused || this.#halfClosed
    // Behind our end, a caller's end looks like a reset, although what it sent before may still wait in the kernel.
    const isEnded = this.#state === 'raw' && this.#exchange?.ended === true
    if (unheard && !isEnded && isBroken(this.#socket)) this.destroy('cancelled')
    const next = Math.min(this.#checkRead(now), this.#checkWrite(now), unheard ? LOOK_MS : Number.POSITIVE_INFINITY)
    return this.#state === 'closed' ? Number.POSITIVE_INFINITY : next
  }

  #checkRead(now: number): number {
    const limits = this.#limits
    switch (this.#state) {
      case 'readHead':
        // The writer has its own deadline.
        if (this.#behind) return Number.POSITIVE_INFINITY
        if (this.#closing && this.#intake.bytes === undefined)
          return due(this.#patientSince, this.#patienceMs, now, this.#onIdle)
        return this.#headBegun
          ? due(this.#since, limits.headMs, now, this.#onHeadTimeout)
          : due(this.#since, limits.keepAliveMs, now, this.#onIdle)
      case 'readBody':
        if (!this.#intake.paused) return this.#checkBody(now)
        return this.#exchange!.delivered ? due(this.#since, limits.drainMs, now, this.#onUntaken) : this.#ask(now)
      case 'raw':
        // Our half is closed. A caller that neither sends nor closes its half is gone.
        return this.#exchange?.ended === true
          ? this.#checkEnd(limits.stalledMs, now, this.#onGone)
          : Number.POSITIVE_INFINITY
      case 'drain':
        return this.#checkEnd(limits.drainMs, now, this.#onIdle)
      case 'linger':
        return Math.min(
          this.#checkEnd(limits.lingerMs, now, this.#onGone),
          due(Math.max(this.#since, this.#readAt), limits.drainMs, now, this.#onGone),
        )
      case 'upgrade':
      case 'await':
        if (this.#exchange?.headSent !== true && (this.#halfClosed || this.#intake.paused)) return this.#ask(now)
        if (!this.#halfClosed) return Number.POSITIVE_INFINITY
        return due(Math.max(this.#since, this.#progress.at), limits.halfCloseMs, now, this.#onGone)
      default:
        return Number.POSITIVE_INFINITY
    }
  }

  /** Everything has been written. While the caller still has to read it, only the deadline for callers that stop reading applies. */
  #checkEnd(ms: number, now: number, act: () => void): number {
    if (this.#writer.waiting > 0) this.#since = now
    return due(this.#since, ms, now, act)
  }

  /**
   * A caller that has left has closed both halves. To us this looks like a caller that waits for its answer, or, after bytes that
   * we do not read, like nothing at all. Only when we send something does its kernel answer with a reset. So we send a character.
   */
  #ask(now: number): number {
    if (this.#asked === STATUS_LINE.length || this.#exchange?.headSent === true) return Number.POSITIVE_INFINITY
    const left = timeLeft(this.#since, ASK_MS * 2 ** this.#asked, now)
    if (left > 0) return left
    this.#writer.text(STATUS_LINE[this.#asked++]!)
    return ASK_MS
  }

  #checkBody(now: number): number {
    const exchange = this.#exchange!
    // Once the answer has begun, both directions may be quiet, as on a WebSocket.
    if (exchange.headSent) return Number.POSITIVE_INFINITY
    if (exchange.awaitsContinue) {
      const left = due(this.#readAt, this.#limits.expectMs, now, this.#onExpectDue)
      if (left !== Number.POSITIVE_INFINITY) return left
    }
    return due(this.#readAt, this.#limits.bodyIdleMs, now, this.#onBodyTimeout)
  }

  #checkWrite(now: number): number {
    if (this.#writer.waiting === 0) return Number.POSITIVE_INFINITY
    const left = this.#progress.left(this.#socket, this.#limits.stalledMs, now)
    if (left === 0) this.#onStalled()
    return left || Number.POSITIVE_INFINITY
  }

  readonly #onHeadTimeout = (): void => {
    if (this.#intake.bytes === undefined) this.destroy('request-timeout')
    else this.#refuse(new SallyportError('request-timeout'))
  }

  readonly #onIdle = (): void => this.#linger()

  readonly #onGone = (): void => this.destroy('cancelled')

  readonly #onExpectDue = (): void => this.#exchange?.responseInformational(100, [])

  /** The caller may have sent all of the body, and then another request. */
  readonly #onUntaken = (): void => {
    const exchange = this.#exchange!
    const sink = exchange.takeSink()
    exchange.responseEnd([])
    sink?.requestAbort(new SallyportError('cancelled', 'the response came first'))
  }

  readonly #onBodyTimeout = (): void => this.#refuse(new SallyportError('request-timeout'))

  readonly #onStalled = (): void => {
    this.#logger.debug({ peer: this.address }, 'the caller stopped reading')
    this.drop('request-timeout')
  }
}
