/** A downstream HTTP/2 session (RFC 9113) on an accepted socket. */
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { canonicalAddress } from '../../base/address.ts'
import type { BudgetMember, BufferBudget } from '../../base/budget.ts'
import { DeadlineWatch, LOOK_MS, timeLeft } from '../../base/deadline-watch.ts'
import { type ErrorCode, type SallyportError, toSallyportError } from '../../base/errors.ts'
import { endFor, guardWith, ignore, logDefect, stepOf } from '../../base/guard.ts'
import { noLogger } from '../../base/log.ts'
import { resetSocket } from '../../base/reset-socket.ts'
import { type Beginner, beginLater, heardFirst } from '../../base/socket-turns.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { BODY_UNKNOWN, type HttpRequest } from '../../exchange.ts'
import type { ManagedConnection } from '../connection-set.ts'
import { textBytes } from '../headers.ts'
import type { Http1ServerOptions } from '../http1/server-connection.ts'
import { lookMs, WriteProgress } from '../http1/write-progress.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import { unreadRequest } from '../unread-request.ts'
import { type ConnectionOwner, Http2Connection } from './connection.ts'
import { ControlBytes } from './control-bytes.ts'
import { CODE, type ConnectionError } from './frames.ts'
import type { HeaderBlock } from './header-blocks.ts'
import { MalformedError } from './headers.ts'
import { Linger } from './linger.ts'
import { expectsContinue, http2Request, oversized } from './request-head.ts'
import { Http2ServerExchange, type Http2SessionContext, STREAM_BYTES } from './server-exchange.ts'
import type { Http2Stream } from './stream.ts'

/** More cookies than a browser has for a site. They count as one field. */
const COOKIES = 256

/** While the caller has not taken this much of cheap answers, no request is started. */
const MAX_UNSENT_BYTES = 128 * 1024

/** What each name and each value of a head takes beside its text, which they may share with other heads. */
const TEXT_BYTES = 8

/** How long a caller has for what is on its way if it does not say that it has heard of the go-away. */
const LEAVING_MS = 2000

/** A stream that was opened, and whose request has not begun. */
interface Arrival {
  readonly stream: Http2Stream
  readonly head: HeaderBlock
  /** What its head takes in memory. A peer can send it in far fewer. */
  readonly headBytes: number
}

type Http2ServerOptions = Omit<Http1ServerOptions, 'dates'>

/** Serves HTTP/2 on a socket. `first` holds bytes that were already read from it. The session owns the socket from now on. */
export function serveHttp2(socket: Socket | TLSSocket, options: Http2ServerOptions, first?: Buffer): ManagedConnection {
  return new Http2ServerSession(socket, options, first)
}

class Http2ServerSession implements ManagedConnection, BudgetMember, ConnectionOwner, Beginner {
  static readonly #closeDue = heardFirst(stepOf<Http2ServerSession>(session => session.close()))
  readonly #connection: Http2Connection
  readonly #options: Http2ServerOptions
  readonly #limits: HttpLimits
  readonly #peer: { address: string; encrypted: boolean }
  readonly #exchanges = new Map<Http2Stream, Http2ServerExchange>()
  readonly #arrivals: Arrival[] = []
  readonly #context: Http2SessionContext
  readonly #watch: DeadlineWatch
  /** Counts streams that ended before their response, and frames that ask for an answer. */
  #resets: TokenBucket
  readonly #answers: TokenBucket
  readonly #socket: Socket | TLSSocket
  /** What is held for requests, and for answers that the caller has not taken. */
  usedBytes = 0
  /** The part of it that belongs to no exchange: it waits for the socket, for the rest of a head, or to begin. */
  #ownBytes = 0
  #arrivedBytes = 0
  /** A stream is reset for want of memory, which is not its caller's doing. */
  #refusing = false
  readonly #unread: BufferBudget | undefined
  readonly #progress = new WriteProgress()
  #linger: Linger | undefined
  #idleSince = performance.now()
  readonly #control = new ControlBytes()
  #pingAt = 0
  #pinging = false
  /** How many pieces of answers had left at the caller's last ping. */
  #piecesAtPing = 0
  /** The socket is gone. */
  #closed = false
  /** A request has arrived. */
  #used = false
  /** The caller will be asked to leave with its first request. */
  #leaving = false
  /** The caller was asked to leave. */
  #wasAsked = false
  /** No more requests are begun. The session ends with those in progress. */
  #closing = false

