/** One request on an upstream connection, as the downstream end sees it. It writes the request. */
import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { BODY_UNKNOWN, type HeaderList, type RequestSink, type ResponseSink } from '../../exchange.ts'
import { hasHeader, isAuthority, isPath, remembering, stripRequestTrailers } from '../headers.ts'
import { isMethod } from '../methods.ts'
import { FRAMING, fieldLines, lastChunk } from './encode.ts'
import type { BodyOwner } from './socket-writer.ts'
import { newWebSocketKey } from './websocket.ts'

/** The parts of an {@link HttpRequest} that are sent. The headers are final. */
export interface OutgoingRequest {
  readonly method: string
  readonly authority: string
  readonly path: string
  readonly headers: HeaderList
  readonly bodyBytes: number
  readonly upgrade: boolean
}

export interface SendOptions {
  /** From the last byte of the request to the head of the response. Default 60 s; 0 means no limit. */
  readonly headTimeoutMs?: number | undefined
}

export const HEAD_TIMEOUT_MS = 60_000

/** The error for an upstream that breaks off, or breaks the rules. */
export function brokenUpstream(message: string): SallyportError {
  return new SallyportError('upstream-broken', message)
}

/**
 * Whether an answer that comes instead of a 100 says that the body is not wanted (RFC 9110 section 10.1.1). An upstream that begins a long
 * answer may read the body for the rest of it, even if it says that it closes the connection then, as Go's does. So a caller that sends it
 * nevertheless, as curl does after a second, is not stopped. A redirect wants it elsewhere.
 */
export function refusesRest(status: number, bodyBytes: number): boolean {
  return status >= 300 || bodyBytes === 0
}

/** What the exchange needs from its connection. */
export interface ClientWire {
  text(text: string): void
  body(chunk: Uint8Array, owner: BodyOwner): void
  /** A piece of a body in chunks. */
  chunk(piece: Uint8Array, owner: BodyOwner): void
  responseConsumed(exchange: ClientExchange, bytes: number): void
  requestEnded(exchange: ClientExchange): void
  halfClose(exchange: ClientExchange): void
  /** The exchange cannot continue. The response sink is notified only if `error` is given. */
  giveUp(exchange: ClientExchange, error: SallyportError | undefined): void
}

const isHost = remembering(isAuthority)
const NEEDS_LENGTH: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

export class ClientExchange implements RequestSink, BodyOwner {
  readonly request: OutgoingRequest
  readonly response: ResponseSink
  readonly webSocketKey: string | undefined
  readonly headTimeoutMs: number
  /** The whole request has been written, or never will be. */
  requestDone = false
  /** The response sink gets no more calls. */
  responseDone = false
  headReceived = false
  raw = false
  /** The upstream was asked for a 100, and neither the upstream nor the caller has continued. */
  awaitsContinue = false
  informational = 0
  #wire: ClientWire
  #framing: number
  #left: number

  constructor(wire: ClientWire, request: OutgoingRequest, response: ResponseSink, headTimeoutMs: number) {
    this.#wire = wire
    this.request = request
    this.response = response
    this.headTimeoutMs = headTimeoutMs
    this.webSocketKey = request.upgrade ? newWebSocketKey() : undefined
    this.#left = request.bodyBytes
    this.#framing = framingOf(request)
  }

  /** Writes the head. Throws SallyportError if it cannot be sent. */
  start(): void {
    const { method, path, authority, headers, bodyBytes } = this.request
    if (!isMethod(method) || !isPath(path) || (authority !== '' && !isHost(authority))) {
      throw new SallyportError('bad-request', 'request line cannot be sent')
    }
    let text = `${method} ${path} HTTP/1.1\r\nhost: ${authority}${fieldLines(headers, this.#framing, bodyBytes)}`
    if (this.webSocketKey !== undefined) {
      text += `\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13`
      text += `\r\nsec-websocket-key: ${this.webSocketKey}`
    }
    this.#wire.text(`${text}\r\n\r\n`)
    if (bodyBytes === 0) this.requestDone = !this.request.upgrade
    else this.awaitsContinue = hasHeader(headers, 'expect')
  }

  requestData(chunk: Uint8Array): void {
    if (this.requestDone || (this.request.upgrade && !this.raw)) {
      this.response.requestConsumed(chunk.length)
      return
    }
    this.awaitsContinue = false
    if (this.raw) {
      this.#wire.body(chunk, this)
      return
    }
    if (this.#framing === FRAMING.length) {
      this.#left -= chunk.length
      if (this.#left < 0) this.#fail(new SallyportError('bad-request', 'body longer than announced'))
      else this.#wire.body(chunk, this)
      return
    }
    // An empty chunk would end the body.
    if (chunk.length === 0) return
    this.#wire.chunk(chunk, this)
  }

  requestEnd(trailers: HeaderList): void {
    if (this.requestDone) return
    if (this.raw) {
      this.requestDone = true
      this.#wire.halfClose(this)
      return
    }
    if (this.request.upgrade) return
    try {
      this.#finish(trailers)
    } catch (error) {
      this.#fail(toSallyportError(error))
      return
    }
    this.requestDone = true
    this.#wire.requestEnded(this)
  }

  #finish(trailers: HeaderList): void {
    if (this.#framing === FRAMING.chunked) this.#wire.text(lastChunk(stripRequestTrailers(trailers)))
    else if (this.#left > 0) throw new SallyportError('bad-request', 'body shorter than announced')
  }

  requestAbort(_error: SallyportError): void {
    this.#wire.giveUp(this, undefined)
  }

  #fail(error: SallyportError): void {
    this.#wire.giveUp(this, error)
  }

  responseConsumed(bytes: number): void {
    this.#wire.responseConsumed(this, bytes)
  }

  sent(bytes: number): void {
    this.response.requestConsumed(bytes)
  }
}

function framingOf(request: OutgoingRequest): number {
  if (request.upgrade) return FRAMING.forbidden
  if (request.bodyBytes === BODY_UNKNOWN) return FRAMING.chunked
  if (request.bodyBytes > 0 || NEEDS_LENGTH.has(request.method)) return FRAMING.length
  return FRAMING.none
}
