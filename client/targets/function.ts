/** A target that is a function from a web Request to a Response. Both bodies stream, with back-pressure. */
import { messageOf, SallyportError } from '../../protocol/base/errors.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import { detached, logDefect } from '../../protocol/base/guard.ts'
import { type Logger, noLogger } from '../../protocol/base/log.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import { appendForwarded } from '../../protocol/http/forwarded.ts'
import {
  getHeader,
  hasHeader,
  isFieldValue,
  listTokens,
  plainNumber,
  removeHeader,
  stripHopByHop,
} from '../../protocol/http/headers.ts'
import { refusesRest } from '../../protocol/http/http1/client-exchange.ts'
import { answerProblem } from '../../protocol/http/problem.ts'

/**
 * A target in the same process: a function from a web `Request` to a `Response`. If it fails, the caller gets 502 `upstream-broken`,
 * and `logger` the reason.
 */
export type FetchHandler = (request: Request) => Response | Promise<Response>

/** Reading of the response body pauses while this many of its bytes wait to be consumed. */
const UNCONSUMED_BYTES = 64 * 1024

/** Methods that a Request cannot have (Fetch standard, "forbidden method"). */
const FORBIDDEN: ReadonlySet<string> = new Set(['CONNECT', 'TRACE', 'TRACK'])

/** Codings that `fetch` decodes while leaving the header fields as they are; `zstd` since undici 7.11. */
const FETCH_DECODES = new Set(['gzip', 'x-gzip', 'deflate', 'br'])
const [major = 0, minor = 0] = (process.versions.undici ?? '').split('.').map(Number)
if (major > 7 || (major === 7 && minor >= 11)) FETCH_DECODES.add('zstd')

/** An upgrade reaches the function as a plain GET, so its answer declines the upgrade. */
export function functionTarget(fetch: FetchHandler, logger: Logger = noLogger): Handler {
  return (request, response) => {
    const exchange = new FunctionExchange(request, response, logger)
    if (FORBIDDEN.has(request.method)) {
      answerProblem(response, request, new SallyportError('method-not-allowed'))
      exchange.discard()
    } else {
      detached(logger, 'a target failed', exchange.run(fetch))
    }
    return exchange
  }
}

class FunctionExchange implements RequestSink {
  readonly #request: HttpRequest
  readonly #response: ResponseSink
  readonly #logger: Logger
  readonly #gone = new AbortController()
  readonly #chunks = new GatheredChunks()
  #onArrival: (() => void) | undefined
  #body: ReadableStreamDefaultController<Uint8Array> | undefined
  #ended = false
  /** The caller waits for a 100, which it gets when the function reads the body. */
  #awaitsContinue = false
  #discarding = false
  #unconsumed = 0
  #onConsumed: (() => void) | undefined
  /** Reads the body of the function's response. */
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined
  /** Kept until the end: the function may hold on to nothing but its signal, which would fall silent if the Request were collected. */
  #requestGiven: Request | undefined

  constructor(request: HttpRequest, response: ResponseSink, logger: Logger) {
    this.#request = request
    this.#response = response
    this.#logger = logger
  }

  // Called from the caller's side.

  requestData(chunk: Uint8Array): void {
    if (this.#discarding) {
      this.#response.requestConsumed(chunk.length)
      return
    }
    this.#chunks.add(chunk)
    this.#wake()
  }

  requestEnd(): void {
    this.#ended = true
    this.#wake()
  }

  requestAbort(error: SallyportError): void {
    this.#gone.abort(error)
    this.#body?.error(error)
    this.#giveUpAnswer(error)
    this.discard()
    this.#resume()
  }

