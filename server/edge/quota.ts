/** The layer that charges each exchange to the quotas of its runtime and its caller (`quotas.ts`). */
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { type Failing, stepOf } from '../../protocol/base/guard.ts'
import {
  BODY_UNKNOWN,
  type HeaderList,
  type HttpRequest,
  type ResponseHead,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import type { Refuse } from '../../protocol/http/problem.ts'
import { type Layer, PassThrough } from '../../protocol/layer.ts'
import type { QuotaBook, Usage } from './quotas.ts'

/** `addressOf` is the caller's address, whose quota counts besides the runtime's. Absent for an embedder's requests. */
export function quota(book: QuotaBook, refuse: Refuse, addressOf?: (request: HttpRequest) => string): Layer {
  return next => (request, response) => {
    const usage = book.enter(request.runtime!, addressOf?.(request))
    if (usage === undefined) return next(request, response)
    if (usage === false) return refuse(request, response, new SallyportError('too-many-requests'))
    return (usage.paced ? new Paced(response, usage) : new Counted(response, usage)).pass(next, request)
  }
}

class Counted extends PassThrough {
  protected readonly usage: Usage
  #requestEnded = false
  /** How much of the answer its caller does not have. */
  #due = Number.POSITIVE_INFINITY

  constructor(response: ResponseSink, usage: Usage) {
    super(response)
    this.usage = usage
  }

  override requestEnd(trailers: HeaderList): void {
    this.#requestEnded = true
    super.requestEnd(trailers)
    this.#settle()
  }

  override responseHead(head: ResponseHead): void {
    if (head.bodyBytes !== BODY_UNKNOWN && head.status !== 101) this.#due = head.bodyBytes
    super.responseHead(head)
    this.#settle()
  }

  override responseConsumed(bytes: number): void {
    this.#due -= bytes
    super.responseConsumed(bytes)
    this.#settle()
  }

  /** A runtime that does not end a complete answer must not use up its caller's quota, which counts for other runtimes, too. */
  #settle(): void {
    if (this.#requestEnded && this.#due <= 0) this.usage.leaveAddress()
  }

  protected override over(): void {
    this.usage.leave()
  }
}

/** Paces an exchange: both ends get credit only once their bytes are within the rate. */
class Paced extends Counted {
  readonly #request: Credit
  readonly #response: Credit

  constructor(response: ResponseSink, usage: Usage) {
    super(response, usage)
    const failed = (error: unknown) => {
      super.requestAbort(toSallyportError(error))
      super.responseAbort(toSallyportError(error))
    }
    this.#request = new Credit(usage, bytes => super.requestConsumed(bytes), failed)
    this.#response = new Credit(usage, bytes => super.responseConsumed(bytes), failed)
  }

  override requestData(chunk: Uint8Array): void {
    this.usage.spend(chunk.length)
    super.requestData(chunk)
  }

  override requestAbort(error: SallyportError): void {
    this.#response.free()
    super.requestAbort(error)
  }

  override responseConsumed(bytes: number): void {
    this.#response.add(bytes)
  }

  override responseData(chunk: Uint8Array): void {
    this.usage.spend(chunk.length)
    super.responseData(chunk)
  }

  override responseEnd(trailers: HeaderList): void {
    this.#response.free()
    super.responseEnd(trailers)
  }

  override responseAbort(error: SallyportError): void {
    this.#response.free()
    this.#request.free()
    super.responseAbort(error)
  }

  override requestConsumed(bytes: number): void {
    this.#request.add(bytes)
  }
}

/** Credit of one direction, which is held back while the sender is over its rate. */
class Credit implements Failing {
  static readonly #pay = stepOf<Credit>(credit => credit.#payNow())
  readonly #usage: Usage
  readonly #give: (bytes: number) => void
  readonly #failed: (error: unknown) => void
  #bytes = 0
  #free = false
  #timer: NodeJS.Timeout | undefined

  constructor(usage: Usage, give: (bytes: number) => void, failed: (error: unknown) => void) {
    this.#usage = usage
    this.#give = give
    this.#failed = failed
  }

  add(bytes: number): void {
    this.#bytes += bytes
    if (this.#timer !== undefined) return
    const delayMs = this.#free ? 0 : this.#usage.delayMs
    if (delayMs <= 0) this.#payNow()
    else this.#timer = setTimeout(Credit.#pay, delayMs, this).unref()
  }

  #payNow(): void {
    this.#timer = undefined
    const bytes = this.#bytes
    this.#bytes = 0
    if (bytes > 0) this.#give(bytes)
  }

  threw(error: unknown): void {
    this.#failed(error)
  }

  /** The sender has finished, so there is nothing left to slow down. */
  free(): void {
    this.#free = true
    clearTimeout(this.#timer)
    this.#payNow()
  }
}
