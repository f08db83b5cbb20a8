/** Shields our code from an embedder's, layers and targets alike: what one throws or says wrongly fails its exchange, and nothing else. */
import { isUint8Array } from 'node:util/types'
import { type ErrorCode, errorOf, SallyportError, toSallyportError } from './base/errors.ts'
import { callHandler, discarding, logDefect } from './base/guard.ts'
import type { Logger } from './base/log.ts'
import {
  BODY_UNKNOWN,
  type ExchangeNotes,
  type Handler,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from './exchange.ts'
import { compose, type Layer, PassThrough } from './layer.ts'

/** What is behind a shield, and the error code if it fails. */
interface Shielded {
  readonly name: string
  readonly reason: ErrorCode
}

const LAYER: Shielded = { name: 'a layer', reason: 'internal' }
/** It is the service behind us. */
const TARGET: Shielded = { name: 'a target', reason: 'upstream-broken' }

/** Returns `target` behind a shield. What it says from a timer or a promise is guarded, too. */
export function shieldedTarget(target: Handler, logger: Logger): Handler {
  const guarded: Handler = (request, response) => callHandler(target, request, response, logger, TARGET.reason)
  return (request, response) => new Shield(response, logger, TARGET).pass(guarded, request)
}

/**
 * Puts `layers` in front of `handler`, which must not throw; without layers, returns `handler` itself. Each layer has its own
 * shield, because an asynchronous layer calls the others from its own promise or timer, where nobody would catch their errors.
 */
export function shielded(layers: readonly Layer[], handler: Handler, logger: Logger): Handler {
  return compose(
    layers.map(
      (layer): Layer =>
        next =>
          shieldedOne(layer, next, logger),
    ),
    handler,
  )
}

function shieldedOne(layer: Layer, handler: Handler, logger: Logger): Handler {
  const fronts = new WeakMap<ExchangeNotes, Front>()
  const layered = layer((request, response) => {
    const front = request?.notes === undefined ? undefined : fronts.get(request.notes)
    return new Back(response, logger, front).begin(handler, request)
  })
  const guarded: Handler = (request, response) => callHandler(layered, request, response, logger)
  return (request, response) => {
    const front = new Front(response, logger, LAYER)
    request.notes ??= { route: undefined, session: undefined }
    fronts.set(request.notes, front)
    return front.pass(guarded, request)
  }
}

function failureOf({ name, reason }: Shielded, cause: unknown): SallyportError {
  return new SallyportError(reason, `${name} threw`, { cause })
}

/** In front of an embedder's code: passes calls from the caller into it, and takes its calls only if they keep the rules. */
class Shield extends PassThrough {
  readonly #logger: Logger
  readonly #shielded: Shielded
  /** Set when nobody waits for an answer any more: the caller has left, or what is behind failed. */
  gone: SallyportError | undefined
  /** Bytes of the request that were passed on, and for which no credit has come. */
  #unconsumed = 0
  /** It has ended its answer. */
  #answered = false
  /** Said by a layer that has not passed on the end of the answer yet. */
  #unwanted = false

  constructor(response: ResponseSink, logger: Logger, behind: Shielded) {
    super(response)
    this.#logger = logger
    this.#shielded = behind
  }

  /** The sink that it returns may throw at once, if it was called too early for that sink to hear it. */
  override pass(next: Handler, request: HttpRequest): this {
    this.#guard(() => super.pass(next, request))
    return this
  }

  /** Ends what the code behind this has begun elsewhere. */
  protected stop(_error: SallyportError): void {}

  #guard(step: () => void): void {
    try {
      step()
    } catch (error) {
      this.#tell(error)
      this.fail(error)
    }
  }

  #tell(error: unknown): void {
    logDefect(this.#logger, `${this.#shielded.name} threw`, error)
  }

  /** It threw. Everything after it ends, whatever it still does. */
  fail(cause: unknown): void {
    if (this.gone !== undefined) return
    const wasOver = this.isOver
    const error = failureOf(this.#shielded, cause)
    this.#leave(error, false)
    this.stop(error)
    if (wasOver) this.#guard(() => this.#discard())
    else this.responseAbort(error)
  }

  /** Tells it to end, and calls it no more. */
  #leave(error: SallyportError, answered: boolean): void {
    this.gone = error
    try {
      super.requestAbort(error, answered)
    } catch (again) {
      this.#tell(again)
      this.stop(error)
    }
    this.detach()
  }

  /** It has failed, and consumes no more of the request. */
  #discard(): void {
    this.detach()
    const rest = this.#unconsumed
    this.#unconsumed = 0
    if (rest > 0) super.requestConsumed(rest)
  }

  override requestData(chunk: Uint8Array): void {
    this.#guard(() => {
      if (this.gone === undefined) this.#unconsumed += chunk.length
      super.requestData(chunk)
    })
  }

  override requestEnd(trailers: HeaderList): void {
    this.#guard(() => super.requestEnd(trailers))
  }

  override requestAbort(error: SallyportError, answered = false): void {
    if (this.gone === undefined) this.#leave(error, answered)
  }

  override responseConsumed(bytes: number): void {
    this.#guard(() => super.responseConsumed(bytes))
  }

  // Calls from behind. An invalid one is the fault of that code, and its error must reach neither us nor whoever called it. It is
  // checked before anything of ours takes note of it.

  override responseInformational(status: number, headers: HeaderList): void {
    this.#guard(() => {
      checkStatus(status, 100, 199)
      checkFields(headers)
      super.responseInformational(status, headers)
    })
  }

  override responseHead(head: ResponseHead): void {
    this.#guard(() => {
      if (this.gone !== undefined) this.stop(this.gone)
      else if (this.status === 0) {
        checkHead(head)
        super.responseHead(head)
      } else throw new Error(`${this.#shielded.name} answered twice`)
    })
  }

  /** If nobody waits for the answer, there is no credit either, so what was begun elsewhere is stopped. */
  override responseData(chunk: Uint8Array): void {
    this.#guard(() => {
      if (this.gone !== undefined) this.stop(this.gone)
      else {
        this.#needHead()
        checkChunk(chunk)
        super.responseData(chunk)
      }
    })
  }

  override responseEnd(trailers: HeaderList): void {
    this.#guard(() => {
      if (this.gone === undefined) {
        this.#needHead()
        checkFields(trailers)
        this.#answered = true
      }
      super.responseEnd(trailers)
      if (this.#unwanted) super.unwanted()
    })
  }

  override unwanted(): void {
    this.#guard(() => {
      if (this.gone === undefined && this.status !== 101)
        throw new Error(`${this.#shielded.name} ended no upgraded connection`)
      if (this.#answered) super.unwanted()
      else this.#unwanted = true
    })
  }

  #needHead(): void {
    if (this.status === 0) throw new Error(`${this.#shielded.name} began an answer without a head`)
  }

  /** It failed, or threw when it was called. It may have begun something elsewhere before. */
  override responseAbort(error: SallyportError): void {
    const known = this.#known(error)
    this.gone ??= known
    this.stop(known)
    this.#guard(() => {
      super.responseAbort(known)
      this.#discard()
    })
  }

  #known(error: unknown): SallyportError {
    const given = errorOf(error)
    if (given instanceof SallyportError) return given
    this.#tell(error)
    return failureOf(this.#shielded, error)
  }

  /** More than was passed on would stay in the accounts of the session and its connection. */
  override requestConsumed(bytes: number): void {
    this.#guard(() => {
      checkCredit(bytes)
      const taken = Math.min(bytes, this.#unconsumed)
      this.#unconsumed -= taken
      super.requestConsumed(taken)
    })
  }

  override requestKept(bytes: number): void {
    this.#guard(() => {
      checkCredit(bytes)
      super.requestKept(bytes)
    })
  }
}