  constructor(socket: Socket | TLSSocket, options: Http2ServerOptions, first: Buffer | undefined) {
    this.#socket = socket
    this.#options = options
    const limits = { ...DEFAULT_HTTP_LIMITS, ...options.limits }
    this.#limits = limits
    const { corsOf, logger = noLogger, boundsBodies = false } = options
    const keep = (bytes: number) => this.#keep(bytes)
    const untaken = new Set<Http2ServerExchange>()
    this.#context = { why: 'cancelled', limits, logger, corsOf, keep, boundsBodies, unsentBytes: 0, untaken }
    this.#peer = {
      address: canonicalAddress(options.peerAddress ?? socket.remoteAddress ?? ''),
      encrypted: options.encrypted ?? 'encrypted' in socket,
    }
    this.#resets = this.#bucket()
    this.#answers = this.#bucket()
    this.#watch = new DeadlineWatch(now => this.#check(now), this)
    const guard = guardWith(error => this.threw(error))
    // A caller that closes its half of the connection no longer wants the session, whatever still waits for it.
    const onEnd = guard(() => this.#leave(CODE.noError))
    const onClose = guard(this.#onClose)
    socket.once('end', onEnd)
    socket.on('error', ignore)
    socket.once('close', onClose)
    this.#connection = new Http2Connection(socket, this, true, limits, limits.headFields + 5 + COOKIES)
    options.connections?.add(this)
    this.#unread = options.connections?.unreadOf(this.#peer.address)
    this.#unread?.join(this)
    this.#watch.within(LOOK_MS)
    this.#connection.start(options.reader, first)
  }

  #log(err: { readonly message: string }): void {
    this.#context.logger.debug({ peer: this.#peer.address, err }, 'HTTP/2 session')
  }

  // Requests

