/** A target that is a function of the web's Request and Response. Both bodies stream, with back-pressure. */
import { messageOf, SallyportError } from '../../protocol/base/errors.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import { detached } from '../../protocol/base/guard.ts'
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
import { isFieldValue, listTokens, removeHeader, stripHopByHop } from '../../protocol/http/headers.ts'
import { answerProblem } from '../../protocol/http/problem.ts'

/** A target in the process: a function of a web `Request`. */
export type FetchHandler = (request: Request) => Response | Promise<Response>

/** The function's body is read no further while this many response bytes wait to be taken. */
const UNTAKEN_BYTES = 64 * 1024

/** Methods that a Request cannot hold (Fetch standard, "forbidden method"). */
const FORBIDDEN: ReadonlySet<string> = new Set(['CONNECT', 'TRACE', 'TRACK'])

/** Codings that `fetch` undoes; `zstd` since undici 7.11. It leaves the fields as they came. */
const UNDONE = new Set(['gzip', 'x-gzip', 'deflate', 'br'])
const [major = 0, minor = 0] = (process.versions.undici ?? '').split('.').map(Number)
if (major > 7 || (major === 7 && minor >= 11)) UNDONE.add('zstd')

/** An upgrade reaches the function as a plain GET: its answer is the upstream's "no". */
export function functionTarget(fetch: FetchHandler, logger: Logger = noLogger): Handler {
  return (request, response) => {
    const exchange = new FunctionExchange(request, response)
    if (FORBIDDEN.has(request.method.toUpperCase())) {
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
  readonly #gone = new AbortController()
  readonly #chunks = new GatheredChunks()
  #wanted: (() => void) | undefined
  #body: ReadableStreamDefaultController<Uint8Array> | undefined
  #ended = false
  #discarding = false
  #untaken = 0
  #taken: (() => void) | undefined
  /** Of the function's own body, while it is read. */
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined
  /** Whoever listens to its signal may keep nothing else of it, and a Request that is collected tells nobody. */
  #made: Request | undefined

  constructor(request: HttpRequest, response: ResponseSink) {
    this.#request = request
    this.#response = response
  }

  // The caller's side.

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
    this.#untaken -= bytes
    if (this.#untaken < UNTAKEN_BYTES) this.#resume()
  }

  // The function's side.

  async run(fetch: FetchHandler): Promise<void> {
    try {
      this.#made = this.#makeRequest()
      const answer = await fetch(this.#made)
      if (!(answer instanceof Response)) throw new TypeError('the target function returned no Response')
      await this.#send(answer)
    } catch (cause) {
      if (!this.#gone.signal.aborted)
        this.#response.responseAbort(new SallyportError('upstream-broken', messageOf(cause), { cause }))
      this.#giveUpAnswer(cause)
    } finally {
      this.#finish()
    }
  }

  /** The next chunk of the body may take long, or nobody reads the body any more. Its source should know now. */
  #giveUpAnswer(cause: unknown): void {
    this.#reader?.cancel(cause).catch(() => {})
  }

  /** The rest of the request's body is of no interest any more. */
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
    for (let i = 0; i < fields.length; i += 2) headers.append(fields[i]!, fields[i + 1]!)
    const url = `${caller?.scheme ?? 'http'}://${authority}${path}`
    const init = { method, headers, signal: this.#gone.signal, redirect: 'manual' } as const
    if (bodyBytes === 0 || /^(?:get|head)$/i.test(method)) {
      this.discard()
      return new Request(url, init)
    }
    return new Request(url, { ...init, body: this.#bodyStream(), duplex: 'half' } as RequestInit)
  }

  /** Pulled, never pushed: the caller gets credit only as the function reads. */
  #bodyStream(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: controller => {
          this.#body = controller
        },
        pull: async controller => {
          while (this.#chunks.bytes === 0 && !this.#ended && !this.#discarding) await this.#arrival()
          const chunk = this.#chunks.shift()
          if (chunk === undefined) return this.#closeBody(controller)
          this.#response.requestConsumed(chunk.length)
          controller.enqueue(chunk)
        },
        cancel: () => {
          this.#body = undefined
          this.discard()
        },
      },
      { highWaterMark: 0 },
    )
  }

  #closeBody(controller: ReadableStreamDefaultController<Uint8Array>): void {
    if (this.#body === undefined || this.#gone.signal.aborted) return
    this.#body = undefined
    if (this.#ended) controller.close()
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
    this.#response.responseHead({ status: answer.status, headers, bodyBytes: length })
    if (reader !== undefined && bodiless) await reader.cancel()
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
        throw new TypeError('the body of the Response has a chunk that is no Uint8Array')
      if (value.length === 0) continue
      sent += value.length
      if (length >= 0 && sent > length)
        throw new TypeError('the body of the Response is longer than its content-length')
      this.#untaken += value.length
      this.#response.responseData(value)
      if (this.#untaken >= UNTAKEN_BYTES) await this.#room()
    }
    if (length >= 0 && sent < length) throw new TypeError('the body of the Response is shorter than its content-length')
  }

  #finish(): void {
    this.#made = undefined
    this.discard()
    if (this.#body !== undefined) this.#closeBody(this.#body)
  }

  #arrival(): Promise<void> {
    return new Promise(resolve => {
      this.#wanted = resolve
    })
  }

  #wake(): void {
    const wanted = this.#wanted
    this.#wanted = undefined
    wanted?.()
  }

  #room(): Promise<void> {
    return new Promise(resolve => {
      this.#taken = resolve
    })
  }

  #resume(): void {
    const taken = this.#taken
    this.#taken = undefined
    taken?.()
  }
}

function headersOf(answer: Response): HeaderList {
  const headers: HeaderList = []
  for (const [name, value] of answer.headers) {
    if (isFieldValue(value)) headers.push(name, value)
  }
  stripHopByHop(headers)
  if (wasDecoded(answer)) for (const name of ['content-encoding', 'content-length']) removeHeader(headers, name)
  return headers
}

/** Whether `fetch` made the answer, of a coded one. A function that decodes by itself says so in the fields. */
function wasDecoded(answer: Response): boolean {
  const codings = answer.type === 'default' ? null : answer.headers.get('content-encoding')
  return codings !== null && listTokens(codings).every(coding => UNDONE.has(coding))
}

function lengthOf(headers: HeaderList): number {
  const at = headers.indexOf('content-length')
  return at >= 0 && at % 2 === 0 && /^\d{1,15}$/.test(headers[at + 1]!) ? Number(headers[at + 1]) : BODY_UNKNOWN
}