/** In front of a layer, which may pass exchanges on. */
class Front extends Shield {
  /** The exchanges that the layer has passed on, until they have ended and it has given credit for their answers. */
  readonly #backs = new Set<Back>()

  joined(back: Back): void {
    this.#backs.add(back)
  }

  left(back: Back): void {
    this.#backs.delete(back)
  }

  protected override stop(error: SallyportError): void {
    for (const back of this.#backs) back.stop(error)
  }
}

/** A wrong number would stay in the accounts of the session and the process for good. */
function checkCredit(bytes: number): void {
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new RangeError(`${bytes} bytes consumed or kept`)
}

function checkHead({ status, headers, bodyBytes }: ResponseHead): void {
  if (status !== 101) checkStatus(status, 200, 599)
  checkFields(headers)
  if (!Number.isSafeInteger(bodyBytes) || bodyBytes < BODY_UNKNOWN) throw new RangeError(`bodyBytes ${bodyBytes}`)
}

function checkStatus(status: number, least: number, most: number): void {
  if (!Number.isInteger(status) || status < least || status > most || status === 101)
    throw new RangeError(`status ${status}`)
}

function checkChunk(chunk: Uint8Array): void {
  if (!isUint8Array(chunk)) throw new TypeError('a chunk that is not a Uint8Array')
}

/** Not the characters: whoever writes the message for a session, or as HTTP/1.1 or HTTP/2, checks those. */
function checkFields(fields: HeaderList): void {
  if (!Array.isArray(fields) || fields.length % 2 !== 0)
    throw new TypeError('fields that are not a list of names and values')
  for (let i = 0; i < fields.length; i++)
    if (typeof fields[i] !== 'string') throw new TypeError(`${typeof fields[i]} among the fields`)
}

/** Behind a layer: passes calls from the sessions or the target into it. */
class Back extends PassThrough {
  readonly #logger: Logger
  /** Undefined if a layer made a request of its own. */
  readonly #front: Front | undefined
  /** Bytes of the answer for which the layer has given no credit. */
  #untaken = 0

