/**
 * The opening end of a stream: sends a request, receives the response.
 *
 *     request sink ──▶ preamble, head, content ──▶ stream
 *     response sink ◀── answer, head, content ◀── stream
 */

import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { newExchangeId } from '../../base/ids.ts'
import { latin1 } from '../../base/latin1.ts'
import { ProtocolError } from '../../base/protocol-error.ts'
import { BODY_UNKNOWN, type HeaderList, type HttpRequest, type RequestSink, type ResponseSink } from '../../exchange.ts'
import { MessageDecoder, type MessageVisitor } from '../bhttp/decoder.ts'
import { messageEndText, requestHeadText } from '../bhttp/encode.ts'
import { contentLength, MAX_FIELDS, MAX_HEAD_BYTES } from '../bhttp/fields.ts'
import { preambleText } from '../preamble.ts'
import { STREAM_KIND } from '../stream-kinds.ts'
import { readVarint, varintSize } from '../varint.ts'
import { closeFrame } from '../websocket-frames.ts'
import type { ResetCode, Stream, StreamHandler } from '../yamux/stream.ts'
import { ANSWER, checkUpgradeFields } from './answer.ts'
import { RawDirection } from './raw.ts'
import { RefusedError, refusalOf } from './refusal.ts'
import { errorOfResetResponse, resetCodeOf } from './reset.ts'
import { MessageWriter } from './writer.ts'

/** WebSocket close code of a session that leaves (RFC 6455 section 7.4.1). */
const GOING_AWAY = 1001
const FAREWELL = 'this connection is being moved: connect again'
const NO_CONTENT = messageEndText([])

/** Values of the preamble that are not part of the request. */
export interface OpenOptions {
  runtime: string
  epoch: number
  /** 0 for the first. */
  attempt: number
  /** How many replicas the exchange has passed through before. */
  hops: number
  /** How long the edge will still wait for the head of the response; 0 for no limit. */
  timeLeftMs: number
  /** See {@link Preamble.traced}. */
  traced?: boolean | undefined
  /** See {@link Preamble.span}. */
  span?: string | undefined
  /** See {@link Preamble.ownHost}. */
  ownHost?: string | undefined
  /** See {@link Preamble.heldMs}. */
  heldMs?: number | undefined
}

/**
 * Sends `request` on `stream`, which was just opened, and passes its response to `response`. Returns the sink for the request
 * body. If the peer refuses the exchange unprocessed, that is reported as `responseAbort(RefusedError)`.
 *
 * @example
 * ```ts
 * import { type HttpRequest, openExchange, type ResponseSink, type Session } from 'sallyport/protocol'
 *
 * function send(session: Session, request: HttpRequest, response: ResponseSink) {
 *   const options = { runtime: 'prod', epoch: 1, attempt: 0, hops: 0, timeLeftMs: 0 }
 *   const body = openExchange(session.open(), request, options, response)
 *   body.requestEnd([])
 * }
 * ```
 */
export function openExchange(
  stream: Stream,
  request: HttpRequest,
  options: OpenOptions,
  response: ResponseSink,
): RequestSink {
  const exchange = new OpenedExchange(stream, request, response)
  stream.handler = exchange
  try {
    exchange.start(request, options)
  } catch (error) {
    // The request cannot be encoded. The peer does not know of the stream yet.
    stream.reset(resetCodeOf(toSallyportError(error)))
    throw error
  }
  return exchange
}

/** Receives the calls of the downstream end and of the stream. */
class OpenedExchange implements RequestSink, StreamHandler, MessageVisitor {
  readonly #stream: Stream
  readonly #response: ResponseSink
  readonly #writer: MessageWriter
  readonly #decoder: MessageDecoder
  readonly #upgrade: boolean
  readonly #head: boolean
  /** Whether 101 has arrived, so that both directions carry raw bytes. */
  #raw = false
  #out: RawDirection | undefined
  #in: RawDirection | undefined
  #leaving = false
  /** Whether the peer has accepted the exchange. */
  #answered = false
  /** Whether the response or the whole exchange has ended. */
  #over = false
  /** The response is complete. Bytes of it that still wait belong to the caller. */
  keeps = false

