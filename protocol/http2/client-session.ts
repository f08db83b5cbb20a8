/** An upstream HTTP/2 session with prior knowledge (`h2c://`), for gRPC and its like; many exchanges at a time. */
import { type ClientHttp2Session, connect, constants } from 'node:http2'
import type { Duplex } from 'node:stream'
import { SallyportError, toSallyportError } from '../errors.ts'
import { BODY_UNKNOWN, type RequestSink, type ResponseSink } from '../exchange.ts'
import { discarding } from '../guard.ts'
import { isAuthority, isPath, isToken } from '../headers.ts'
import type { SendOptions } from '../http1/client-connection.ts'
import type { OutgoingRequest } from '../http1/client-exchange.ts'
import { DEFAULT_LIMITS, type HttpLimits } from '../limits.ts'
import { Watch } from '../watch.ts'
import { Http2ClientExchange } from './client-exchange.ts'
import { outgoingBlock } from './headers.ts'

/** A request may repeat what Node takes for single; what it means is for the upstream to say. */
const LENIENT: object = { strictSingleValueFields: false }

const HEAD_TIMEOUT_MS = 60_000

export interface Http2ClientOptions {
  limits?: Partial<HttpLimits> | undefined
  /** Called when the last exchange in progress has ended. */
  onIdle?: ((session: Http2ClientSession) => void) | undefined
  /** Called once, when the session is gone. */
  onClose?: ((session: Http2ClientSession) => void) | undefined
}

export class Http2ClientSession {
  readonly #session: ClientHttp2Session
  readonly #options: Http2ClientOptions
  readonly #limits: HttpLimits
  readonly #exchanges = new Set<Http2ClientExchange>()
  readonly #watch: Watch
  #closing = false
  #closed = false

  /** `socket` is connected; it belongs to the session from now on. */
  constructor(socket: Duplex, options: Http2ClientOptions = {}) {
    this.#options = options
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits }
    this.#watch = new Watch(now => this.#check(now))
    const session = connect('http://upstream.invalid', {
      createConnection: () => socket,
      settings: {
        enablePush: false,
        initialWindowSize: this.#limits.http2WindowBytes,
        maxHeaderListSize: this.#limits.headBytes * 2,
      },
      maxHeaderListPairs: this.#limits.headFields * 2,
      maxSessionMemory: this.#limits.http2SessionMemoryMb,
      ...LENIENT,
    })
    this.#session = session
    session.on('error', ignore)
    session.on('goaway', () => this.close())
    session.on('close', this.#onClose)
    if (session.connecting) session.once('connect', () => this.#widen())
    else this.#widen()
  }

  #widen(): void {
    if (!this.#session.destroyed) this.#session.setLocalWindowSize(this.#limits.http2SessionWindowBytes)
  }

  /** Exchanges in progress. */
  get streams(): number {
    return this.#exchanges.size
  }

  /** Whether `send` may be called. */
  get available(): boolean {
    if (this.#closing || this.#closed) return false
    const most = this.#session.remoteSettings?.maxConcurrentStreams ?? this.#limits.http2Streams
    return this.#exchanges.size < Math.min(most, this.#limits.http2Streams)
  }

  /** Sends a request whose headers are final. A WebSocket goes as extended CONNECT (RFC 8441). */
  send(request: OutgoingRequest, response: ResponseSink, options: SendOptions = {}): RequestSink {
    const headTimeoutMs = options.headTimeoutMs ?? HEAD_TIMEOUT_MS
    try {
      const stream = this.#session.request(requestBlock(request), {
        endStream: request.bodyBytes === 0 && !request.upgrade,
        waitForTrailers: request.bodyBytes === BODY_UNKNOWN,
      } as object)
      const exchange = new Http2ClientExchange(stream, request, response, this.#limits, headTimeoutMs)
      this.#exchanges.add(exchange)
      stream.once('close', () => this.#ended(exchange))
      this.#watch.within(headTimeoutMs || HEAD_TIMEOUT_MS)
      if (exchange.awaitsContinue) this.#watch.within(this.#limits.expectMs)
      return exchange
    } catch (error) {
      const ours = toSallyportError(error)
      const message = `the request cannot be sent: ${ours.message}`
      response.abort(error instanceof SallyportError ? error : new SallyportError('upstream-broken', message))
      return discarding(response)
    }
  }

  #ended(exchange: Http2ClientExchange): void {
    this.#exchanges.delete(exchange)
    if (this.#exchanges.size === 0 && !this.#closed) this.#options.onIdle?.(this)
  }

  readonly #onClose = (): void => {
    if (this.#closed) return
    this.#closed = true
    this.#watch.stop()
    this.#options.onClose?.(this)
  }

  /** Takes no more exchanges, and ends when those in progress have. */
  close(): void {
    if (this.#closing || this.#closed) return
    this.#closing = true
    if (!this.#session.destroyed) this.#session.close()
  }

  /** Ends at once; exchanges in progress end as `upstream-broken`. */
  destroy(): void {
    this.#closing = true
    this.#session.destroy(undefined, constants.NGHTTP2_CANCEL)
  }

  #check(now: number): number {
    let next = Number.POSITIVE_INFINITY
    for (const exchange of this.#exchanges) next = Math.min(next, exchange.check(now))
    return next
  }
}

function requestBlock(request: OutgoingRequest): string[] {
  const { method, authority, path, headers, bodyBytes, upgrade } = request
  if (!isToken(method) || !isPath(path) || (authority !== '' && !isAuthority(authority))) {
    throw new SallyportError('bad-request', 'request line cannot be sent')
  }
  const pseudo = [':method', upgrade ? 'CONNECT' : method, ':scheme', 'http', ':path', path]
  if (authority !== '') pseudo.push(':authority', authority)
  if (upgrade) pseudo.push(':protocol', 'websocket')
  const block = outgoingBlock(pseudo, headers, true)
  if (bodyBytes > 0) block.push('content-length', String(bodyBytes))
  if (upgrade) block.push('sec-websocket-version', '13')
  return block
}

function ignore(): void {}
