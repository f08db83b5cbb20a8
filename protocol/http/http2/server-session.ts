/** A downstream HTTP/2 session (RFC 9113) on an accepted socket, through `node:http2`. */
import { constants, performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { canonicalAddress } from '../../base/address.ts'
import type { BudgetMember, BufferBudget } from '../../base/budget.ts'
import { DeadlineWatch, due, LOOK_MS, timeLeft } from '../../base/deadline-watch.ts'
import { type ErrorCode, type SallyportError, toSallyportError } from '../../base/errors.ts'
import { endFor, type Failing, guardWith, ignore, logDefect, stepOf } from '../../base/guard.ts'
import { noLogger } from '../../base/log.ts'
import { resetSocket } from '../../base/reset-socket.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { BODY_UNKNOWN, type HeaderList, type HttpRequest } from '../../exchange.ts'
import type { ManagedConnection } from '../connection-set.ts'
import type { Http1ServerOptions } from '../http1/server-connection.ts'
import { queuedInHandle } from '../http1/write-progress.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import { unreadRequest } from '../unread-request.ts'
import { Faults, isViolation } from './faults.ts'
import { HeldPieces } from './held-pieces.ts'
import { expectsContinue, http2Request } from './request-head.ts'
import { breakStream } from './reset.ts'
import { Http2ServerExchange, type Http2SessionContext, unreadBytes } from './server-exchange.ts'
import { isWorn, maxSessionMemory } from './session-memory.ts'
import { SharedStrings } from './shared-strings.ts'
import { UnsentAnswers } from './unsent-answers.ts'

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_FLAG_END_STREAM, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants

/** For each KB that we send, a caller may send a window update of 13 bytes for the connection and another for the stream. */
const WINDOW_SHARE = 40
/** For each piece of an answer, however small, a caller may send a ping of 17 bytes and two window updates of 13. */
const PIECE_ECHO_BYTES = 17 + 2 * 13

/** How much of a header block Node reads before it resets the stream. We answer with 431 below that. */
const RECEIVED_HEAD_FACTOR = 2
/** More cookies than a browser has for a site. They count as one field, but Node counts each. */
const COOKIES = 256

/** How many requests of one session start in one turn. Answers to earlier ones can leave before the next turn. */
const REQUESTS_PER_TURN = 16
/** While the caller has not taken this much of cheap answers, no request is started. */
const MAX_UNSENT_BYTES = 192 * 1024

const NO_LIMIT = 2 ** 32 - 1

/** A stream, and its exchange once that has begun. */
interface Arrival {
  readonly stream: ServerHttp2Stream
  /** The request has a head and nothing else. */
  readonly ended: boolean
  raw: string[]
  trailers: string[] | undefined
  exchange: Http2ServerExchange | undefined
}

interface Http2ServerOptions extends Omit<Http1ServerOptions, 'dates'> {
  /** See `ListenerOptions`. */
  boundsBodies?: boolean | undefined
}

/** Serves HTTP/2 on a socket from which the preface has not been read, or was put back. */
export function serveHttp2(socket: Socket | TLSSocket, options: Http2ServerOptions): ManagedConnection {
  return new Http2ServerSession(socket, options)
}

class Http2ServerSession implements ManagedConnection, BudgetMember, Failing {
  static readonly #beginDue = stepOf<Http2ServerSession>(session => session.#beginAll())
  static readonly #lookDue = stepOf<Http2ServerSession>(session => session.#look())
  static readonly #closeDue = stepOf<Http2ServerSession>(session => session.close())
  readonly #session: ServerHttp2Session
  readonly #options: Http2ServerOptions
  readonly #limits: HttpLimits
  readonly #peer: { address: string; encrypted: boolean }
  readonly #exchanges = new Set<Http2ServerExchange>()
  readonly #arrivals: Arrival[] = []
  readonly #context: Http2SessionContext
  readonly #watch: DeadlineWatch
  /** Counts streams that ended before their response, and frames that ask for an answer. */
  readonly #resets: TokenBucket
  readonly #answers: TokenBucket
  readonly #socket: Socket | TLSSocket
  /** What is held for answers that the caller has not taken: by streams, and by Node. */
  usedBytes = 0
  readonly #unsent: UnsentAnswers
  readonly #unread: BufferBudget | undefined
  #idleSince = performance.now()
  /** Bytes that finished exchanges account for, and the surplus at the last check. */
  #accounted = 0
  #surplus = 0
  #controlAt = performance.now()
  /** Memory that streams took with them. */
  #lostBytes = 0
  #pingAt = 0
  #pinging = false
  /** How many pieces of answers had left at the caller's last ping. */
  #piecesAtPing = 0
  /** When the session was first seen to be over, and when its caller last took or sent something after that, as `#moved` shows. */
  #leftAt: number | undefined
  #movedAt = 0
  #moved: number | undefined
  #closed = false
  /** A request has arrived. */
  #used = false
  /** The session ends with its first requests. */
  #leaving = false

  constructor(socket: Socket | TLSSocket, options: Http2ServerOptions) {
    this.#socket = socket
    this.#options = options
    this.#limits = { ...DEFAULT_HTTP_LIMITS, ...options.limits }
    const { corsOf, logger = noLogger, boundsBodies = false } = options
    const strings = new SharedStrings()
    const counts = { unsentBytes: 0, pieces: 0 }
    const keep = (bytes: number) => this.#keep(bytes)
    const held = new HeldPieces(socket)
    const lookIf = (due: boolean) => due && setImmediate(Http2ServerSession.#lookDue, this)
    const gave = (fields: HeaderList) => lookIf(this.#unsent.head(fields))
    const left = (bytes: number) => lookIf(this.#unsent.more(bytes))
    const given = { strings, logger, corsOf, keep, gave, left, held, boundsBodies }
    this.#context = { why: 'cancelled', limits: this.#limits, ...given, ...counts }
    this.#peer = {
      address: canonicalAddress(options.peerAddress ?? socket.remoteAddress ?? ''),
      encrypted: options.encrypted ?? 'encrypted' in socket,
    }
    this.#resets = new TokenBucket(this.#limits.http2ResetBurst, this.#limits.http2ResetRate)
    this.#answers = new TokenBucket(this.#limits.http2ResetBurst, this.#limits.http2ResetRate)
    this.#watch = new DeadlineWatch(now => this.#check(now), this)
    socket.setNoDelay(true)
    // A caller that closes its half of the connection no longer wants the session, whatever still waits for it.
    socket.allowHalfOpen = false
    const guard = guardWith(error => this.threw(error))
    const onEnd = guard(() => this.#leave())
    socket.once('end', onEnd)
    const session = performServerHandshake(socket, sessionOptions(this.#limits))
    this.#session = session
    this.#unsent = new UnsentAnswers(session, socket, held)
    const destroy = session.destroy.bind(session)
    const faults = new Faults(session, this.#limits.http2ResetBurst)
    session.destroy = guard((error?: Error, code?: number) => {
      if (faults.spares(error)) return
      if (isViolation(error)) this.#context.why = 'bad-request'
      for (const exchange of this.#exchanges) exchange.sessionEnds()
      destroy(error, code)
    })
    session.on('stream', (stream, _headers, flags, raw: string[]) => {
      try {
        this.#onStream(stream, flags, raw)
      } catch (error) {
        this.threw(error)
      }
    })
    const onError = guard((error: Error) => this.#log(error))
    const onAnswered = guard(this.#onAnswered)
    session.on('error', onError)
    session.on('close', guard(this.#onClose))
    session.on('ping', guard(this.#onPing))
    session.on('remoteSettings', onAnswered)
    session.setLocalWindowSize(this.#limits.http2SessionWindowBytes)
    options.connections?.add(this)
    this.#unread = options.connections?.unreadOf(this.#peer.address)
    this.#unread?.join(this)
    this.#watch.within(LOOK_MS)
  }

  #log(err: { readonly message: string }): void {
    this.#context.logger.debug({ peer: this.#peer.address, err }, 'HTTP/2 session')
  }

  /** A request starts once everything that was read has been handled. So a stream that was reset in the same read costs no exchange. */
  #onStream(stream: ServerHttp2Stream, flags: number, raw: string[]): void {
    this.#used = true
    if (this.#leaving) setImmediate(Http2ServerSession.#closeDue, this)
    const ended = (flags & NGHTTP2_FLAG_END_STREAM) !== 0
    const arrival: Arrival = { stream, ended, raw, trailers: undefined, exchange: undefined }
    // We act when the stream closes, which follows each of its errors.
    stream.on('error', ignore)
    stream.once('close', () => {
      try {
        this.#left(arrival)
      } catch (error) {
        this.threw(error)
      }
    })
    if (!ended) {
      stream.once('trailers', (_object: unknown, _flags: number, trailers: string[] = []) => {
        try {
          arrival.trailers = trailers
          arrival.exchange?.trailers(trailers)
        } catch (error) {
          arrival.exchange?.threw(error)
        }
      })
    }
    if (this.#arrivals.push(arrival) === 1) setImmediate(Http2ServerSession.#beginDue, this)
  }

  #beginAll(): void {
    for (const arrival of this.#arrivals.splice(0, REQUESTS_PER_TURN)) {
      try {
        this.#take(arrival)
      } catch (error) {
        this.#broke(arrival, error)
      }
    }
    if (this.#arrivals.length > 0) setImmediate(Http2ServerSession.#beginDue, this)
  }

  #take(arrival: Arrival): void {
    const { stream } = arrival
    // The request was not started and may be sent again (RFC 9113, section 8.7).
    if (this.#context.unsentBytes > MAX_UNSENT_BYTES) stream.close(NGHTTP2_REFUSED_STREAM)
    if (stream.closed) stream.resume()
    else this.#begin(arrival)
  }

  /** An error at the start of a stream ends that stream. */
  #broke({ stream, exchange }: Arrival, error: unknown): void {
    if (exchange !== undefined) exchange.threw(error)
    else {
      logDefect(this.#context.logger, 'a request over HTTP/2 could not be begun', error)
      breakStream(stream)
    }
  }

  #begin(arrival: Arrival): void {
    const { ended, raw, trailers } = arrival
    // The arrival lives as long as its stream.
    arrival.raw = NOTHING
    let request: HttpRequest
    try {
      request = http2Request(this.#context.strings.share(raw), ended, this.#limits, this.#peer)
    } catch (error) {
      this.#refuse(arrival, raw, toSallyportError(error))
      return
    }
    const exchange = this.#track(arrival, request)
    if (trailers !== undefined) exchange.trailers(trailers)
    exchange.start(this.#options.handler)
  }

  #track(arrival: Arrival, request: HttpRequest): Http2ServerExchange {
    const exchange = new Http2ServerExchange(arrival.stream, request, this.#context)
    arrival.exchange = exchange
    if (this.#exchanges.size === 0) this.#pingAt = performance.now()
    this.#exchanges.add(exchange)
    const { bodyIdleMs, expectMs, http2PingMs } = this.#limits
    this.#watch.within(Math.min(bodyIdleMs || LOOK_MS, http2PingMs || LOOK_MS))
    if (expectsContinue(request)) this.#watch.within(expectMs || LOOK_MS)
    return exchange
  }

  /** A proxy's session carries requests of many callers. One that cancels too many must not end those of others. */
  #left({ stream, ended, exchange }: Arrival): void {
    if (exchange !== undefined) this.#exchanges.delete(exchange)
    if (this.#exchanges.size === 0) this.#idleSince = performance.now()
    this.#accounted += exchange?.received ?? unreadBytes(this.#limits, ended)
    this.#lostBytes += exchange?.lostBytes ?? 0
    if (isWorn(this.#lostBytes, this.#limits)) this.close()
    const reset = (stream.aborted || stream.rstCode !== NGHTTP2_NO_ERROR) && exchange?.isShed !== true
    if (reset && !this.#resets.take()) this.close()
  }

  /** Answers a request that must not be forwarded. */
  #refuse(arrival: Arrival, raw: string[], error: SallyportError): void {
    const request = refusedRequest(raw, this.#peer.address)
    this.#options.onBadRequest?.(error, request)
    this.#log(error)
    this.#track(arrival, request).responseAbort(error)
    arrival.stream.resume()
  }

  /** Go's gRPC measures its path with a ping for each piece of an answer. One ping costs no more than the piece. */
  readonly #onPing = (): void => {
    const { pieces } = this.#context
    if (pieces === this.#piecesAtPing) this.#onAnswered()
    this.#piecesAtPing = pieces
  }

  readonly #onAnswered = (): void => {
    if (!this.#answers.take()) this.#calm('too many pings or settings')
  }

  #calm(why: string): void {
    if (this.#closed || this.#session.destroyed) return
    this.#log({ message: why })
    this.#context.why = 'too-many-requests'
    this.#session.goaway(NGHTTP2_ENHANCE_YOUR_CALM)
    this.#session.destroy(undefined, NGHTTP2_ENHANCE_YOUR_CALM)
  }

  readonly #onClose = (): void => {
    this.#closed = true
    this.#watch.stop()
    this.#options.connections?.delete(this)
    this.#keep(-this.#unsent.bytes)
    this.#unread?.leave(this)
  }

  #keep(bytes: number): void {
    this.#count(bytes)
    if (bytes > 0) this.#unread?.enforce()
  }

  #count(bytes: number): void {
    this.usedBytes += bytes
    this.#unread?.take(bytes)
  }

  #look(): void {
    if (!this.#closed) this.#keep(this.#unsent.look())
  }

  /**
   * Of its network's connections, this one holds the most. If it is a proxy's, the answers that hold the most are those of few of
   * its callers. What Node holds is freed only with the connection.
   */
  shed(bytes: number): number {
    const before = this.usedBytes
    this.#log({ message: 'too many answers that the caller does not take' })
    this.#count(this.#unsent.look())
    const kept = [...this.#exchanges].filter(({ keptBytes }) => keptBytes > 0)
    for (const exchange of kept.sort((a, b) => b.keptBytes - a.keptBytes)) {
      if (before - this.usedBytes < bytes) exchange.shed()
    }
    if (before - this.usedBytes < bytes && this.#unsent.bytes > 0) {
      this.destroy('overloaded')
      this.#look()
    }
    return before - this.usedBytes
  }

  get address(): string {
    return this.#peer.address
  }

  get idle(): boolean {
    return this.#exchanges.size + this.#arrivals.length === 0 && queuedInHandle(this.#socket) === 0
  }

  /**
   * nghttp2 begins no request after a go-away, whatever it says. So the only one says which requests were begun, and callers can send
   * the others again at once. A caller that has just connected may send its request first, since many do not reconnect if they could
   * send nothing.
   */
  close(patienceMs = 0): void {
    if (this.#session.destroyed) return
    this.#leaving = patienceMs > 0 && !this.#used
    if (this.#leaving) setTimeout(Http2ServerSession.#closeDue, patienceMs, this).unref()
    else this.#session.close()
  }

  destroy(why: ErrorCode): void {
    if (this.#closed) return
    this.#context.why = why
    this.#socket.destroy()
    this.#session.destroy()
  }

  /** Ends the session, and the connection once the caller has taken what was sent. */
  #leave(): void {
    if (this.#closed) return
    this.#session.destroy()
    if (this.#limits.drainMs > 0) this.#watch.within(this.#limits.drainMs)
  }

  /** An error in an event handler or a timer of the session ends this session and no other. */
  threw(error: unknown): void {
    this.#context.why = 'internal'
    const cut = () => resetSocket(this.#socket)
    endFor(error, this.#context.logger, 'a session over HTTP/2 failed', () => this.#session.destroy(), cut)
  }

  #check(now: number): number {
    this.#look()
    if (this.#session.destroyed) return this.#checkLeaving(now)
    let next = this.#checkControl(now)
    // That may have ended it.
    if (this.#session.destroyed) return next
    if (this.#exchanges.size === 0) next = Math.min(next, this.#checkIdle(now))
    else next = Math.min(next, this.#checkPing(now))
    for (const exchange of this.#exchanges) next = Math.min(next, exchange.check(now))
    return this.#closed ? Number.POSITIVE_INFINITY : next
  }

  /**
   * The session is over. Its socket lives until the caller has taken what was sent, which may never happen. One that still reads sends
   * window updates. If the socket were closed, they would be answered with a reset, and the caller would lose what is on its way.
   */
  #checkLeaving(now: number): number {
    const { drainMs, lingerMs } = this.#limits
    const moved = this.#socket.bytesRead - queuedInHandle(this.#socket)
    if (moved !== this.#moved) this.#movedAt = now
    this.#moved = moved
    this.#leftAt ??= now
    return Math.min(due(this.#movedAt, drainMs, now, this.#onLeft), due(this.#leftAt, lingerMs, now, this.#onLeft))
  }

  /** What the kernel has taken may still be on its way to a caller that reads slowly. */
  readonly #onLeft = (): void => {
    if (queuedInHandle(this.#socket) > 0) resetSocket(this.#socket)
    else this.#socket.destroy()
  }

  /**
   * Node does not show us frames such as window updates. We count them as the remainder: bytes that no exchange accounts for, less
   * what a reader of our bytes may send to update its windows and to measure the path.
   */
  #checkControl(now: number): number {
    const limit = this.#limits.http2ControlBytes
    if (limit === 0) return LOOK_MS
    const left = timeLeft(this.#controlAt, LOOK_MS, now)
    if (left > 0) return left
    const echoed = Math.floor(this.#socket.bytesWritten / WINDOW_SHARE) + this.#context.pieces * PIECE_ECHO_BYTES
    let accounted = this.#accounted + echoed
    for (const exchange of this.#exchanges) accounted += exchange.received
    const surplus = Math.max(0, this.#socket.bytesRead - accounted)
    const allowed = (limit * (now - this.#controlAt)) / 1000
    if (surplus - this.#surplus > allowed) this.#calm('too many frames that carry nothing')
    this.#surplus = surplus
    this.#controlAt = now
    return LOOK_MS
  }

  #checkIdle(now: number): number {
    const { keepAliveMs } = this.#limits
    const left = timeLeft(this.#idleSince, keepAliveMs, now)
    if (left > 0) return left
    // A peer that left streams half sent is gone once the same time has passed again.
    if (now - this.#idleSince > 2 * keepAliveMs) this.#leave()
    else this.close()
    return keepAliveMs
  }

  /**
   * A caller with open streams that does not answer pings is gone, even though its streams may legitimately be quiet. One that only
   * stopped reading has as long as over HTTP/1.1.
   */
  #checkPing(now: number): number {
    const { http2PingMs, stalledMs } = this.#limits
    if (http2PingMs === 0) return Number.POSITIVE_INFINITY
    const left = timeLeft(this.#pingAt, this.#pinging ? stalledMs : http2PingMs, now)
    if (left > 0) return left
    if (this.#pinging) {
      this.#log({ message: 'the caller does not answer pings' })
      this.#context.why = 'request-timeout'
      resetSocket(this.#socket)
      this.#session.destroy()
      return Number.POSITIVE_INFINITY
    }
    this.#pingAt = now
    this.#pinging = this.#session.closed || this.#session.ping(this.#onPong)
    // After a go-away, Node sends no pings. Settings are answered, too.
    if (this.#session.closed) this.#session.settings({}, this.#onPong)
    return http2PingMs
  }

  readonly #onPong = (): void => {
    this.#pinging = false
  }
}

const NOTHING: string[] = []

function sessionOptions(limits: HttpLimits) {
  return {
    settings: {
      enableConnectProtocol: true,
      maxConcurrentStreams: limits.http2Streams,
      initialWindowSize: limits.http2WindowBytes,
      maxHeaderListSize: limits.headBytes * RECEIVED_HEAD_FACTOR,
    },
    maxHeaderListPairs: limits.headFields * RECEIVED_HEAD_FACTOR + COOKIES,
    maxSessionMemory: maxSessionMemory(limits),
    maxSessionInvalidFrames: limits.http2ResetBurst,
    maxSessionRejectedStreams: limits.http2ResetBurst,
    // We count resets. nghttp2 also counts those of streams that have ended, and then ends all others.
    streamResetBurst: NO_LIMIT,
    streamResetRate: NO_LIMIT,
    strictSingleValueFields: false,
  }
}

function refusedRequest(raw: readonly string[], peerAddress: string): HttpRequest {
  const read = (name: string) => {
    for (let i = 0; i < raw.length; i += 2) if (raw[i] === name) return raw[i + 1]
    return undefined
  }
  const authority = read(':authority') ?? read('host')
  const head = { method: read(':method'), authority, path: read(':path'), origin: read('origin'), peerAddress }
  // The rest of the request's body is cut off after the answer.
  return unreadRequest(head, BODY_UNKNOWN)
}
