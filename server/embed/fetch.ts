/** `fetch` into a runtime, with the platform's own Request and Response. */
import { SallyportError } from '../../protocol/base/errors.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import { type Failing, stepOf } from '../../protocol/base/guard.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HeaderList,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import { BodyPump, type BodySource } from './body.ts'
import { buildRequest, type CallOptions } from './request.ts'

const NO_BODY = new Set([101, 204, 205, 304])

/**
 * Sends `request` to `runtime`. Redirects are not followed and bodies are not decoded: the response is the upstream's. Rejects with a
 * {@link SallyportError} only if the response breaks off before its head. Our own refusals are responses.
 */
export function fetchRuntime(
  into: Handler,
  runtime: string,
  request: Request,
  options: CallOptions,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    request.signal.throwIfAborted()
    const url = new URL(request.url)
    const headers: HeaderList = []
    for (const [name, value] of request.headers) headers.push(name, value)
    const bodyBytes = request.body === null ? 0 : BODY_UNKNOWN
    const path = url.pathname + url.search
    const call = buildRequest({ method: request.method, url, path, headers, bodyBytes }, options)
    call.runtime = runtime
    const response = new FetchResponse(resolve, reject)
    const sink = into(call, response)
    response.connect(sink, request)
    if (request.body === null) sink.requestEnd([])
    else response.pump.run(request.body as unknown as BodySource, call.bodyBytes, sink)
  })
}

type Body = ReadableStreamDefaultController<Uint8Array>

/** Ends exchanges whose bodies were garbage-collected unread, since they would wait forever. */
const unreadable = new FinalizationRegistry(stepOf<FetchResponse>(response => response.cancel()))

class FetchResponse implements ResponseSink, Failing {
  readonly pump = new BodyPump(error => this.#broken(error))
  /** Cleared when it is settled, since it would keep the body alive. */
  #promise: { resolve(response: Response): void; reject(error: unknown): void } | undefined
  #sink: RequestSink | undefined
  /** Weak, so that the body can be collected if nobody has it or waits for more of it. */
  #body: WeakRef<Body> | undefined
  #wanted: Body | undefined
  /** What the reader has not asked for yet. */
  readonly #waiting = new GatheredChunks()
  #unconsumed = 0
  #over = false
  #unlisten: (() => void) | undefined

  constructor(resolve: (response: Response) => void, reject: (error: unknown) => void) {
    this.#promise = { resolve, reject }
  }

  /** Keeps a reference to `request`, since its signal follows the embedder's only while the request itself is reachable. */
  connect(sink: RequestSink, request: Request): void {
    this.#sink = sink
    if (this.#over) return
    const onAbort = () => {
      try {
        this.cancel()
        this.#fail(request.signal.reason)
      } catch (error) {
        this.#fail(error)
      }
    }
    request.signal.addEventListener('abort', onAbort, { once: true })
    this.#unlisten = () => request.signal.removeEventListener('abort', onAbort)
  }

  #broken(error: Error): void {
    if (this.#over) return
    this.#finish()
    this.#fail(error)
  }

  responseInformational(): void {}

  responseHead(response: ResponseHead): void {
    const headers = new Headers()
    for (let i = 0; i < response.headers.length; i += 2) headers.append(response.headers[i]!, response.headers[i + 1]!)
    const { status } = response
    const body = NO_BODY.has(status) || response.bodyBytes === 0 ? null : this.#stream()
    this.#promise?.resolve(new Response(body, { status, headers }))
    this.#promise = undefined
  }

  #stream(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: body => {
          this.#body = new WeakRef(body)
          unreadable.register(body, this)
        },
        pull: body => {
          const chunk = this.#waiting.shift()
          if (chunk === undefined) this.#wanted = body
          else give(body, chunk)
          this.#give()
        },
        cancel: () => {
          // Otherwise `unreadable`, which keeps this object, would keep the body alive forever.
          this.#wanted = undefined
          this.cancel()
        },
      },
      { highWaterMark: 0 },
    )
  }

  /** Call it before giving the body something, which may make it ask for more. */
  #takeBody(): Body | undefined {
    const body = this.#wanted ?? this.#body?.deref()
    this.#wanted = undefined
    return body
  }

  /** The reader has consumed everything that does not wait. */
  #give(): void {
    const bytes = this.#unconsumed - this.#waiting.bytes
    this.#unconsumed = this.#waiting.bytes
    if (bytes > 0) this.#sink?.responseConsumed(bytes)
  }

  /** @internal */
  cancel(): void {
    if (this.#over) return
    this.#finish()
    this.#waiting.clear()
    this.#sink?.requestAbort(new SallyportError('cancelled'))
  }

  responseData(chunk: Uint8Array): void {
    if (this.#over || this.#body === undefined) {
      this.#sink?.responseConsumed(chunk.length)
      return
    }
    this.#unconsumed += chunk.length
    if (this.#wanted === undefined) this.#waiting.add(chunk)
    else give(this.#takeBody(), chunk)
  }

  responseEnd(): void {
    if (this.#over) return
    this.#finish()
    const body = this.#takeBody()
    // A closed stream no longer asks for more, so it gets what waits, and gives credit for it.
    for (let chunk = this.#waiting.shift(); chunk !== undefined; chunk = this.#waiting.shift()) give(body, chunk)
    this.#give()
    body?.close()
  }

  responseAbort(error: SallyportError): void {
    if (this.#over) return
    this.#finish()
    this.#fail(error)
  }

  #fail(error: unknown): void {
    this.#promise?.reject(error)
    this.#promise = undefined
    this.#waiting.clear()
    this.#takeBody()?.error(error)
  }

  /** Its body was collected unread: nobody is left who could hear it. */
  threw(): void {}

  #finish(): void {
    this.#over = true
    this.pump.stop()
    this.#unlisten?.()
  }

  requestConsumed(bytes: number): void {
    this.pump.consumed(bytes)
  }
}

/** Gives a copy, since the reader may transfer its memory. That of `chunk` may belong to others as well, even to Node's TLS. */
function give(body: Body | undefined, chunk: Uint8Array): void {
  body?.enqueue(new Uint8Array(chunk))
}
