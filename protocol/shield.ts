/** Shields our layers from those of an embedder: an error that one throws fails its exchange, and reaches neither end nor another layer. */
import { type ErrorCode, SallyportError, toSallyportError } from './base/errors.ts'
import { callHandler, discarding, logDefect } from './base/guard.ts'
import type { Logger } from './base/log.ts'
import type {
  ExchangeNotes,
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from './exchange.ts'
import { compose, type Layer, PassThrough } from './layer.ts'

/**
 * Puts `layers` in front of `handler`, which must not throw; without layers, returns `handler` itself. An error of the handler's
 * sink fails the exchange with `reason`. Each layer has its own shield, because an asynchronous layer calls the others from its
 * own promise or timer, where nobody would catch their errors.
 */
export function shielded(
  layers: readonly Layer[],
  handler: Handler,
  logger: Logger,
  reason: ErrorCode = 'internal',
): Handler {
  return compose(
    layers.map(
      (layer): Layer =>
        next =>
          shieldedOne(layer, next, logger, reason),
    ),
    handler,
  )
}

function shieldedOne(layer: Layer, handler: Handler, logger: Logger, reason: ErrorCode): Handler {
  const fronts = new WeakMap<ExchangeNotes, Front>()
  const layered = layer((request, response) => {
    const front = request.notes === undefined ? undefined : fronts.get(request.notes)
    return new Back(response, logger, front, reason).begin(handler, request)
  })
  const guarded: Handler = (request, response) => callHandler(layered, request, response, logger)
  return (request, response) => {
    const front = new Front(response, logger)
    request.notes ??= { route: undefined, session: undefined }
    fronts.set(request.notes, front)
    return front.pass(guarded, request)
  }
}

function threw(cause: unknown): SallyportError {
  return new SallyportError('internal', 'a layer threw', { cause })
}

/** In front of a layer: passes calls from the caller into it. */
class Front extends PassThrough {
  readonly #logger: Logger
  /** The exchanges that the layer has passed on and that have not ended. */
  readonly #backs = new Set<Back>()
  /** Set when nobody waits for the layer's answer any more: the caller has left, or the layer failed. */
  gone: SallyportError | undefined

  constructor(response: ResponseSink, logger: Logger) {
    super(response)
    this.#logger = logger
  }

  joined(back: Back): void {
    this.#backs.add(back)
  }

  left(back: Back): void {
    this.#backs.delete(back)
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (error) {
      this.#tell(error)
      this.fail(error)
    }
  }

  #tell(error: unknown): void {
    logDefect(this.#logger, 'a layer threw', error)
  }

  /** A layer threw. Everything after it ends, whatever the layer still does. */
  fail(cause: unknown): void {
    if (this.gone !== undefined) return
    const wasOver = this.isOver
    const error = threw(cause)
    this.#leave(error)
    this.#stop(error)
    if (!wasOver) this.responseAbort(error)
  }

  /** Tells the layer to end, and calls it no more. */
  #leave(error: SallyportError): void {
    this.gone = error
    try {
      super.requestAbort(error)
    } catch (again) {
      this.#tell(again)
      this.#stop(error)
    }
    this.detach()
  }

  #stop(error: SallyportError): void {
    for (const back of this.#backs) back.stop(error)
  }

  override requestData(chunk: Uint8Array): void {
    this.#guard(() => super.requestData(chunk))
  }

  override requestEnd(trailers: HeaderList): void {
    this.#guard(() => super.requestEnd(trailers))
  }

  override requestAbort(error: SallyportError): void {
    if (this.gone === undefined) this.#leave(error)
  }

  override responseConsumed(bytes: number): void {
    this.#guard(() => super.responseConsumed(bytes))
  }

  // Calls from the layer. An invalid one is the layer's fault, and its error must not reach the code that called the layer.

  override responseInformational(status: number, headers: HeaderList): void {
    this.#guard(() => super.responseInformational(status, headers))
  }

  override responseHead(head: ResponseHead): void {
    this.#guard(() => {
      if (this.gone !== undefined) this.#stop(this.gone)
      else if (this.status === 0) super.responseHead(head)
      else throw new Error('a layer answered twice')
    })
  }

  /** If nobody waits for the answer, there is no credit either, so the layers after this one are stopped. */
  override responseData(chunk: Uint8Array): void {
    this.#guard(() => {
      if (this.gone !== undefined) this.#stop(this.gone)
      else {
        this.#needHead()
        super.responseData(chunk)
      }
    })
  }

  override responseEnd(trailers: HeaderList): void {
    this.#guard(() => {
      if (this.gone === undefined) this.#needHead()
      super.responseEnd(trailers)
    })
  }

  #needHead(): void {
    if (this.status === 0) throw new Error('a layer began an answer without a head')
  }

  /** The layer failed, or threw when it was called. It may have passed the exchange on before. */
  override responseAbort(error: SallyportError): void {
    const known = toSallyportError(error)
    if (known !== error) this.#tell(error)
    this.gone ??= known
    this.#stop(known)
    this.#guard(() => super.responseAbort(known))
  }

  override requestConsumed(bytes: number): void {
    this.#guard(() => super.requestConsumed(checkedCredit(bytes)))
  }

  override requestKept(bytes: number): void {
    this.#guard(() => super.requestKept(checkedCredit(bytes)))
  }
}