  constructor(response: ResponseSink, logger: Logger, front: Front | undefined) {
    super(response)
    this.#logger = logger
    this.#front = front
  }

  /** Passes the exchange on, unless nobody waits for it any more. */
  begin(handler: Handler, request: HttpRequest): RequestSink {
    const gone = this.#front?.gone
    if (gone === undefined) {
      this.#front?.joined(this)
      this.#forward(() => this.pass(handler, request))
      return this
    }
    this.responseAbort(gone)
    return discarding(this)
  }

  protected override over(): void {
    this.#settle()
  }

  #settle(): void {
    if (this.isOver && this.#untaken <= 0) this.#front?.left(this)
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
    logDefect(this.#logger, `${LAYER.name} threw`, error)
  }

  #fail(cause: unknown): void {
    const error = failureOf(LAYER, cause)
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
  stop(error: SallyportError, answered = false): void {
    this.#untaken = 0
    this.#settle()
    try {
      super.requestAbort(error, answered)
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
    this.#untaken += chunk.length
    this.#guard(() => super.responseData(chunk))
  }

  override responseEnd(trailers: HeaderList): void {
    this.#guard(() => super.responseEnd(trailers))
  }

  override responseAbort(error: SallyportError): void {
    this.#untaken = 0
    this.#guard(() => super.responseAbort(error))
    this.#settle()
  }

  override requestConsumed(bytes: number): void {
    this.#guard(() => super.requestConsumed(bytes))
  }

  override requestKept(bytes: number): void {
    this.#guard(() => super.requestKept(bytes))
  }

  // Calls from the layer.

  override requestData(chunk: Uint8Array): void {
    this.#guard(() => {
      checkChunk(chunk)
      this.#forward(() => super.requestData(chunk))
    })
  }

  override requestEnd(trailers: HeaderList): void {
    this.#guard(() => {
      checkFields(trailers)
      this.#forward(() => super.requestEnd(trailers))
    })
  }

  override requestAbort(error: SallyportError, answered = false): void {
    const known = toSallyportError(error)
    if (known !== error) this.#tell(error)
    this.stop(known, answered)
  }

  override responseConsumed(bytes: number): void {
    this.#guard(() => {
      checkCredit(bytes)
      this.#untaken -= bytes
      this.#forward(() => super.responseConsumed(bytes))
      this.#settle()
    })
  }

  /** The next handler throws only if the layer says something invalid. The layers see that as any other failure. */
  #forward(step: () => void): void {
    try {
      step()
    } catch (thrown) {
      logDefect(this.#logger, 'a handler threw', thrown)
      const error = new SallyportError('internal', 'a handler threw', { cause: thrown })
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
