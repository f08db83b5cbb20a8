/**
 * An upstream HTTP/2 session, for gRPC and similar protocols, with many exchanges at a time. It accepts no more exchanges once its
 * upstream goes away, closes its half, falls silent, or leaves a request unanswered for too long, or when stream ids run out.
 */
import type { Socket } from 'node:net'
import { DeadlineWatch, due, LOOK_MS, timeLeft } from '../../base/deadline-watch.ts'
import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { discarding, endFor, guardWith } from '../../base/guard.ts'
import { noLogger } from '../../base/log.ts'
import { resetSocket } from '../../base/reset-socket.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import type { RequestSink, ResponseSink } from '../../exchange.ts'
import { isAuthority, isPath } from '../headers.ts'
import { brokenUpstream, HEAD_TIMEOUT_MS, type OutgoingRequest, type SendOptions } from '../http1/client-exchange.ts'
import { outliveFailedWrites } from '../http1/failed-writes.ts'
import { lookMs, WriteProgress } from '../http1/write-progress.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import { isMethod } from '../methods.ts'
import { type ExchangeOwner, Http2ClientExchange, UnprocessedError } from './client-exchange.ts'
import { type ConnectionOwner, Http2Connection } from './connection.ts'
import { ControlBytes } from './control-bytes.ts'
import { CODE, type ConnectionError } from './frames.ts'
import { outgoingBlock } from './headers.ts'
import { Linger } from './linger.ts'
import type { Http2Stream } from './stream.ts'

/** How long a reset may wait for an upstream that takes nothing before later requests use another session. */
const RESET_MS = 1_000
/**
 * How many resets a session is used for: a burst, and a long-run rate per second. Upstreams that see too many resets end the
 * connection with all its streams (CVE-2023-44487): Envoy checks from 500 streams on, Node and nghttp2 from 1,000.
 */
const RESET_BURST = 200
const RESETS_PER_SECOND = 10
/**
 * Some upstreams take far fewer. Tomcat ends a connection at the fourth, unless complete requests came before, and hyper at some number in
 * the life of a connection. So from these numbers on, those that have other sessions should use them. Two complete exchanges pay for a reset.
 */
const MOST_RESETS_UNPAID = 2
const MOST_RESETS_IN_ALL = 200
/** How long an upstream may take to read what it was sent before a session without exchanges ends. */
const LEAVE_MS = 1_000

interface Http2ClientOptions {
  limits?: Partial<HttpLimits> | undefined
  /** `:scheme` of the requests. Default `http`. */
  scheme?: 'http' | 'https' | undefined
  /** Called once, when the upstream has announced its limits. What is sent earlier may be refused. */
  onSettings?: (() => void) | undefined
  /** Called when the upstream ends the session with an error, or breaks a rule of the connection, before its exchanges fail. */
  onFault?: (() => void) | undefined
  /** Called when the last exchange in progress has ended. */
  onIdle?: ((session: Http2ClientSession) => void) | undefined
  /** Called once, when it carries no more, before its exchanges fail. The connection may take a while to end. */
  onEnd?: (() => void) | undefined
  /** Called once, when the connection is gone. */
  onClose?: ((session: Http2ClientSession) => void) | undefined
}

export class Http2ClientSession implements ExchangeOwner, ConnectionOwner {
  /** Once it is gone: the kernel keeps its local port for a minute, since we have ended it before its upstream did, and without a reset. */
  keepsPort = false
  readonly limits: HttpLimits
  readonly #socket: Socket
  readonly #connection: Http2Connection
  readonly #options: Http2ClientOptions
  readonly #exchanges = new Map<Http2Stream, Http2ClientExchange>()
  readonly #watch: DeadlineWatch
  readonly #resets = new TokenBucket(RESET_BURST, RESETS_PER_SECOND)
  #resetsUnpaid = 0
  #resetsInAll = 0
  readonly #progress = new WriteProgress()
  readonly #control = new ControlBytes()
  #linger: Linger | undefined
  #configured = false
  /** When a stream was reset, if that waits. */
  #resetAt: number | undefined
  #pingAt = 0
  #pinging = false
  /** Set once it accepts no more exchanges. */
  #closing = false
  /** When it began to end, without exchanges. */
  #leftAt: number | undefined
  /** Why the streams end with the session, if they do. */
  #error: SallyportError | undefined

