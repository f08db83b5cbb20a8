/**
 * Mounts a handler on an embedder's own `http.Server`. Requests for our hosts, and upgrades on the control path if there is one,
 * are handled before the embedder's listeners see them. Everything else is left to those listeners.
 */

import { Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Server as HttpsServer } from 'node:https'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import process from 'node:process'
import type { Duplex } from 'node:stream'
import { canonicalAddress } from '../../base/address.ts'
import { DeadlineWatch, LOOK_MS, timeLeft } from '../../base/deadline-watch.ts'
import { type ErrorCode, SallyportError, toSallyportError } from '../../base/errors.ts'
import { Gathered, SMALL_PIECE_BYTES } from '../../base/gathered.ts'
import { callHandler, endFor, type Failing, guardWith, logDefect, logGuard, stepOf } from '../../base/guard.ts'
import type { Logger } from '../../base/log.ts'
import { withoutQuery } from '../../base/path.ts'
import { ReadPause } from '../../base/read-pause.ts'
import { resetSocket } from '../../base/reset-socket.ts'
import { isBroken } from '../../base/tcp.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from '../../exchange.ts'
import {
  getHeader,
  removeHeader,
  stripHopByHop,
  stripRequestTrailers,
  stripResponseTrailers,
  toRecord,
} from '../headers.ts'
import { Informational } from '../informational.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../limits.ts'
import { answerProblem } from '../problem.ts'
import { FRAMING, fieldLines, statusLine } from './encode.ts'
import { ignoreRest, type NodeSocket } from './ignore-rest.ts'
import { addMount, FOLLOWED } from './mounts.ts'
import { parseRequest } from './request-head.ts'
import { serveHttp1 } from './server-connection.ts'
import { type Unended, UnendedExchanges } from './unended.ts'
import { lookMs, WriteProgress } from './write-progress.ts'

type UpgradeListener = (request: IncomingMessage, socket: Duplex, head: Buffer) => void

interface MountOptions {
  readonly handler: Handler
  /** Whether we answer for this host. */
  readonly serves: (authority: string) => boolean
  /** Accepts upgrades on a path of ours. If absent, all upgrades are the embedder's. */
  readonly control?: { readonly path: string; readonly upgrade: UpgradeListener } | undefined
  readonly limits?: Partial<HttpLimits> | undefined
  readonly logger: Logger
}

/**
 * Puts us before the listeners that `server` has now. The returned function removes us again. Throws TypeError for a server of HTTP/2,
 * even with `allowHTTP1`: its requests look alike, but name their host elsewhere.
 */
export function mount(server: HttpServer, options: MountOptions): () => void {
  if (![HttpServer, HttpsServer].some(kind => server instanceof kind)) {
    throw new TypeError('attach takes an http.Server or an https.Server of Node, and no server of HTTP/2')
  }
  const serves = (request: IncomingMessage) => {
    try {
      return options.serves(request.headers.host ?? '')
    } catch (error) {
      logDefect(options.logger, 'serves threw', error)
      return false
    }
  }
  // A peer on a Unix socket has no address, and is on this machine. A TCP connection that was reset no longer has one.
  let isLocal = false
  const peerOf = ({ socket }: IncomingMessage) => {
    const place = server.address()
    if (place !== null) isLocal = typeof place === 'string'
    return socket.remoteAddress ?? (isLocal ? '127.0.0.1' : '')
  }
  const { control } = options
  const isControl = (request: IncomingMessage) =>
    control !== undefined && withoutQuery(request.url ?? '') === control.path
  return addMount(server, {
    serves,
    request: (request, response) => serveRequest(request, response, peerOf(request), options),
    upgrades: request => isControl(request) || serves(request),
    upgrade: (request, socket, head) => {
      if (isControl(request)) control!.upgrade(request, socket, head)
      else serveUpgrade(request, socket, head, peerOf(request), options)
    },
    failed: error => logDefect(options.logger, 'a request on a server of the embedder failed', error),
  })
}