  constructor(stream: Stream, request: HttpRequest, response: ResponseSink) {
    this.#stream = stream
    this.#response = response
    this.#writer = new MessageWriter(stream)
    this.#decoder = new MessageDecoder(this, 'response')
    this.#decoder.upgrade = request.upgrade
    this.#upgrade = request.upgrade
    this.#head = request.method === 'HEAD'
  }

  start(request: HttpRequest, options: OpenOptions): void {
    const caller = request.caller
    this.#stream.paidBy(options.runtime, caller ? caller.address : request.peerAddress)
    const scheme = (caller ? caller.scheme === 'https' : request.encrypted) ? 'https' : 'http'
    request.exchangeId ??= newExchangeId()
    const preamble = preambleText({
      kind: request.upgrade ? STREAM_KIND.upgrade : STREAM_KIND.exchange,
      exchangeId: request.exchangeId,
      attempt: options.attempt,
      runtime: options.runtime,
      epoch: options.epoch,
      timeLeftMs: Math.max(0, Math.ceil(options.timeLeftMs)),
      callerAddress: caller ? caller.address : request.peerAddress,
      callerScheme: scheme,
      hops: options.hops,
      bodyBytes: request.bodyBytes,
      callerHost: caller && caller.host !== request.authority ? caller.host : undefined,
      traced: options.traced,
      span: options.span,
      ownHost: options.ownHost,
      heldMs: options.heldMs,
    })
    const head = requestHeadText(request.method, scheme, request.authority, request.path, request.headers)
    if (head.length > MAX_HEAD_BYTES || request.headers.length > 2 * MAX_FIELDS) {
      this.#fail(new SallyportError('head-too-large'))
      return
    }
    if (request.bodyBytes === 0 && !request.upgrade) this.#writer.finish(preamble + head + NO_CONTENT)
    else this.#writer.text(preamble + head)
  }

  // Request, to the stream

