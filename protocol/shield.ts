/** Layers of an embedder, between two of ours: what one of them throws costs its exchange, and reaches neither end. */
import { SallyportError } from './base/errors.ts'
import { callHandler, tellDefect } from './base/guard.ts'
import type { Logger } from './base/log.ts'
import type { ExchangeNotes, Handler, HeaderList, ResponseHead, ResponseSink } from './exchange.ts'
import { compose, type Layer, PassThrough } from './layer.ts'

/** `handler` behind `layers`; without any it is `handler` itself. */
export function shielded(layers: readonly Layer[], handler: Handler, logger: Logger): Handler {
  if (layers.length === 0) return handler
  const fronts = new WeakMap<ExchangeNotes, Front>()
  const inner: Handler = (request, response) => {
    const front = request.notes === undefined ? undefined : fronts.get(request.notes)
    return new Back(response, logger, front).pass(handler, request)
  }
  const layered = compose(layers, inner)
  const guarded: Handler = (request, response) => callHandler(layered, request, response, logger)
  return (request, response) => {
    const front = new Front(response, logger)
    request.notes ??= { route: undefined, session: undefined }
    fronts.set(request.notes, front)
    return front.pass(guarded, request)
  }
}

/** In front of the layers: calls into them with what the caller says. */
class Front extends PassThrough {
  readonly #logger: Logger

  constructor(response: ResponseSink, logger: Logger) {
    super(response)
    this.#logger = logger
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (error) {
      tellDefect(this.#logger, 'a layer threw', error)
      this.fail(error)
    }
  }

  fail(cause: unknown): void {
    if (this.isOver) return
    const error = new SallyportError('internal', 'a layer threw', { cause })
    this.leave(error)
    this.responseAbort(error)
  }

  /** Nothing more is asked of the layers but to end. */
  leave(error: SallyportError): void {
    try {
      super.requestAbort(error)
    } catch (again) {
      tellDefect(this.#logger, 'a layer threw', again)
    }
    this.detach()
  }

  override requestData(chunk: Uint8Array): void {
    this.#guard(() => super.requestData(chunk))
  }

  override requestEnd(trailers: HeaderList): void {
    this.#guard(() => super.requestEnd(trailers))
  }

  override requestAbort(error: SallyportError): void {
    this.leave(error)
  }

  override responseConsumed(bytes: number): void {
    this.#guard(() => super.responseConsumed(bytes))
  }
}

/** Behind the layers: calls into them with what the sessions or the target say. */
class Back extends PassThrough {
  readonly #logger: Logger
  readonly #front: Front | undefined

  constructor(response: ResponseSink, logger: Logger, front: Front | undefined) {
    super(response)
    this.#logger = logger
    this.#front = front
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (error) {
      tellDefect(this.#logger, 'a layer threw', error)
      this.requestAbort(new SallyportError('internal', 'a layer threw', { cause: error }))
      this.detach()
      this.#front?.fail(error)
    }
  }

  override responseInformational(status: number, headers: HeaderList): void {
    this.#guard(() => super.responseInformational(status, headers))
  }

  override responseHead(head: ResponseHead): void {
    this.#guard(() => super.responseHead(head))
  }

  override responseData(chunk: Uint8Array): void {
    this.#guard(() => super.responseData(chunk))
  }

  override responseEnd(trailers: HeaderList): void {
    this.#guard(() => super.responseEnd(trailers))
  }

  override responseAbort(error: SallyportError): void {
    this.#guard(() => super.responseAbort(error))
  }

  override requestConsumed(bytes: number): void {
    this.#guard(() => super.requestConsumed(bytes))
  }

  override acknowledged(): void {
    this.#guard(() => super.acknowledged())
  }

  override unwanted(): void {
    this.#guard(() => super.unwanted())
  }
}