/** A wrong number would stay in the accounts of the session and the process for good. */
function checkedCredit(bytes: number): number {
  if (Number.isSafeInteger(bytes) && bytes >= 0) return bytes
  throw new RangeError(`a layer consumed ${bytes} bytes`)
}

/** Behind a layer: passes calls from the sessions or the target into it. */
class Back extends PassThrough {
  readonly #logger: Logger
  /** Undefined if a layer made a request of its own. */
  readonly #front: Front | undefined
  /** The error code if the next handler throws. */
  readonly #reason: ErrorCode

  constructor(response: ResponseSink, logger: Logger, front: Front | undefined, reason: ErrorCode) {
    super(response)
    this.#logger = logger
    this.#front = front
    this.#reason = reason
  }

  /** Passes the exchange on, unless nobody waits for it any more. */
  begin(handler: Handler, request: HttpRequest): RequestSink {
    const gone = this.#front?.gone
    if (gone === undefined) {
      this.#front?.joined(this)
      return this.pass(handler, request)
    }
    this.responseAbort(gone)
    return discarding(this)
  }

  protected override over(): void {
    this.#front?.left(this)
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (error) {
      this.#tell(error)
      this.#fail(error)
    }
  }

  #tell(error: unknown): void {
    logDefect(this.#logger, 'a layer threw', error)
  }

  #fail(cause: unknown): void {
    const error = threw(cause)
    this.stop(error)
    if (this.#front !== undefined) this.#front.fail(cause)
    else this.#abortLayers(error)
  }

  #abortLayers(error: SallyportError): void {
    try {
      super.responseAbort(error)
    } catch (again) {
      this.#tell(again)
    }
  }

  /** Ends the exchange after this layer. */
  stop(error: SallyportError): void {
    try {
      super.requestAbort(error)
    } catch (thrown) {
      this.#tell(thrown)
    }
    this.detach()
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

  override requestKept(bytes: number): void {
    this.#guard(() => super.requestKept(bytes))
  }

  // Calls from the layer.

  override requestData(chunk: Uint8Array): void {
    this.#forward(() => super.requestData(chunk))
  }

  override requestEnd(trailers: HeaderList): void {
    this.#forward(() => super.requestEnd(trailers))
  }

  override requestAbort(error: SallyportError): void {
    const known = toSallyportError(error)
    if (known !== error) this.#tell(error)
    this.stop(known)
  }

  override responseConsumed(bytes: number): void {
    this.#guard(() => {
      const checked = checkedCredit(bytes)
      this.#forward(() => super.responseConsumed(checked))
    })
  }

  /** The next handler is not a layer. If it throws, the layers see that as any other failure. */
  #forward(step: () => void): void {
    try {
      step()
    } catch (thrown) {
      logDefect(this.#logger, 'a handler threw', thrown)
      const error = new SallyportError(this.#reason, 'a handler threw', { cause: thrown })
      this.stop(error)
      this.responseAbort(error)
    }
  }

  override acknowledged(): void {
    this.#guard(() => super.acknowledged())
  }

  override unwanted(): void {
    this.#guard(() => super.unwanted())
  }
}