  requestData(chunk: Uint8Array): void {
    if (this.#over || this.#writer.ended) this.#response.requestConsumed(chunk.length)
    else if (this.#raw) this.#sendRaw(chunk)
    else if (!this.#upgrade) this.#writer.content(chunk)
  }

  #sendRaw(chunk: Uint8Array): void {
    const discarded = this.#out!.push(chunk)
    if (discarded > 0) this.#response.requestConsumed(discarded)
  }

  requestEnd(trailers: HeaderList): void {
    if (this.#over || this.#writer.ended) return
    if (this.#raw) this.#writer.finish('')
    else if (!this.#upgrade) this.#writer.end(trailers)
  }

  requestAbort(error: SallyportError): void {
    if (!this.#over) {
      this.#finish()
      this.#stream.reset(resetCodeOf(error))
    }
    // Drops a complete response that waits to be passed on.
    this.#stream.discard()
  }

  responseConsumed(bytes: number): void {
    this.#stream.consumed(bytes)
  }

  acknowledged(): void {
    this.#response.acknowledged?.()
  }

  consumed(bytes: number): void {
    const content = this.#writer.left(bytes)
    if (content > 0) this.#response.requestConsumed(content)
  }

  // Response, from the stream

  data(chunk: Uint8Array): void {
    let framing = chunk.length
    if (!this.#over) {
      try {
        framing = this.#decoder.push(chunk)
      } catch (error) {
        this.#fail(toSallyportError(error))
      }
    }
    if (framing > 0) this.#stream.consumed(framing)
    this.#stream.keep(this.#decoder.heldBytes)
  }

  prefix(bytes: Uint8Array, at: number, end: number): number {
    const codeAt = at + varintSize(bytes[at]!)
    if (codeAt > end) return -1
    const answer = readVarint(bytes, at)
    if (answer === ANSWER.message) {
      this.#answered = true
      return codeAt
    }
    if (answer !== ANSWER.refused) throw new ProtocolError(`answer ${answer}`)
    if (codeAt >= end || codeAt + varintSize(bytes[codeAt]!) > end) return -1
    this.#fail(new RefusedError(refusalOf(readVarint(bytes, codeAt))))
    return end
  }

  informational(status: number, headers: HeaderList): void {
    this.#response.responseInformational(status, headers)
  }

  response(status: number, headers: HeaderList): number {
    if (status === 101) {
      checkUpgradeFields(headers)
      this.#switch(headers)
      return 0
    }
    if (this.#upgrade) this.#writer.finish('')
    const announced = contentLength(headers)
    const bodyBytes = this.#head || status === 204 || status === 304 ? 0 : announced === -1 ? BODY_UNKNOWN : announced
    this.#response.responseHead({ status, headers, bodyBytes })
    return bodyBytes
  }

  #switch(headers: HeaderList): void {
    this.#raw = true
    this.#in = new RawDirection(
      chunk => this.#response.responseData(chunk),
      () => {
        this.#response.responseData(closeFrame(GOING_AWAY, false, FAREWELL))
        this.#endResponse([])
      },
    )
    this.#out = new RawDirection(
      chunk => this.#writer.raw(chunk),
      () => this.#writer.finish(latin1(closeFrame(GOING_AWAY, true, FAREWELL))),
    )
    this.#response.responseHead({ status: 101, headers, bodyBytes: 0 })
    if (this.#leaving) this.leave()
  }

  content(chunk: Uint8Array): void {
    if (!this.#raw) {
      this.#response.responseData(chunk)
      return
    }
    const discarded = this.#in!.push(chunk)
    if (discarded > 0) this.#stream.consumed(discarded)
  }

  leave(): void {
    this.#leaving = true
    if (this.#over || !this.#raw) return
    this.#in!.leave()
    if (!this.#writer.ended) this.#out!.leave()
  }

  end(): void {
    if (this.#over) return
    if (this.#raw) this.#endRaw()
    else if (this.#decoder.complete) this.#complete()
    else this.#fail(new ProtocolError('the response ended too early'))
  }

  #endRaw(): void {
    if (!this.#in!.left) this.#endResponse([])
  }

  #endResponse(trailers: HeaderList): void {
    this.keeps = true
    this.#response.responseEnd(trailers)
  }

  reset(code: ResetCode): void {
    if (this.#over) return
    const unanswered = !this.#answered
    const unsent = this.#writer.contentBytes
    this.#finish()
    if (this.keeps) {
      if (unsent > 0) this.#response.requestConsumed(unsent)
      this.#response.unwanted?.()
      return
    }
    // The peer cannot have begun what was never sent, so that counts as refused, too.
    const refused = code === 'refused' && unanswered ? 'overloaded' : this.#stream.unsent ? 'not-here' : undefined
    this.#response.responseAbort(refused === undefined ? errorOfResetResponse(code) : new RefusedError(refused))
  }

  /** Drops the response of a caller that does not read it, to make room for others. */
  shed(): void {
    this.#finish()
    this.#response.responseAbort(errorOfResetResponse('limit'))
  }

  /** The response is complete, so the rest of the request is not needed. */
  #complete(): void {
    const early = !this.#writer.ended || this.#stream.queuedBytes > 0
    const unsent = this.#writer.contentBytes
    this.keeps = true
    this.#finish()
    if (early) {
      this.#stream.reset('cancelled')
      if (unsent > 0) this.#response.requestConsumed(unsent)
    }
    this.#endResponse(this.#decoder.trailers)
  }

  #fail(error: SallyportError): void {
    if (this.#over) return
    this.#finish()
    this.#stream.reset(resetCodeOf(error))
    this.#response.responseAbort(error)
  }

  #finish(): void {
    this.#over = true
    this.#writer.drop()
    this.#decoder.stop()
  }
}