  responseConsumed(bytes: number): void {
    this.#unconsumed -= bytes
    if (this.#unconsumed < UNCONSUMED_BYTES) this.#resume()
  }

  // For the function.

  async run(fetch: FetchHandler): Promise<void> {
    try {
      this.#requestGiven = this.#makeRequest()
      const answer = await fetch(this.#requestGiven)
      if (!(answer instanceof Response)) throw new TypeError('the target function returned no Response')
      await this.#send(answer)
    } catch (cause) {
      if (!this.#gone.signal.aborted) {
        logDefect(this.#logger, 'a target function failed', cause)
        this.#response.responseAbort(new SallyportError('upstream-broken', messageOf(cause), { cause }))
      }
      this.#giveUpAnswer(cause)
    } finally {
      this.#finish()
    }
  }

  /** Cancels the response body. Its next chunk may take long, and its source should learn at once that nobody reads it any more. */
  #giveUpAnswer(cause: unknown): void {
    this.#reader?.cancel(cause).catch(() => {})
  }

  /** Discards the rest of the request body. */
  discard(): void {
    this.#discarding = true
    const { bytes } = this.#chunks
    this.#chunks.clear()
    if (bytes > 0) this.#response.requestConsumed(bytes)
    this.#wake()
  }

  #makeRequest(): Request {
    const { method, caller, authority, path, bodyBytes } = this.#request
    const headers = new Headers([['host', authority]])
    const fields: HeaderList = [...this.#request.headers]
    if (caller !== undefined) appendForwarded(fields, caller)
    this.#awaitsContinue = hasHeader(fields, 'expect')
    removeHeader(fields, 'expect')
    for (let i = 0; i < fields.length; i += 2) headers.append(fields[i]!, fields[i + 1]!)
    const url = `${caller?.scheme ?? 'http'}://${authority}${path}`
    const init = { method, headers, signal: this.#gone.signal, redirect: 'manual' } as const
    if (bodyBytes === 0 || method === 'GET' || method === 'HEAD') {
      this.discard()
      return new Request(url, init)
    }
    return new Request(url, { ...init, body: this.#bodyStream(), duplex: 'half' } as RequestInit)
  }

  /**
   * Pulled, never pushed, so that the caller gets credit only as the function reads. The function gets copies, since it may transfer
   * their memory, which may belong to others as well.
   */
  #bodyStream(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: controller => {
          this.#body = controller
        },
        pull: async controller => {
          this.#letGoOn()
          while (this.#chunks.bytes === 0 && !this.#ended && !this.#discarding) await this.#arrival()
          const chunk = this.#chunks.shift()
          if (chunk === undefined) return this.#closeBody(controller)
          this.#response.requestConsumed(chunk.length)
          controller.enqueue(new Uint8Array(chunk))
        },
        cancel: () => {
          this.#body = undefined
          this.discard()
        },
      },
      { highWaterMark: 0 },
    )
  }

  #letGoOn(): void {
    if (this.#awaitsContinue) this.#response.responseInformational(100, [])
    this.#awaitsContinue = false
  }

  #closeBody(controller: ReadableStreamDefaultController<Uint8Array>): void {
    if (this.#body === undefined || this.#gone.signal.aborted) return
    this.#body = undefined
    if (this.#ended && this.#chunks.bytes === 0) controller.close()
    else controller.error(new SallyportError('cancelled', 'the exchange is over'))
  }

  async #send(answer: Response): Promise<void> {
    if (this.#gone.signal.aborted) return await answer.body?.cancel()
    const bodiless = this.#request.method === 'HEAD' || answer.status === 204 || answer.status === 304
    const headers = headersOf(answer)
    const length = bodiless || answer.body === null ? 0 : lengthOf(headers)
    const reader = answer.body?.getReader()
    this.#reader = reader
    if (length === BODY_UNKNOWN) removeHeader(headers, 'content-length')
    // The rest of the answer may depend on what is still to be read.
    if (!refusesRest(answer.status, length) && this.#body !== undefined) this.#letGoOn()
    this.#response.responseHead({ status: answer.status, headers, bodyBytes: length })
    if (bodiless) this.#giveUpAnswer(undefined)
    else if (reader !== undefined) await this.#pump(reader, length)
    if (!this.#gone.signal.aborted) this.#response.responseEnd([])
  }

  async #pump(reader: ReadableStreamDefaultReader<Uint8Array>, length: number): Promise<void> {
    let sent = 0
    for (;;) {
      const { value, done } = await reader.read()
      if (this.#gone.signal.aborted) return
      if (done) break
      if (!(value instanceof Uint8Array))
        throw new TypeError('the body of the Response has a chunk that is not a Uint8Array')
      if (value.length === 0) continue
      sent += value.length
      if (length >= 0 && sent > length)
        throw new TypeError('the body of the Response is longer than its content-length')
      this.#unconsumed += value.length
      // A copy, since the function may reuse or transfer the chunk's memory.
      this.#response.responseData(new Uint8Array(value))
      if (this.#unconsumed >= UNCONSUMED_BYTES) await this.#room()
    }
    if (length >= 0 && sent < length) throw new TypeError('the body of the Response is shorter than its content-length')
  }

  #finish(): void {
    this.#requestGiven = undefined
    if (this.#body !== undefined) this.#closeBody(this.#body)
    this.discard()
  }

  #arrival(): Promise<void> {
    return new Promise(resolve => {
      this.#onArrival = resolve
    })
  }

  #wake(): void {
    const wanted = this.#onArrival
    this.#onArrival = undefined
    wanted?.()
  }

  #room(): Promise<void> {
    return new Promise(resolve => {
      this.#onConsumed = resolve
    })
  }

  #resume(): void {
    const taken = this.#onConsumed
    this.#onConsumed = undefined
    taken?.()
  }
}

function headersOf(answer: Response): HeaderList {
  const headers: HeaderList = []
  for (const [name, value] of answer.headers) {
    if (isFieldValue(value)) headers.push(name, value)
  }
  stripHopByHop(headers)
  removeHeader(headers, 'sallyport-error')
  if (wasDecoded(answer)) for (const name of ['content-encoding', 'content-length']) removeHeader(headers, name)
  return headers
}

/** Whether the response came from `fetch`, which has decoded it. A function that decodes a body itself adjusts the fields. */
function wasDecoded(answer: Response): boolean {
  const codings = answer.type === 'default' ? null : answer.headers.get('content-encoding')
  return codings !== null && listTokens(codings).every(coding => FETCH_DECODES.has(coding))
}

/** Without a valid `content-length` it is BODY_UNKNOWN. */
function lengthOf(headers: HeaderList): number {
  return plainNumber(getHeader(headers, 'content-length') ?? '')
}