/** The bytes of the request's head, rebuilt for our own parser to judge, since `node:http` is more lenient. */
function headOf(request: IncomingMessage): Buffer {
  let text = `${request.method} ${request.url} HTTP/${request.httpVersion}\r\n`
  const raw = request.rawHeaders
  for (let i = 0; i < raw.length; i += 2) text += `${raw[i]}: ${raw[i + 1]}\r\n`
  return Buffer.from(`${text}\r\n`, 'latin1')
}

/** We keep the connection for good, since later requests on it could be for other hosts. */
function serveUpgrade(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  peerAddress: string,
  { handler, limits, logger }: MountOptions,
): void {
  const options = { handler, limits, logger, peerAddress, oneRequest: true }
  serveHttp1(socket as Socket, options, Buffer.concat([headOf(request), head]))
}

function serveRequest(
  request: IncomingMessage,
  response: ServerResponse,
  peerAddress: string,
  options: MountOptions,
): void {
  const sink = new MountedResponse(request, response, options)
  try {
    const call = callOf(request, peerAddress, options)
    sink.connect(callHandler(options.handler, call, sink, options.logger), call.bodyBytes !== 0)
  } catch (error) {
    // Nobody can know where a request with such a head ends, so what follows may be part of it.
    response.shouldKeepAlive = false
    const { socket }: { socket: NodeSocket } = request
    if (socket.parser) ignoreRest(socket)
    const about = { method: request.method ?? 'GET', requestId: '', headers: [] }
    answerProblem(sink, about, toSallyportError(error))
  }
}

/** Throws SallyportError for what our own listener would refuse. */
function callOf(request: IncomingMessage, peerAddress: string, { limits }: MountOptions): HttpRequest {
  const head = parseRequest(
    headOf(request),
    { ...DEFAULT_HTTP_LIMITS, ...limits },
    canonicalAddress(peerAddress),
    'encrypted' in request.socket,
  )
  // Its Host decided that the request is ours, so the target must not name another.
  if (request.url?.startsWith('/') !== true) throw new SallyportError('bad-request', 'only the origin form is taken')
  const { headers } = head.request
  // Node has already sent the 100.
  if (head.expectsContinue) removeHeader(headers, 'expect')
  return { ...head.request, headers, upgrade: false }
}

const AHEAD_BYTES = 64 * 1024

const unended = new WeakMap<Socket, UnendedExchanges>()

class MountedResponse implements ResponseSink, Failing, Unended {
  static readonly #flushDue = stepOf<MountedResponse>(response => response.#flush())
  static readonly #deliveredDue = stepOf<MountedResponse>(response => response.#endDelivered())
  readonly #request: IncomingMessage
  /** Of its body, if it has one. */
  #pause: ReadPause | undefined
  readonly #response: ServerResponse
  readonly #logger: Logger
  readonly #limits: HttpLimits
  readonly #watch = new DeadlineWatch(now => this.#check(now), this)
  #informational: Informational | undefined
  #sink: RequestSink | undefined
  #ahead = 0
  #readAt = 0
  /** More of the request's body is still to come. */
  #reading = false
  /** Response bytes that were written but have not left. */
  #waiting = 0
  /** Small pieces behind what waits. Written one by one, each would cost Node far more than its bytes. */
  #gathered: Gathered | undefined
  readonly #progress = new WriteProgress()
  /** When all of the response had left, if that was before the end of the request. */
  #deliveredAt: number | undefined
  #over = false
  /** How many bytes of the answer's body are still to come, or {@link BODY_UNKNOWN}. */
  #left = 0
  /** The answer has no body, whatever the handler sends. */
  #bodiless = false
  /** Only closing the connection ends the body of the answer. */
  #untilClose = false
  /** Response bytes that left before the sink was known. */
  #early = 0
  /** The upstream end takes no more of the request, and gives no credit for it. */
  #refused = false
  /** The next request has arrived. It does not wait until the upstream end has taken the last of this one. */
  #followed = false
  #failure: SallyportError | undefined
  /** Why we end its connection, if we do. */
  #why: ErrorCode | undefined

