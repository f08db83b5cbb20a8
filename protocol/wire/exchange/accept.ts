/**
 * The answering end of a stream: receives the request, sends the response.
 *
 *     stream ──▶ preamble, head, content ──▶ request sink
 *     stream ◀── answer, head, content ◀── response sink
 */

import { SallyportError, toSallyportError } from '../../base/errors.ts'
import { discarding, endFor, type Failing, logDefect, stepOf } from '../../base/guard.ts'
import { exchangeIdText } from '../../base/ids.ts'
import { type Logger, noLogger } from '../../base/log.ts'
import { ProtocolError } from '../../base/protocol-error.ts'
import type { HeaderList, HttpRequest, RequestSink, ResponseHead, ResponseSink } from '../../exchange.ts'
import { getHeader, isAuthority, isPath, remembering } from '../../http/headers.ts'
import { isMethod } from '../../http/methods.ts'
import { answerProblem } from '../../http/problem.ts'
import { MessageDecoder, type MessageVisitor } from '../bhttp/decoder.ts'
import { RESPONSE_START, responseHeadText } from '../bhttp/encode.ts'
import { checkFields, contentLength, MAX_FIELDS, MAX_HEAD_BYTES } from '../bhttp/fields.ts'
import { decodePreamble, type Preamble, preambleEnd, UnsupportedError } from '../preamble.ts'
import { STREAM_KIND, STREAM_RULES, type StreamRules } from '../stream-kinds.ts'
import { varintText } from '../varint.ts'
import type { ResetCode, Stream, StreamHandler } from '../yamux/stream.ts'
import { ANSWER, checkUpgradeFields, EARLY_ANSWER_MS } from './answer.ts'
import { REFUSALS, type RefusalCode } from './refusal.ts'
import { errorOfResetRequest, resetCodeOf } from './reset.ts'
import { MessageWriter } from './writer.ts'

/**
 * Takes an exchange. Returns the sink of the request's body, or a {@link RefusalCode} if nothing of the exchange was or will
 * be forwarded.
 */
export type ExchangeHandler = (
  preamble: Preamble,
  request: HttpRequest,
  response: ResponseSink,
) => RequestSink | RefusalCode

/**
 * Reads one exchange from `stream`, which the peer has just opened, and calls `onExchange` once its head is complete. An exchange
 * that cannot be parsed is refused unprocessed. If the handler throws, or gives an answer that cannot be sent, its exchange ends and
 * `logger` logs it.
 *
 * @example
 * ```ts
 * import { acceptExchange, createSession, discarding, memoryPair } from 'sallyport/protocol'
 *
 * const [transport] = memoryPair()
 * createSession(transport, {
 *   role: 'client',
 *   onStream: stream =>
 *     acceptExchange(stream, (_preamble, _request, response) => {
 *       response.responseHead({ status: 204, headers: [], bodyBytes: 0 })
 *       response.responseEnd([])
 *       return discarding(response)
 *     }),
 * })
 * ```
 */
export function acceptExchange(stream: Stream, onExchange: ExchangeHandler, logger: Logger = noLogger): void {
  stream.handler = new AcceptedExchange(stream, onExchange, logger)
}

const answerBadRequest: ExchangeHandler = (_preamble, request, response) => {
  answerProblem(response, request, new SallyportError('bad-request'))
  return discarding(response)
}

const isHost = remembering(isAuthority)
const MESSAGE = varintText(ANSWER.message)
const FIRST = MESSAGE + RESPONSE_START

/** Receives the calls of the stream and of the upstream end. */
class AcceptedExchange implements ResponseSink, StreamHandler, MessageVisitor, Failing {
  static readonly #early = stepOf<AcceptedExchange>(exchange => exchange.#stopEarly())
  readonly #stream: Stream
  readonly #onExchange: ExchangeHandler
  readonly #logger: Logger
  readonly #writer: MessageWriter
  readonly #decoder: MessageDecoder
  #preamble: Preamble | undefined
  /** The rules of the stream's kind; those of `exchange` until the preamble has arrived. */
  #rules: StreamRules = STREAM_RULES[STREAM_KIND.exchange]
  #sink: RequestSink | undefined
  unbegun = true
  /** Whether part of the response has been written. */
  #begun = false
  #headSent = false
  /** Whether 101 was sent, so that both directions carry raw bytes. */
  #raw = false
  /** Whether FIN has arrived. */
  #requestEnded = false
  /** Whether it was reset or refused, so that the sink must not be called any more. */
  #over = false
  /** Set if it failed before the handler returned. */
  #failure: SallyportError | undefined
  #earlyTimer: NodeJS.Timeout | undefined
  /** Bytes that the upstream end has consumed but keeps. */
  #keptBytes = 0