  opened(stream: Http2Stream, head: HeaderBlock): void {
    this.#used = true
    if (this.#leaving) this.#askToLeave()
    const { fields } = head
    this.#arrivals.push({ stream, head, headBytes: textBytes(fields) + fields.length * TEXT_BYTES })
  }

  /** Requests start once what was read in this turn has been handled. So a stream that is reset right away costs no exchange. */
  settled(): void {
    this.#pace()
    if (this.#arrivals.length > 0) beginLater(this)
  }

  /** As over HTTP/1.1, reading stops while too much waits of requests that have not begun. */
  #pace(): void {
    let bytes = 0
    for (const arrival of this.#arrivals) bytes += bytesOf(arrival)
    this.#connection.holdBack(bytes > this.#limits.bufferBytes)
    this.#countArrived(bytes + this.#arrivals.length * STREAM_BYTES)
  }

  #countArrived(bytes: number): void {
    this.#arrivedBytes = bytes
    this.unsentChanged()
  }

  beginMore(most: number): void {
    if (this.#connection.over) this.#arrivals.length = 0
    const wasFull = this.#isFull
    for (let begun = 0; begun < most && this.#arrivals.length > 0; begun++) {
      // What was answered in this turn leaves at its end.
      if (this.#isFull && !wasFull) break
      const arrival = this.#arrivals.shift()!
      // From now on, its exchange counts it.
      this.#countArrived(this.#arrivedBytes - bytesOf(arrival) - STREAM_BYTES)
      try {
        this.#take(arrival)
      } catch (error) {
        logDefect(this.#context.logger, 'a request over HTTP/2 could not be begun', error)
        arrival.stream.reset(CODE.internal)
      }
    }
    this.#pace()
    if (this.#arrivals.length > 0) beginLater(this)
  }

  get #isFull(): boolean {
    return this.#context.unsentBytes > MAX_UNSENT_BYTES
  }

  #take({ stream, head }: Arrival): void {
    // The request was not started and may be sent again (RFC 9113, section 8.7).
    if (this.#isFull) stream.reset(CODE.refusedStream)
    if (stream.closed) return
    let request: HttpRequest
    try {
      if (head.tooLarge) throw oversized(head.fields, this.#limits)
      request = http2Request(head.fields, head.last, this.#limits, this.#peer)
    } catch (error) {
      this.#refuse(stream, head.fields, toSallyportError(error))
      return
    }
    this.#track(stream, request).start(this.#options.handler)
  }

  #track(stream: Http2Stream, request: HttpRequest): Http2ServerExchange {
    const exchange = new Http2ServerExchange(stream, request, this.#context)
    if (this.#exchanges.size === 0) this.#pingAt = performance.now()
    this.#exchanges.set(stream, exchange)
    const { bodyIdleMs, expectMs, http2PingMs, stalledMs } = this.#limits
    this.#watch.within(Math.min(bodyIdleMs || LOOK_MS, http2PingMs || LOOK_MS, stalledMs || LOOK_MS))
    if (expectsContinue(request)) this.#watch.within(expectMs || LOOK_MS)
    return exchange
  }

  /** Answers a request that must not be forwarded, or resets its stream if it is malformed. */
  #refuse(stream: Http2Stream, block: readonly string[], error: SallyportError): void {
    const request = refusedRequest(block, this.#peer.address)
    this.#options.onBadRequest?.(error, request)
    this.#log(error)
    if (error instanceof MalformedError) stream.reset(CODE.protocol)
    else {
      this.#track(stream, request).responseAbort(error)
      stream.discard()
    }
  }

  /** A proxy's session carries requests of many callers. One that cancels too many must not end those of others. */
  closed(stream: Http2Stream, isReset: boolean): void {
    const exchange = this.#exchanges.get(stream)
    this.#exchanges.delete(stream)
    if (exchange?.request.upgrade === true && !isReset) this.#context.untaken.add(exchange)
    if (this.#exchanges.size === 0) this.#idleSince = performance.now()
    this.#control.requestOver()
    const isOurs = this.#refusing || exchange?.isShed === true
    if (isReset && !stream.localEnded && !isOurs && !this.#resets.take()) this.#tooManyResets()
    if (this.#closing) this.#endIfDone()
  }

  /** What is on its way of other callers still has a round trip, and as many resets again. */
  #tooManyResets(): void {
    this.#resets = this.#bucket()
    this.close(this.#wasAsked ? 0 : LEAVING_MS)
  }

  #bucket(): TokenBucket {
    return new TokenBucket(this.#limits.http2ResetBurst, this.#limits.http2ResetRate)
  }

  /** Go's gRPC measures its path with a ping for each piece of an answer. One ping costs no more than the piece. */
  asked(isPing: boolean): void {
    const { pieces } = this.#connection.sender
    const isEcho = isPing && pieces !== this.#piecesAtPing
    if (isPing) this.#piecesAtPing = pieces
    if (!isEcho && !this.#answers.take()) this.#calm('too many frames that ask for an answer')
  }

  configured(): void {}

  /** Its streams go on, unless it says that something is wrong. */
  goesAway(_last: number, code: number): void {
    if (code === CODE.noError) this.close()
    else this.#leave(CODE.noError)
  }

  failed(error: ConnectionError): void {
    this.#log(error)
    this.#context.why = 'bad-request'
    this.#leave(error.code)
  }

  #calm(why: string): void {
    if (this.#connection.over) return
    this.#log({ message: why })
    this.#context.why = 'too-many-requests'
    this.#connection.goaway(CODE.enhanceYourCalm)
    this.#leave(CODE.enhanceYourCalm)
  }

  readonly #onClose = (): void => {
    this.#closed = true
    this.#connection.end(CODE.cancel)
    this.#arrivals.length = 0
    this.#watch.stop()
    this.#options.connections?.delete(this)
    this.unsentChanged()
    this.#leaveBudget()
  }

  // Memory

  unsentChanged(): void {
    const { unsentBytes, bodyBytes, fieldBytes } = this.#connection.sender
    // TLS keeps an encrypted copy of what the kernel has not taken.
    const copied = 'encrypted' in this.#socket ? unsentBytes : 0
    const held = unsentBytes - bodyBytes + fieldBytes + copied + this.#connection.partialBytes + this.#arrivedBytes
    // A socket that is destroyed lets go of it in this turn.
    const bytes = this.#socket.destroyed ? 0 : held
    const change = bytes - this.#ownBytes
    this.#ownBytes = bytes
    if (change !== 0) this.#keep(change)
  }

  #keep(bytes: number): void {
    this.usedBytes += bytes
    this.#unread?.take(bytes)
    if (bytes > 0) this.#unread?.enforce()
    else this.#leaveBudget()
  }

  /** Once the socket and the last byte have gone. */
  #leaveBudget(): void {
    if (this.#closed && this.usedBytes === 0) this.#unread?.leave(this)
  }

  /**
   * Of its network's connections, this one holds the most. What holds more gives way first: the requests that have not begun, which may
   * be sent again, or the exchanges. If it is a proxy's, the exchanges that hold the most are those of few of its callers. What the
   * socket holds is freed only with the connection.
   */
  shed(bytes: number): number {
    const before = this.usedBytes
    this.#log({ message: 'too much is held for requests and answers that nobody takes' })
    const exchanges = [...this.#exchanges.values(), ...this.#context.untaken]
    const kept = exchanges.filter(({ keptBytes }) => keptBytes > 0).sort((a, b) => b.keptBytes - a.keptBytes)
    let keptBytes = 0
    for (const exchange of kept) keptBytes += exchange.keptBytes
    while (before - this.usedBytes < bytes) {
      const most = kept[0]
      if (this.#arrivals.length > 0 && (most === undefined || this.#arrivedBytes >= keptBytes)) this.#refuseLast()
      else if (most === undefined) break
      else {
        kept.shift()
        keptBytes -= most.keptBytes
        most.shed()
      }
    }
    if (before - this.usedBytes < bytes && this.usedBytes > 0) this.destroy('overloaded')
    return before - this.usedBytes
  }

  #refuseLast(): void {
    this.#refusing = true
    this.#arrivals.pop()!.stream.reset(CODE.refusedStream)
    this.#refusing = false
    this.#pace()
  }

  // Ends and deadlines

  get address(): string {
    return this.#peer.address
  }

  get idle(): boolean {
    return this.#exchanges.size + this.#arrivals.length === 0 && this.#connection.sender.unsentBytes === 0
  }

  /**
   * A caller is asked to leave, and has a round trip for the requests that are on their way: not every caller can send them again. Then
   * the go-away says which requests were begun. A caller that has just connected may send its first request before that, since many do not
   * reconnect if they could send nothing.
   */
  close(patienceMs = 0): void {
    if (this.#closing || this.#connection.over) return
    if (patienceMs > 0) {
      if (!this.#used) this.#leaving = true
      else if (!this.#wasAsked) this.#askToLeave()
      setTimeout(Http2ServerSession.#closeDue, patienceMs, this).unref()
    } else {
      this.#closing = true
      this.#connection.goaway(CODE.noError)
      this.#endIfDone()
    }
  }

  #askToLeave(): void {
    this.#leaving = false
    this.#wasAsked = true
    this.#connection.askToLeave()
  }

  #endIfDone(): void {
    if (this.#connection.streams.size === 0) this.#leave(CODE.noError)
  }

  destroy(why: ErrorCode): void {
    if (this.#closed) return
    this.#context.why = why
    this.#connection.end(CODE.cancel)
    this.#arrivals.length = 0
    this.#socket.destroy()
    this.unsentChanged()
  }

  /** Ends the session, and the connection once the caller has taken what was sent. */
  #leave(code: number): void {
    if (this.#closed) return
    this.#connection.end(code)
    this.#watch.within(this.#limits.drainMs || LOOK_MS)
  }

  /** An error in an event handler or a timer of the session ends this session and no other. */
  threw(error: unknown): void {
    this.#context.why = 'internal'
    const cut = () => resetSocket(this.#socket)
    endFor(error, this.#context.logger, 'a session over HTTP/2 failed', () => this.#connection.end(CODE.internal), cut)
  }

  writeWaits(): void {
    this.#progress.at = 0
    this.#watch.within(lookMs(this.#limits.stalledMs))
  }

  wrote(): void {
    this.#progress.at = performance.now()
  }

  #check(now: number): number {
    if (this.#closed) return Number.POSITIVE_INFINITY
    if (this.#connection.over) {
      this.#linger ??= new Linger(this.#socket, this.#limits, now)
      return this.#linger.check(now)
    }
    let next = Math.min(this.#checkControl(now), this.#checkWrite(now))
    // That may have ended it.
    if (this.#connection.over) return LOOK_MS
    if (this.#exchanges.size === 0) next = Math.min(next, this.#checkIdle(now))
    else next = Math.min(next, this.#checkPing(now))
    for (const exchange of this.#exchanges.values()) next = Math.min(next, exchange.check(now))
    return this.#closed ? Number.POSITIVE_INFINITY : next
  }

  /** The caller takes nothing of what waits for it. */
  #checkWrite(now: number): number {
    if (this.#connection.sender.unsentBytes === 0) return LOOK_MS
    const left = this.#progress.left(this.#socket, this.#limits.stalledMs, now)
    if (left > 0) return left
    this.#context.why = 'request-timeout'
    this.#cut()
    return Number.POSITIVE_INFINITY
  }

  #cut(): void {
    this.#connection.end(CODE.cancel)
    resetSocket(this.#socket)
  }

  #checkControl(now: number): number {
    const tooMany = () => this.#calm('too many frames that carry nothing')
    return this.#control.check(
      this.#connection,
      this.#socket.bytesWritten,
      this.#limits.http2ControlBytes,
      now,
      tooMany,
    )
  }

  #checkIdle(now: number): number {
    const left = timeLeft(this.#idleSince, this.#limits.keepAliveMs, now)
    if (left === 0) this.close(LEAVING_MS)
    return left || LOOK_MS
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
      this.#cut()
      return Number.POSITIVE_INFINITY
    }
    this.#pingAt = now
    this.#pinging = true
    this.#connection.ping()
    return http2PingMs
  }

  ponged(): void {
    this.#pinging = false
    if (this.#wasAsked) this.close()
  }
}

/** What it holds, besides its stream. */
function bytesOf({ headBytes, stream }: Arrival): number {
  return headBytes + stream.heldBytes
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
