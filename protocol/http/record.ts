/** The layer that reports each exchange once it is over. */
import { performance } from 'node:perf_hooks'
import type { SallyportError } from '../base/errors.ts'
import { withoutQuery } from '../base/path.ts'
import type { ExchangeNotes, ExchangeRecord, HttpRequest, ResponseHead, ResponseSink } from '../exchange.ts'
import { type Layer, PassThrough } from '../layer.ts'
import { sampledTraceId } from '../trace/context.ts'
import { reportedError } from './problem.ts'

/** Bytes of the bodies of all exchanges so far, as they pass. */
export class BodyBytes {
  bodyBytesIn = 0
  bodyBytesOut = 0
}

/** Adds to `bytes`. Without a listener, the layer does nothing. */
export function record(
  onExchange: ((record: ExchangeRecord) => void) | undefined,
  bytes: BodyBytes = new BodyBytes(),
): Layer {
  if (onExchange === undefined) return next => next
  return next => (request, response) => new Recorded(onExchange, bytes, request, response).pass(next, request)
}

class Recorded extends PassThrough implements ExchangeNotes {
  route: string | undefined
  session: string | undefined
  inboxId: string | undefined
  readonly #onExchange: (record: ExchangeRecord) => void
  readonly #bytes: BodyBytes
  readonly #request: HttpRequest
  /** Where notes are written. A router behind a client shares the client's notes. */
  readonly #notes: ExchangeNotes
  readonly #startedAt = performance.now()
  /** As they arrived, since later layers may change the request. */
  readonly #method: string
  readonly #host: string
  readonly #path: string
  #code: string | undefined
  #bytesIn = 0
  #bytesOut = 0

  constructor(
    onExchange: (record: ExchangeRecord) => void,
    bytes: BodyBytes,
    request: HttpRequest,
    response: ResponseSink,
  ) {
    super(response)
    this.#onExchange = onExchange
    this.#bytes = bytes
    this.#request = request
    this.#method = request.method
    this.#host = request.authority
    this.#path = request.path
    this.session = request.session
    this.#notes = request.notes ??= this
  }

  override requestData(chunk: Uint8Array): void {
    // What is discarded after the end is in no record.
    if (!this.isOver) this.#bytes.bodyBytesIn += chunk.length
    this.#bytesIn += chunk.length
    super.requestData(chunk)
  }

  override responseHead(head: ResponseHead): void {
    if (head.status >= 400) this.#code = reportedError(head.headers)
    super.responseHead(head)
  }

  override responseData(chunk: Uint8Array): void {
    if (!this.isOver) this.#bytes.bodyBytesOut += chunk.length
    this.#bytesOut += chunk.length
    super.responseData(chunk)
  }

  protected override over(error: SallyportError | undefined, cut: boolean): void {
    const request = this.#request
    this.#onExchange({
      requestId: request.requestId,
      runtime: request.runtime,
      route: this.#notes.route,
      session: this.#notes.session,
      method: this.#method,
      host: this.#host,
      path: withoutQuery(this.#path),
      caller: request.caller?.address ?? request.peerAddress,
      status: this.status,
      code: error?.reason ?? this.#code,
      cut,
      durationMs: performance.now() - this.#startedAt,
      bytesIn: this.#bytesIn,
      bytesOut: this.#bytesOut,
      upgrade: request.upgrade,
      inboxId: this.#notes.inboxId,
      traceId: sampledTraceId(request.headers),
    })
  }
}

/** Reports requests that were refused before the layer saw them. The heads of most could not be read. */
export function recordRefused(
  onExchange: ((record: ExchangeRecord) => void) | undefined,
): (error: SallyportError, request: HttpRequest) => void {
  return (error, { requestId, caller, peerAddress }) =>
    onExchange?.({
      requestId,
      runtime: undefined,
      route: undefined,
      session: undefined,
      method: '',
      host: '',
      path: '',
      caller: caller?.address ?? peerAddress,
      status: error.status,
      code: error.reason,
      cut: false,
      durationMs: 0,
      bytesIn: 0,
      bytesOut: 0,
      upgrade: false,
    })
}
