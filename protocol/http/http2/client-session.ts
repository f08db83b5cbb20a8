/**
 * An upstream HTTP/2 session, for gRPC and similar protocols, with many exchanges at a time. It accepts no more exchanges once its
 * upstream goes away, closes its half, falls silent, or leaves a request unanswered for too long, or when stream ids run out.
 */
import { type ClientHttp2Session, connect, constants } from 'node:http2'
import type { Duplex } from 'node:stream'
import { DeadlineWatch, timeLeft } from '../../base/deadline-watch.ts'
import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { discarding, endFor, type Failing, guardWith, ignore } from '../../base/guard.ts'
import { noLogger } from '../../base/log.ts'
import { resetSocket } from '../../base/reset-socket.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import type { RequestSink, ResponseSink } from '../../exchange.ts'
import { isAuthority, isPath, isToken } from '../headers.ts'
import { brokenUpstream, HEAD_TIMEOUT_MS, type OutgoingRequest, type SendOptions } from '../http1/client-exchange.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import { type ExchangeOwner, Http2ClientExchange, RESET_MS } from './client-exchange.ts'
import { Faults } from './faults.ts'
import { outgoingBlock } from './headers.ts'
import { HeldPieces } from './held-pieces.ts'
import { isWorn, maxSessionMemory } from './session-memory.ts'

/** A request may repeat fields that Node regards as single. The upstream decides what that means. */
const LENIENT: object = { strictSingleValueFields: false }

/** How long an upstream may take to close a connection that we have closed. */
const LINGER_MS = 1_000
/**
 * How many resets a session is used for: a burst, and a long-run rate per second. Upstreams that see too many resets end the
 * connection with all its streams (CVE-2023-44487): Envoy checks from 500 streams on, Node and nghttp2 from 1,000.
 */
const RESET_BURST = 200
const RESETS_PER_SECOND = 10
const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR } = constants
const LAST_STREAM_ID = 2 ** 31 - 1
/** Node's default. */
const MOST_FAULTS = 1_000

interface Http2ClientOptions {
  limits?: Partial<HttpLimits> | undefined
  /** `:scheme` of the requests. Default `http`. */
  scheme?: 'http' | 'https' | undefined
  /** Called once, when the upstream has announced its limits. What is sent earlier may be refused. */
  onSettings?: (() => void) | undefined
  /** Called when the last exchange in progress has ended. */
  onIdle?: ((session: Http2ClientSession) => void) | undefined
  /** Called once, when the connection is gone. */
  onClose?: ((session: Http2ClientSession) => void) | undefined
}

export class Http2ClientSession implements ExchangeOwner, Failing {
  readonly limits: HttpLimits
  readonly held: HeldPieces
  readonly #socket: Duplex
  readonly #session: ClientHttp2Session
  readonly #options: Http2ClientOptions
  readonly #exchanges = new Set<Http2ClientExchange>()
  readonly #watch: DeadlineWatch
  readonly #resets = new TokenBucket(RESET_BURST, RESETS_PER_SECOND)
  /** Memory that streams took with them. */
  #lostBytes = 0
  #pingAt = 0
  #pinging = false
  /** Set once it accepts no more exchanges. */
  #closing = false
  /** Nothing more is sent, and the connection is about to close. */
  #over = false