  /** `socket` is connected. The session owns it from now on. */
  constructor(socket: Socket, options: Http2ClientOptions = {}) {
    this.#socket = socket
    this.#options = options
    const limits = { ...DEFAULT_HTTP_LIMITS, ...options.limits }
    this.limits = limits
    this.#watch = new DeadlineWatch(now => this.#check(now), this)
    const guard = guardWith(error => this.threw(error))
    const onLost = guard(() => this.#lose('the connection to the upstream was lost'))
    for (const event of ['end', 'error', 'close']) socket.on(event, onLost)
    const onClose = guard(this.#onClose)
    socket.on('close', onClose)
    // What the upstream has sent before its reset is still read.
    outliveFailedWrites(
      socket,
      guard(() => this.close()),
    )
    this.#connection = new Http2Connection(socket, this, false, limits, limits.headFields + 1)
    this.#watch.within(LOOK_MS)
    this.#connection.start()
  }

  /** Exchanges in progress. */
  get streams(): number {
    return this.#exchanges.size
  }

  /** Whether `send` may be called. */
  get available(): boolean {
    const { over, peer } = this.#connection
    return (
      !this.#closing && !over && this.#exchanges.size < Math.min(peer.maxConcurrentStreams, this.limits.http2Streams)
    )
  }

  /** Whether bodies would wait for each other. */
  get isStarved(): boolean {
    return this.#connection.sender.isStarved
  }

  /** Whether few more resets may make the upstream end it. */
  get isWorn(): boolean {
    return this.#resetsUnpaid > MOST_RESETS_UNPAID || this.#resetsInAll > MOST_RESETS_IN_ALL
  }

  /** Sends a request whose headers are final. A WebSocket is sent as extended CONNECT, if the upstream offers that (RFC 8441). */
  send(request: OutgoingRequest, response: ResponseSink, options: SendOptions = {}): RequestSink {
    const headTimeoutMs = options.headTimeoutMs ?? HEAD_TIMEOUT_MS
    try {
      if (this.#connection.over || this.#leftAt !== undefined)
        throw this.#error ?? brokenUpstream('the session was ended')
      // Some upstreams would end the session, and with it the exchanges of others.
      if (request.upgrade && !this.#connection.peer.takesConnect) throw brokenUpstream('no WebSockets over HTTP/2')
      const block = requestBlock(request, this.#options.scheme ?? 'http')
      const stream = this.#connection.request(block, request.bodyBytes === 0 && !request.upgrade)
      const exchange = new Http2ClientExchange(stream, request, response, this, headTimeoutMs)
      this.#track(stream, exchange, headTimeoutMs)
      if (this.#connection.isUsedUp) this.close()
      return exchange
    } catch (error) {
      const ours = toSallyportError(error)
      response.responseAbort(ours === error ? ours : brokenUpstream(`the request cannot be sent: ${ours.message}`))
      return discarding(response)
    }
  }

  #track(stream: Http2Stream, exchange: Http2ClientExchange, headTimeoutMs: number): void {
    const { expectMs, http2PingMs, stalledMs } = this.limits
    if (this.#exchanges.size === 0) this.#pingAt = performance.now()
    this.#exchanges.set(stream, exchange)
    this.#watch.within(headTimeoutMs || HEAD_TIMEOUT_MS)
    if (stalledMs > 0) this.#watch.within(stalledMs)
    if (http2PingMs > 0) this.#watch.within(http2PingMs)
    if (exchange.awaitsContinue) this.#watch.within(expectMs)
  }

  closed(stream: Http2Stream, isReset: boolean): void {
    this.#exchanges.delete(stream)
    this.#control.requestOver()
    if (this.#connection.over) return
    if (!isReset) this.#resetsUnpaid = Math.max(0, this.#resetsUnpaid - 0.5)
    else if (!stream.refused) this.#countReset()
    if (this.#closing) this.#endIfUnwanted()
    else if (this.#exchanges.size === 0) this.#options.onIdle?.(this)
  }

  /** Resets of one caller's requests, by either side, must not end the session for others, so later requests use another session. */
  #countReset(): void {
    this.#resetsUnpaid++
    this.#resetsInAll++
    if (!this.#resets.take()) this.#closing = true
  }

  resets(): void {
    this.#resetAt ??= performance.now()
    this.#watch.within(RESET_MS)
  }

  /** Accepts no more exchanges, and ends with the last of those in progress. */
  close(): void {
    this.#closing = true
    this.#endIfUnwanted()
  }

  #endIfUnwanted(): void {
    if (this.#exchanges.size === 0) this.#leave()
  }

  /** Ends at once. Exchanges in progress end as `upstream-broken`. */
  destroy(): void {
    this.#end(this.#exchanges.size > 0 ? CODE.cancel : CODE.noError)
  }

  /**
   * Ends without exchanges: with a reset, so that its local port is free again, as soon as the upstream has read everything. Before, the
   * reset could drop a body.
   */
  #leave(): void {
    if (this.#connection.over || this.#leftAt !== undefined) return
    this.#leftAt = performance.now()
    this.#options.onEnd?.()
    this.#connection.leave()
    this.#watch.within(LEAVE_MS)
  }

  /** Sends the last frames, and closes the connection once the upstream has taken what was sent. */
  #end(code: number): void {
    this.#closing = true
    if (this.#connection.over) return
    if (this.#leftAt === undefined) this.#options.onEnd?.()
    this.keepsPort = !this.#socket.destroyed
    this.#connection.goaway(code)
    this.#connection.end(code)
    this.#watch.within(LOOK_MS)
  }

  /** Nothing more will arrive, whether the connection is half closed or lost. */
  #lose(why: string): void {
    // An exchange may go on over another connection, which needs its place.
    this.#socket.destroy()
    this.#fail(brokenUpstream(why), CODE.noError)
  }

  #fail(error: SallyportError, code: number): void {
    if (this.#connection.over) return
    this.#error = error
    this.#end(code)
  }

  /** An error in an event handler or a timer of the session ends it. */
  threw(error: unknown): void {
    endFor(
      error,
      noLogger,
      '',
      () => this.#lose('the session failed'),
      () => this.#socket.destroy(),
    )
  }

  readonly #onClose = (): void => {
    this.#watch.stop()
    this.#options.onClose?.(this)
  }

  // Events of the connection

  opened(): void {}

  settled(): void {}

  asked(): void {}

  configured(): void {
    if (this.#configured) return
    this.#configured = true
    this.#options.onSettings?.()
  }

  goesAway(last: number, code: number): void {
    this.#closing = true
    for (const stream of [...this.#exchanges.keys()]) if (stream.id > last) stream.lose(CODE.refusedStream)
    if (code === CODE.noError) this.#endIfUnwanted()
    else this.#blame(`the upstream went away (${code})`, CODE.noError)
  }

  failed(error: ConnectionError): void {
    this.#blame(`HTTP/2: ${error.message}`, error.code)
  }

  #blame(why: string, code: number): void {
    if (this.#exchanges.size > 0) this.#options.onFault?.()
    this.#fail(brokenUpstream(why), code)
  }

  /** Why a stream was lost. */
  lossOf(code: number): SallyportError {
    if (code === CODE.refusedStream) return new UnprocessedError('the upstream refused the stream')
    return this.#error ?? brokenUpstream(`the upstream reset the stream (${code})`)
  }

  unsentChanged(): void {}

  writeWaits(): void {
    this.#progress.at = 0
    this.#watch.within(lookMs(this.limits.stalledMs))
  }

  wrote(): void {
    this.#progress.at = performance.now()
  }

  ponged(): void {
    this.#pinging = false
    if (this.#leftAt === undefined) return
    // An end of ours could be answered before a reset behind it, and would keep the port.
    resetSocket(this.#socket)
    this.#connection.end(CODE.noError)
  }

  // Deadlines

  #check(now: number): number {
    if (this.#connection.over) {
      this.#linger ??= new Linger(this.#socket, this.limits, now)
      return this.#linger.check(now)
    }
    let next = Math.min(this.#checkControl(now), this.#checkReset(now), this.#checkWrite(now), this.#checkLeave(now))
    if (this.#exchanges.size > 0) next = Math.min(next, this.#checkPing(now))
    for (const exchange of this.#exchanges.values()) next = Math.min(next, checked(exchange, now))
    return this.#connection.over ? LOOK_MS : next
  }

  #checkControl(now: number): number {
    const tooMany = () => this.#blame('too many frames that carry nothing', CODE.enhanceYourCalm)
    return this.#control.check(this.#connection, this.#socket.bytesWritten, this.limits.http2ControlBytes, now, tooMany)
  }

  #checkReset(now: number): number {
    if (this.#connection.sender.unsentBytes === 0) this.#resetAt = undefined
    if (this.#resetAt === undefined) return Number.POSITIVE_INFINITY
    const left = timeLeft(this.#resetAt, RESET_MS, now)
    if (left > 0) return left
    this.close()
    return Number.POSITIVE_INFINITY
  }

  #checkLeave(now: number): number {
    if (this.#leftAt === undefined) return Number.POSITIVE_INFINITY
    return due(this.#leftAt, LEAVE_MS, now, () => this.#end(CODE.noError))
  }

  #checkWrite(now: number): number {
    if (this.#connection.sender.unsentBytes === 0) return Number.POSITIVE_INFINITY
    const left = this.#progress.left(this.#socket, this.limits.stalledMs, now)
    if (left === 0) this.#giveUp('the upstream stopped reading')
    return left || Number.POSITIVE_INFINITY
  }

  /** An upstream that leaves a ping unanswered for as long as we wait for a peer that does not read counts as gone. */
  #checkPing(now: number): number {
    const { http2PingMs, stalledMs } = this.limits
    if (http2PingMs === 0) return Number.POSITIVE_INFINITY
    const left = timeLeft(this.#pingAt, this.#pinging ? stalledMs : http2PingMs, now)
    if (left > 0) return left
    if (this.#pinging) {
      this.#giveUp('the upstream does not answer pings')
      return Number.POSITIVE_INFINITY
    }
    this.#pingAt = now
    this.#pinging = true
    this.#connection.ping()
    return Math.min(http2PingMs, stalledMs)
  }

  #giveUp(why: string): void {
    resetSocket(this.#socket)
    this.#fail(new SallyportError('upstream-timeout', why), CODE.cancel)
  }
}

function checked(exchange: Http2ClientExchange, now: number): number {
  try {
    return exchange.check(now)
  } catch (error) {
    exchange.threw(error)
    return Number.POSITIVE_INFINITY
  }
}

function requestBlock(request: OutgoingRequest, scheme: string): string[] {
  const { method, authority, path, headers, bodyBytes, upgrade } = request
  if (!isMethod(method) || !isPath(path) || (authority !== '' && !isAuthority(authority))) {
    throw new SallyportError('bad-request', 'request line cannot be sent')
  }
  const pseudo = [':method', upgrade ? 'CONNECT' : method, ':scheme', scheme, ':path', path]
  if (authority !== '') pseudo.push(':authority', authority)
  if (upgrade) pseudo.push(':protocol', 'websocket')
  const block = outgoingBlock(pseudo, headers, true)
  if (bodyBytes > 0) block.push('content-length', String(bodyBytes))
  if (upgrade) block.push('sec-websocket-version', '13')
  return block
}