  constructor(stream: Stream, onExchange: ExchangeHandler, logger: Logger) {
    this.#stream = stream
    this.#logger = logger
    this.#onExchange = onExchange
    this.#writer = new MessageWriter(stream)
    this.#decoder = new MessageDecoder(this, 'request')
  }

  // Request, from the stream

  data(chunk: Uint8Array): void {
    let framing = chunk.length
    if (!this.#over) {
      try {
        framing = this.#decoder.push(chunk)
      } catch (error) {
        this.#fail(error, 'protocol')
      }
    }
    if (framing > 0) this.#stream.consumed(framing)
    this.#stream.keep(this.#decoder.heldBytes + this.#keptBytes)
  }

  prefix(bytes: Uint8Array, at: number, end: number): number {
    const next = preambleEnd(bytes, at, end)
    if (next < 0) return -1
    const preamble = decodePreamble(bytes, at, next)
    this.#rules = STREAM_RULES[preamble.kind]
    if (!this.#rules.answered) throw new UnsupportedError(`a stream of kind ${preamble.kind}`)
    this.#preamble = preamble
    return next
  }

  request(method: string, scheme: string, authority: string, path: string, headers: HeaderList): number {
    const preamble = this.#preamble!
    this.#stream.paidBy(preamble.runtime, preamble.callerAddress)
    if (scheme !== preamble.callerScheme) throw new ProtocolError('the scheme is not that of the preamble')
    if (!isPath(path)) throw new ProtocolError('malformed path')
    const announced = contentLength(headers)
    if (announced !== -1 && announced !== preamble.bodyBytes)
      throw new ProtocolError('two different lengths of the body')
    this.#checkKind(method, preamble.bodyBytes, headers)
    // An older server may take others from its callers.
    const isValid = isMethod(method) && method !== 'CONNECT' && isHost(authority)
    this.#handOver(isValid ? this.#onExchange : answerBadRequest, preamble, {
      method,
      authority,
      path,
      headers,
      bodyBytes: preamble.bodyBytes,
      upgrade: this.#rules.switches,
      peerAddress: preamble.callerAddress,
      encrypted: scheme === 'https',
      caller: {
        address: preamble.callerAddress,
        scheme: preamble.callerScheme,
        host: preamble.callerHost ?? authority,
      },
      requestId: getHeader(headers, 'x-request-id') ?? exchangeIdText(preamble.exchangeId),
      exchangeId: preamble.exchangeId,
    })
    return preamble.bodyBytes
  }

  #checkKind(method: string, bodyBytes: number, headers: HeaderList): void {
    const { method: only = method, body, switches } = this.#rules
    if (method !== only || (bodyBytes !== 0 && !body)) throw new ProtocolError('a request that its kind does not allow')
    if (!switches) return
    checkUpgradeFields(headers)
    this.#decoder.raw()
  }

  #handOver(onExchange: ExchangeHandler, preamble: Preamble, request: HttpRequest): void {
    this.unbegun = false
    const sink = onExchange(preamble, request, this)
    if (typeof sink === 'string') {
      if (!this.#over) this.#refuse(sink)
      return
    }
    this.#sink = sink
    if (this.#failure) sink.requestAbort(this.#failure)
  }

  content(chunk: Uint8Array): void {
    if (this.#rules.switches && !this.#raw) throw new ProtocolError('bytes before the 101')
    this.#sink!.requestData(chunk)
  }

  end(): void {
    this.#requestEnded = true
    clearTimeout(this.#earlyTimer)
    if (this.#over) return
    if (this.#rules.switches && this.#sink) {
      if (this.#raw) this.#sink.requestEnd([])
    } else if (this.#decoder.complete) {
      this.#sink!.requestEnd(this.#decoder.trailers)
    } else {
      this.#fail(new ProtocolError('the request ended too early'), 'protocol')
    }
  }

  reset(code: ResetCode): void {
    clearTimeout(this.#earlyTimer)
    if (this.#over) return
    this.#finish()
    this.#sink?.requestAbort(errorOfResetRequest(code))
  }

  requestConsumed(bytes: number): void {
    this.#stream.consumed(bytes)
  }

  requestKept(bytes: number): void {
    this.#keptBytes = bytes
    this.#stream.keep(this.#decoder.heldBytes + bytes)
  }

  // Response, to the stream

  /** An invalid answer fails its exchange. Its error must not reach the timer or promise that it comes from. */
  #invalid(error: unknown): void {
    endFor(error, this.#logger, 'an answer cannot be sent', () => this.#fail(toSallyportError(error)))
  }

  responseInformational(status: number, headers: HeaderList): void {
    if (this.#over || this.#headSent || this.#rules.switches) return
    try {
      const text = responseHeadText(status, headers)
      this.#begin()
      this.#writer.text(text)
    } catch (error) {
      this.#invalid(error)
    }
  }

  responseHead(response: ResponseHead): void {
    if (this.#over || this.#headSent) return
    try {
      const { status, headers } = response
      if (status !== 101 && !(status >= 200 && status <= 599))
        throw new SallyportError('upstream-broken', `status ${status}`)
      const text = responseHeadText(status, headers)
      if (text.length > MAX_HEAD_BYTES || headers.length > 2 * MAX_FIELDS)
        throw new SallyportError('upstream-broken', 'the response head is over the limits')
      this.#headSent = true
      if (status === 101) this.#switch(text, headers)
      else {
        this.#begin()
        this.#writer.text(text)
      }
    } catch (error) {
      this.#invalid(error)
    }
  }

  #begin(): void {
    if (this.#begun) return
    this.#begun = true
    this.#writer.text(FIRST)
  }

  #switch(text: string, headers: HeaderList): void {
    if (!this.#rules.switches) throw new SallyportError('upstream-broken', 'a 101 that nobody asked for')
    this.#raw = true
    checkUpgradeFields(headers)
    this.#writer.text(MESSAGE + text)
    if (this.#requestEnded) this.#sink?.requestEnd([])
  }

  responseData(chunk: Uint8Array): void {
    try {
      if (this.#over || this.#writer.ended) this.#sink?.responseConsumed(chunk.length)
      else if (this.#raw) this.#writer.raw(chunk)
      else this.#writer.content(chunk)
    } catch (error) {
      this.#invalid(error)
    }
  }

  responseEnd(trailers: HeaderList): void {
    if (this.#over || this.#writer.ended) return
    try {
      if (this.#raw) this.#writer.finish('')
      else {
        checkFields(trailers)
        this.#writer.end(trailers)
        this.#endEarly()
      }
    } catch (error) {
      this.#invalid(error)
    }
  }

  responseAbort(error: SallyportError): void {
    if (this.#over || (this.#writer.ended && !this.#raw)) return
    this.#finish()
    this.#stream.reset(resetCodeOf(error))
  }

  consumed(bytes: number): void {
    const content = this.#writer.left(bytes)
    if (content > 0) this.#sink?.responseConsumed(content)
  }

  /** The response is complete before the request. The peer should stop sending within 5 s once the response has left. */
  #endEarly(): void {
    if (this.#requestEnded) return
    this.#earlyTimer = setTimeout(AcceptedExchange.#early, EARLY_ANSWER_MS, this)
    this.#earlyTimer.unref()
  }

  #stopEarly(): void {
    if (this.#stream.queuedBytes > 0) this.#endEarly()
    else {
      this.#stream.reset('cancelled')
      this.reset('cancelled')
    }
  }

  /** A failure in a timer ends the exchange. */
  threw(error: unknown): void {
    endFor(error, this.#logger, 'an exchange failed', () => this.#fail(toSallyportError(error)))
  }

  #refuse(code: RefusalCode): void {
    if (this.#begun) throw new TypeError('refused after an answer had begun')
    this.#over = true
    this.#decoder.stop()
    this.#writer.finish(varintText(ANSWER.refused) + varintText(REFUSALS[code]))
    this.#endEarly()
  }

  /** `broken`: why the stream is reset if a message breaks the rules. */
  #fail(error: unknown, broken: ResetCode = 'upstream-broken'): void {
    if (this.#over) return
    const known = toSallyportError(error)
    if (known !== error) logDefect(this.#logger, 'an exchange handler threw', error)
    const sink = this.#sink
    if (sink === undefined && !this.#begun && !this.#raw && known instanceof ProtocolError) {
      this.#refuse(known instanceof UnsupportedError ? 'unsupported' : 'malformed')
      return
    }
    this.#failure = known
    this.#finish()
    this.#stream.reset(known instanceof ProtocolError ? broken : resetCodeOf(known))
    sink?.requestAbort(known)
  }

  #finish(): void {
    this.#over = true
    this.#writer.drop()
    this.#decoder.stop()
    clearTimeout(this.#earlyTimer)
  }
}