  constructor(request: IncomingMessage, response: ServerResponse, { logger, limits }: MountOptions) {
    this.#logger = logger
    this.#limits = { ...DEFAULT_HTTP_LIMITS, ...limits }
    this.#request = request
    this.#response = response
    const guard = guardWith(error => this.threw(error))
    response.once('close', guard(this.#onClose))
  }

  connect(sink: RequestSink, hasBody: boolean): void {
    this.#sink = sink
    if (this.#failure !== undefined) {
      sink.requestAbort(this.#failure)
      return
    }
    if (this.#early > 0) sink.responseConsumed(this.#early)
    if (!hasBody) sink.requestEnd([])
    if (!hasBody || this.#refused) {
      this.#request.resume()
      return
    }
    this.#reading = true
    this.#readAt = performance.now()
    this.#watch.within(LOOK_MS)
    const pause = new ReadPause(this.#request.socket, this.#request)
    this.#pause = pause
    const guard = guardWith(error => this.threw(error))
    const onData = guard((chunk: Buffer) => {
      this.#readAt = performance.now()
      this.#ahead += chunk.length
      if (this.#isFull) pause.begin()
      sink.requestData(chunk)
    })
    const onEnd = guard(() => {
      this.#reading = false
      pause.end()
      if (this.#refused) return
      const trailers = this.#request.rawTrailers.map((text, i) => (i % 2 === 0 ? text.toLowerCase() : text))
      sink.requestEnd(stripRequestTrailers(trailers))
      this.#endDelivered()
    })
    const onFollowed = guard(() => {
      this.#followed = true
      pause.end()
    })
    this.#request.on('data', onData)
    this.#request.once('end', onEnd)
    this.#request.once(FOLLOWED, onFollowed)
  }

  readonly #onClose = (): void => {
    const wasOver = this.#over
    this.#over = true
    this.#watch.stop()
    if (wasOver) this.#leaves(this.#waiting)
    else this.#sink?.requestAbort(new SallyportError(this.#why ?? endOf(this.#request.socket)))
  }

  responseInformational(status: number, headers: HeaderList): void {
    // Node has sent the 100 itself, and would act on the fields of a 103, so we write to the socket.
    const { socket } = this.#response
    const late = this.#over || this.#response.headersSent || this.#request.httpVersion === '1.0'
    if (late || socket === null || status === 100 || status === 101) return
    this.#informational ??= new Informational(this.#limits)
    if (!this.#informational.admits(headers)) return
    this.#send(() => {
      socket.write(`${statusLine(status)}${fieldLines(headers, FRAMING.forbidden, 0)}\r\n\r\n`, 'latin1')
    })
  }

  responseHead({ status, headers, bodyBytes }: ResponseHead): void {
    if (this.#over) return
    this.#send(() => {
      if (!(status >= 200 && status <= 599)) throw new SallyportError('upstream-broken', `status ${status}`)
      const chunked = bodyBytes === BODY_UNKNOWN && this.#request.httpVersion !== '1.0'
      this.#untilClose = bodyBytes === BODY_UNKNOWN && !chunked
      this.#bodiless = this.#request.method === 'HEAD' || status === 204 || status === 304
      this.#left = this.#bodiless ? 0 : bodyBytes
      const fields = headers.slice()
      stripHopByHop(fields)
      const length = this.#bodiless ? getHeader(fields, 'content-length') : String(bodyBytes)
      // Last, since Node changes a `content-disposition` that comes after it.
      removeHeader(fields, 'content-length')
      if (length !== undefined && status !== 204 && bodyBytes !== BODY_UNKNOWN) fields.push('content-length', length)
      // Node throws if `trailer` is set on a response that can have none.
      if (!chunked) removeHeader(fields, 'trailer')
      this.#response.writeHead(status, fields)
      // Node keeps the head until the body comes. If that follows at once, both leave together.
      if (this.#left !== 0) process.nextTick(MountedResponse.#flushDue, this)
      else setImmediate(MountedResponse.#deliveredDue, this)
    })
  }

  #flush(): void {
    if (!this.#over && this.#waiting === 0) this.#response.flushHeaders()
  }

  /** If the head cannot be sent, the upstream is at fault. */
  #send(step: () => void): void {
    try {
      step()
    } catch (cause) {
      const error = cause instanceof SallyportError ? cause : new SallyportError('upstream-broken', 'head', { cause })
      this.#fail(error)
    }
  }

  #fail(error: SallyportError): void {
    this.#failure = error
    this.#sink?.requestAbort(error)
    this.responseAbort(error)
  }

  responseData(chunk: Uint8Array): void {
    const { length } = chunk
    if (this.#over || this.#bodiless) {
      this.#taken(length)
      return
    }
    const announced = this.#left !== BODY_UNKNOWN
    if (announced) this.#left -= length
    if (announced && this.#left < 0) {
      this.#taken(length)
      this.#fail(new SallyportError('upstream-broken', 'body longer than announced'))
      return
    }
    this.#mayWait()
    const waits = this.#waiting > 0
    this.#waiting += length
    if (waits && length < SMALL_PIECE_BYTES) this.#gather(chunk)
    else {
      this.#writeGathered()
      this.#write(chunk)
    }
  }

  #gather(piece: Uint8Array): void {
    if (this.#gathered?.add(piece) === true) return
    this.#writeGathered()
    this.#gathered = new Gathered(piece, this.#waiting)
  }

  #writeGathered(): void {
    const gathered = this.#gathered
    if (gathered === undefined) return
    this.#gathered = undefined
    gathered.close()
    this.#write(gathered.bytes)
  }

  #write(chunk: Uint8Array): void {
    this.#response.write(chunk, error => {
      try {
        this.#leaves(chunk.length)
        if (this.#waiting > 0) this.#progress.at = performance.now()
        if (error) return
        if (this.#waiting === this.#gathered?.length) this.#writeGathered()
        this.#endDelivered()
      } catch (error) {
        this.threw(error)
      }
    })
  }

  /** What is written now may have to wait for the caller. */
  #mayWait(): void {
    if (this.#waiting === 0) this.#progress.at = performance.now()
    this.#watch.within(lookMs(this.#limits.stalledMs))
  }

  /** An error in an event handler ends the exchange and its connection. */
  threw(error: unknown): void {
    const told = () => this.#sink?.requestAbort(toSallyportError(error))
    this.#over = true
    endFor(error, this.#logger, 'an exchange failed', () => this.#response.destroy(), told)
  }

  /** Node never calls back a write that is made while its connection is being closed. */
  #leaves(bytes: number): void {
    const gone = Math.min(bytes, this.#waiting)
    this.#waiting -= gone
    if (gone > 0) this.#taken(gone)
  }

  #taken(bytes: number): void {
    if (this.#sink === undefined) this.#early += bytes
    else this.#sink.responseConsumed(bytes)
  }

  /**
   * All of the response has left. Node answers the next request of the connection, which may be another caller's, only once this
   * response has ended. So that does not wait for the upstream end.
   */
  #endDelivered(): void {
    if (this.#over || this.#waiting > 0 || this.#left !== 0 || !this.#response.headersSent) return
    if (this.#reading) {
      this.#deliveredAt ??= performance.now()
      this.#flush()
      if (this.#limits.drainMs > 0) this.#watch.within(this.#limits.drainMs)
      return
    }
    this.#over = true
    const { socket } = this.#request
    const exchanges = unended.get(socket) ?? this.#watched(socket)
    exchanges.add(this)
    this.#response.end()
  }

  #watched(socket: Socket): UnendedExchanges {
    const exchanges = new UnendedExchanges()
    const guard = logGuard(this.#logger, 'an exchange did not end with its connection')
    const closed = guard(() => exchanges.end(endOf(socket)))
    socket.once('close', closed)
    unended.set(socket, exchanges)
    return exchanges
  }

  takeSink(): RequestSink | undefined {
    return this.#sink
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#over) {
      unended.get(this.#request.socket)?.delete(this)
      return
    }
    this.#send(() => {
      if (this.#left > 0) throw new SallyportError('upstream-broken', 'body shorter than announced')
      if (this.#left === BODY_UNKNOWN) this.#response.addTrailers(toRecord(stripResponseTrailers(trailers)))
      this.#over = true
      this.#mayWait()
      this.#writeGathered()
      this.#response.end()
    })
  }

  responseAbort(error: SallyportError): void {
    if (this.#over) {
      unended.get(this.#request.socket)?.delete(this)
      if (this.#reading) this.#discardRequest()
      // Drop the part of the answer that has not left.
      if (this.#waiting > 0) this.#cut()
      return
    }
    this.#discardRequest()
    // For the caller, the response is complete, whatever its upstream does next.
    if (this.#response.headersSent && this.#left === 0 && error.reason !== 'cancelled') {
      this.responseEnd([])
      return
    }
    this.#over = true
    if (this.#response.headersSent) this.#cut()
    else answerProblem(this.#fresh(), { method: this.#request.method ?? 'GET', requestId: '', headers: [] }, error)
  }

  /** The caller may have sent all of the body, and then another request. */
  #leaveBody(): void {
    this.#discardRequest()
    this.responseEnd([])
    this.#sink?.requestAbort(new SallyportError('cancelled', 'the response came first'))
  }

  /** Otherwise the connection would stand still. */
  #discardRequest(): void {
    this.#refused = true
    this.#reading = false
    this.#request.removeAllListeners('data').resume()
    this.#pause?.end()
  }

  /** To a caller that reads until the close, a plain close would look like a proper end. */
  #cut(): void {
    const { socket } = this.#response
    if (this.#untilClose && socket !== null && !('encrypted' in socket)) resetSocket(socket)
    this.#response.destroy()
  }

  #fresh(): ResponseSink {
    this.#over = false
    // Otherwise the status message of the head that could not be sent would remain.
    this.#response.statusMessage = ''
    return this
  }

  requestConsumed(bytes: number): void {
    const wasFull = this.#isFull
    this.#ahead -= bytes
    if (!wasFull || this.#isFull) return
    this.#readAt = performance.now()
    this.#pause?.end()
  }

  get #isFull(): boolean {
    return this.#ahead > AHEAD_BYTES && !this.#followed
  }

  #check(now: number): number {
    return Math.min(this.#checkBody(now), this.#checkWrite(now))
  }

  /** Handles a body that nobody reads, and one that stops arriving. */
  #checkBody(now: number): number {
    if (!this.#reading) return Number.POSITIVE_INFINITY
    if (this.#isFull) {
      if (isBroken(this.#request.socket)) this.#request.socket.destroy()
      if (this.#deliveredAt === undefined) return LOOK_MS
      const left = timeLeft(Math.max(this.#deliveredAt, this.#readAt), this.#limits.drainMs, now)
      if (left === 0) this.#leaveBody()
      return left === 0 ? Number.POSITIVE_INFINITY : Math.min(left, LOOK_MS)
    }
    // Once the answer has begun, both directions may be quiet, as on a WebSocket.
    const left = this.#response.headersSent ? LOOK_MS : timeLeft(this.#readAt, this.#limits.bodyIdleMs, now)
    if (left > 0) return Math.min(left, LOOK_MS)
    const error = new SallyportError('request-timeout')
    const sink = this.#sink
    this.#reading = false
    this.#response.shouldKeepAlive = false
    this.responseAbort(error)
    sink?.requestAbort(error, true)
    return Number.POSITIVE_INFINITY
  }

  /** Handles a caller that does not read its answer. */
  #checkWrite(now: number): number {
    if (this.#waiting === 0 && !this.#over) return Number.POSITIVE_INFINITY
    const left = this.#progress.left(this.#response.socket, this.#limits.stalledMs, now)
    if (left === 0) this.#onStalled()
    return left || Number.POSITIVE_INFINITY
  }

  readonly #onStalled = (): void => {
    this.#logger.debug({}, 'the caller stopped reading')
    this.#why = 'request-timeout'
    resetSocket(this.#request.socket)
  }
}

/** Why a connection that we did not end has ended: its caller left, unless Node says otherwise. */
function endOf({ errored }: Socket): ErrorCode {
  const { code = '' } = (errored ?? {}) as NodeJS.ErrnoException
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return 'request-timeout'
  // A caller that leaves in the middle of its body is an error of the parser, too.
  return code.startsWith('HPE_') && code !== 'HPE_INVALID_EOF_STATE' ? 'bad-request' : 'cancelled'
}