  /** `socket` is connected. The session owns it from now on. */
  constructor(socket: Duplex, options: Http2ClientOptions = {}) {
    this.#socket = socket
    this.held = new HeldPieces(socket)
    this.#options = options
    this.limits = { ...DEFAULT_HTTP_LIMITS, ...options.limits }
    this.#watch = new DeadlineWatch(now => this.#check(now), this)
    // Before Node's own listeners, which discard what waits in the streams.
    const guard = guardWith(error => this.threw(error))
    const onLost = guard(this.#onLost)
    for (const event of ['end', 'error', 'close']) socket.on(event, onLost)
    const session = connect('http://upstream.invalid', {
      createConnection: () => socket,
      settings: {
        enablePush: false,
        initialWindowSize: this.limits.http2WindowBytes,
        maxHeaderListSize: this.limits.headBytes * 2,
      },
      maxHeaderListPairs: this.limits.headFields * 2,
      maxSessionMemory: maxSessionMemory(this.limits),
      ...LENIENT,
    })
    this.#session = session
    const destroy = session.destroy.bind(session)
    const faults = new Faults(session, MOST_FAULTS)
    // If the upstream breaks the rules, Node ends the session by itself and destroys the streams one by one.
    session.destroy = guard((error?: Error, code?: number) => {
      if (faults.spares(error)) return
      this.#settle(brokenUpstream(error?.message ?? 'the session was ended'))
      destroy(error, code)
    })
    // At a go-away, Node closes the session by itself and sends no more pings. We end the session with its last exchange.
    session.close = guard(() => this.close())
    session.on('error', ignore)
    const { onSettings } = options
    if (onSettings !== undefined) session.once('remoteSettings', guard(onSettings))
    session.on('goaway', guard(this.#onGoaway))
    session.on('close', onLost)
    socket.on('close', guard(this.#onClose))
    if (session.connecting) session.once('connect', guard(this.#widen))
    else this.#widen()
  }

  readonly #widen = (): void => {
    if (!this.#session.destroyed) this.#session.setLocalWindowSize(this.limits.http2SessionWindowBytes)
  }

  /** Exchanges in progress. */
  get streams(): number {
    return this.#exchanges.size
  }

  /** Whether `send` may be called. */
  get available(): boolean {
    if (this.#closing || this.#session.destroyed) return false
    const most = this.#session.remoteSettings?.maxConcurrentStreams ?? this.limits.http2Streams
    return this.#exchanges.size < Math.min(most, this.limits.http2Streams)
  }

  /** Sends a request whose headers are final. A WebSocket is sent as extended CONNECT (RFC 8441). */
  send(request: OutgoingRequest, response: ResponseSink, options: SendOptions = {}): RequestSink {
    const headTimeoutMs = options.headTimeoutMs ?? HEAD_TIMEOUT_MS
    try {
      const hasBody = request.bodyBytes !== 0 || request.upgrade
      const stream = this.#session.request(requestBlock(request, this.#options.scheme ?? 'http'), {
        endStream: !hasBody,
        waitForTrailers: hasBody && !request.upgrade,
      } as object)
      const exchange = new Http2ClientExchange(stream, request, response, this, headTimeoutMs)
      this.#track(exchange, headTimeoutMs)
      if (stream.id === LAST_STREAM_ID) this.close()
      return exchange
    } catch (error) {
      const ours = toSallyportError(error)
      response.responseAbort(ours === error ? ours : brokenUpstream(`the request cannot be sent: ${ours.message}`))
      return discarding(response)
    }
  }

  #track(exchange: Http2ClientExchange, headTimeoutMs: number): void {
    const { expectMs, http2PingMs, stalledMs } = this.limits
    if (this.#exchanges.size === 0) this.#pingAt = performance.now()
    this.#exchanges.add(exchange)
    this.#watch.within(headTimeoutMs || HEAD_TIMEOUT_MS)
    if (stalledMs > 0) this.#watch.within(stalledMs)
    if (http2PingMs > 0) this.#watch.within(http2PingMs)
    if (exchange.awaitsContinue) this.#watch.within(expectMs)
  }

  /** @internal */
  ended(exchange: Http2ClientExchange): void {
    this.#exchanges.delete(exchange)
    this.#lostBytes += exchange.lostBytes
    if (isWorn(this.#lostBytes, this.limits)) this.#closing = true
    if (this.#over) return
    if (this.#closing || this.#session.destroyed) this.#endIfUnwanted()
    else if (this.#exchanges.size === 0) this.#options.onIdle?.(this)
  }

  /** Callers that cancel many requests must not end the session for others, so later requests use another session. */
  resets(): void {
    if (!this.#resets.take()) this.close()
    this.#watch.within(RESET_MS)
  }

  /** Accepts no more exchanges, and ends once nobody waits for those in progress. */
  close(): void {
    this.#closing = true
    this.#endIfUnwanted()
  }

  #endIfUnwanted(): void {
    for (const exchange of this.#exchanges) if (!exchange.isStuck) return
    this.#end(this.#exchanges.size === 0 ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL)
  }

  /** Ends at once. Exchanges in progress end as `upstream-broken`. */
  destroy(): void {
    this.#end(NGHTTP2_CANCEL)
  }

  /** Sends the last frames, and closes the connection once they have left, or after a while. */
  #end(code: number): void {
    this.#closing = true
    if (this.#over) return
    this.#over = true
    this.#watch.within(LINGER_MS)
    this.#session.destroy(undefined, code)
  }

  readonly #onGoaway = (code: number): void => {
    // Node ends the session and all its streams next.
    if (code !== NGHTTP2_NO_ERROR) this.#settle(brokenUpstream(`the upstream went away (${code})`))
    this.close()
  }

  /** Nothing more will arrive, whether the connection is half closed or lost. */
  readonly #onLost = (): void => {
    this.#settle(brokenUpstream('the connection to the upstream was lost'))
    this.#end(NGHTTP2_NO_ERROR)
    this.#socket.destroy()
  }

  /** An error in an event handler or a timer of the session ends it. */
  threw(error: unknown): void {
    endFor(error, noLogger, '', this.#onLost, () => this.#socket.destroy())
  }

  #settle(error: SallyportError): void {
    this.#closing = true
    for (const exchange of [...this.#exchanges]) {
      try {
        exchange.settle(error)
      } catch (cause) {
        exchange.threw(cause)
      }
    }
  }

  readonly #onClose = (): void => {
    this.#watch.stop()
    this.#options.onClose?.(this)
  }

  #check(now: number): number {
    if (this.#over) {
      resetSocket(this.#socket)
      return Number.POSITIVE_INFINITY
    }
    if (this.#exchanges.size === 0) return Number.POSITIVE_INFINITY
    let next = this.#checkPing(now)
    for (const exchange of this.#exchanges) next = Math.min(next, checked(exchange, now))
    return this.#over ? LINGER_MS : next
  }

  /** An upstream that leaves a ping unanswered for as long as we wait for a peer that does not read counts as gone. */
  #checkPing(now: number): number {
    const { http2PingMs, stalledMs } = this.limits
    if (http2PingMs === 0 || this.#session.destroyed) return Number.POSITIVE_INFINITY
    const left = timeLeft(this.#pingAt, this.#pinging ? stalledMs : http2PingMs, now)
    if (left > 0) return left
    if (this.#pinging) {
      this.#settle(new SallyportError('upstream-timeout', 'the upstream does not answer pings'))
      this.#end(NGHTTP2_CANCEL)
      resetSocket(this.#socket)
      return Number.POSITIVE_INFINITY
    }
    this.#pingAt = now
    this.#pinging = this.#session.ping(this.#onPong)
    return Math.min(http2PingMs, stalledMs)
  }

  readonly #onPong = (): void => {
    this.#pinging = false
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
  if (!isToken(method) || !isPath(path) || (authority !== '' && !isAuthority(authority))) {
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
