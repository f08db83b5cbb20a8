/** The platform's door into a runtime: an undici Dispatcher whose requests go through the runtime's sessions. */

import { Blob } from 'node:buffer'
import { STATUS_CODES } from 'node:http'
import { Dispatcher } from 'undici'
import { SallyportError } from '../../protocol/errors.ts'
import {
  BODY_UNKNOWN,
  type HeaderList,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import type { Edge } from '../edge/handler.ts'
import { BodyPump, type BodySource } from './body.ts'
import { buildRequest, type CallOptions } from './request.ts'

type Headers = Record<string, string | string[]>

export class RuntimeDispatcher extends Dispatcher {
  readonly #edge: Edge
  readonly #runtime: string
  readonly #options: CallOptions
  #closed = false

  constructor(edge: Edge, runtime: string, options: CallOptions) {
    super()
    this.#edge = edge
    this.#runtime = runtime
    this.#options = options
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const response = new DispatchResponse(handler)
    try {
      if (this.#closed) throw new TypeError('the dispatcher is closed')
      if (options.upgrade) throw new TypeError('the dispatcher carries no upgrades')
      const body = bodyOf(options.body)
      const request = buildRequest(headOf(options, body), this.#options)
      if (!response.begin()) return true
      const sink = this.#edge.forward(this.#runtime, request, response)
      response.connect(sink)
      if (body === undefined) sink.end([])
      else void response.pump.run(body.source, sink)
    } catch (error) {
      response.refuse(error instanceof Error ? error : new Error(String(error)))
    }
    return true
  }

  override close(callback: () => void): void
  override close(): Promise<void>
  override close(callback?: () => void): Promise<void> | undefined {
    this.#closed = true
    if (callback === undefined) return Promise.resolve()
    queueMicrotask(callback)
    return undefined
  }

  override destroy(error: Error | null, callback: () => void): void
  override destroy(callback: () => void): void
  override destroy(error?: Error | null): Promise<void>
  override destroy(first?: Error | null | (() => void), second?: () => void): Promise<void> | undefined {
    const callback = typeof first === 'function' ? first : second
    return callback === undefined ? this.close() : (this.close(callback) as undefined)
  }
}

function headOf(options: Dispatcher.DispatchOptions, body: Body | undefined) {
  const url = new URL(options.path, options.origin ?? 'https://runtime.invalid')
  const query = options.query === undefined || options.query === null ? '' : `?${new URLSearchParams(options.query)}`
  const headers = flatten(options.headers)
  if (body?.contentType !== undefined && !headers.includes('content-type'))
    headers.push('content-type', body.contentType)
  const path = options.path.startsWith('/') ? options.path : url.pathname + url.search
  return { method: options.method, url, path: path + query, headers, bodyBytes: body?.bytes ?? 0 }
}

function flatten(headers: Dispatcher.DispatchOptions['headers']): HeaderList {
  const list: HeaderList = []
  const add = (name: string, value: unknown) => {
    if (value === undefined || value === null) return
    for (const one of Array.isArray(value) ? value : [value]) list.push(name.toLowerCase(), String(one).trim())
  }
  if (Array.isArray(headers) && typeof headers[0] === 'string') {
    for (let i = 0; i + 1 < headers.length; i += 2) add(String(headers[i]), headers[i + 1])
  } else if (headers !== null && headers !== undefined) {
    const pairs = Symbol.iterator in headers ? (headers as Iterable<[string, unknown]>) : Object.entries(headers)
    for (const [name, value] of pairs) add(name, value)
  }
  return list
}

interface Body {
  readonly source: BodySource
  readonly bytes: number
  readonly contentType?: string
}

function bodyOf(body: unknown): Body | undefined {
  if (body === undefined || body === null) return undefined
  if (typeof body === 'string') return bodyOf(Buffer.from(body))
  if (body instanceof ArrayBuffer) return bodyOf(new Uint8Array(body))
  if (ArrayBuffer.isView(body)) {
    const bytes = new Uint8Array(body.buffer, body.byteOffset, body.byteLength)
    return bytes.length === 0 ? undefined : { source: [bytes], bytes: bytes.length }
  }
  if (body instanceof Blob) return { source: body.stream() as unknown as BodySource, bytes: body.size }
  if (body instanceof FormData) {
    const encoded = new Response(body)
    const contentType = encoded.headers.get('content-type')!
    return { source: encoded.body as unknown as BodySource, bytes: BODY_UNKNOWN, contentType }
  }
  if (typeof body === 'object' && (Symbol.asyncIterator in body || Symbol.iterator in body)) {
    return { source: body as BodySource, bytes: BODY_UNKNOWN }
  }
  throw new TypeError('the body is of a kind that the dispatcher does not carry')
}

/** From the data path's calls to those of undici's handlers. */
class DispatchResponse implements ResponseSink {
  readonly pump = new BodyPump()
  readonly #handler: Dispatcher.DispatchHandler
  readonly #controller: Controller
  #sink: RequestSink | undefined
  #over = false
  #unconsumed = 0

  constructor(handler: Dispatcher.DispatchHandler) {
    this.#handler = handler
    this.#controller = new Controller(
      () => this.#give(),
      reason => this.#abortedByCaller(reason),
    )
  }

  /** False if the caller has given up already. */
  begin(): boolean {
    this.#handler.onRequestStart?.(this.#controller, {})
    return !this.#controller.aborted
  }

  connect(sink: RequestSink): void {
    this.#sink = sink
    if (this.#controller.aborted) sink.abort(new SallyportError('cancelled'))
    else if (!this.#controller.paused) this.#give()
  }

  refuse(error: Error): void {
    if (this.#over) return
    this.#over = true
    queueMicrotask(() => this.#handler.onResponseError?.(this.#controller, error))
  }

  #give(): void {
    const bytes = this.#unconsumed
    if (this.#sink === undefined || bytes === 0) return
    this.#unconsumed = 0
    this.#sink.consumed(bytes)
  }

  #abortedByCaller(reason: Error): void {
    if (this.#over) return
    this.#over = true
    this.pump.stop()
    this.#sink?.abort(new SallyportError('cancelled'))
    this.#handler.onResponseError?.(this.#controller, reason)
  }

  informational(status: number, headers: HeaderList): void {
    if (!this.#over) this.#handler.onResponseStart?.(this.#controller, status, toObject(headers), STATUS_CODES[status])
  }

  head(response: ResponseHead): void {
    if (this.#over) return
    this.#controller.rawHeaders = response.headers.map(text => Buffer.from(text, 'latin1'))
    const status = response.status
    this.#handler.onResponseStart?.(this.#controller, status, toObject(response.headers), STATUS_CODES[status] ?? '')
  }

  data(chunk: Uint8Array): void {
    this.#unconsumed += chunk.length
    if (!this.#over) {
      this.#handler.onResponseData?.(this.#controller, Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length))
    }
    if (!this.#controller.paused) this.#give()
  }

  end(trailers: HeaderList): void {
    if (this.#over) return
    this.#over = true
    this.pump.stop()
    this.#handler.onResponseEnd?.(this.#controller, toObject(trailers))
  }

  abort(error: SallyportError): void {
    if (this.#over) return
    this.#over = true
    this.pump.stop()
    this.#handler.onResponseError?.(this.#controller, error)
  }

  consumed(bytes: number): void {
    this.pump.consumed(bytes)
  }
}

class Controller implements Dispatcher.DispatchController {
  paused = false
  reason: Error | null = null
  rawHeaders: Buffer[] | null = null
  rawTrailers: Buffer[] | null = null
  readonly #onResume: () => void
  readonly #onAbort: (reason: Error) => void

  constructor(onResume: () => void, onAbort: (reason: Error) => void) {
    this.#onResume = onResume
    this.#onAbort = onAbort
  }

  get aborted(): boolean {
    return this.reason !== null
  }

  abort(reason: Error): void {
    if (this.aborted) return
    this.reason = reason
    this.#onAbort(reason)
  }

  pause(): void {
    this.paused = true
  }

  resume(): void {
    if (!this.paused) return
    this.paused = false
    this.#onResume()
  }
}

function toObject(headers: HeaderList): Headers {
  const object: Headers = Object.create(null)
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    const value = headers[i + 1]!
    const known = object[name]
    if (known === undefined) object[name] = value
    else if (Array.isArray(known)) known.push(value)
    else object[name] = [known, value]
  }
  return object
}
