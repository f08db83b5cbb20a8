/**
 * Webhooks whose signature is checked before their upstream has them whole. The body is hashed as it goes by, behind a tail that is
 * held back:
 *
 *     sender ──▶ hash ──▶ the last 64 KiB wait ──▶ upstream
 *
 * A body that fits into the tail waits whole: of a forgery its upstream sees nothing. Of a larger one it sees the beginning, and never
 * the end: its request is broken off, over HTTP/1.1 with bytes missing, over HTTP/2 with a reset. What it answers before the end waits
 * for the verdict, too: a forger never reads it.
 */
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import type { Handler, HeaderList, HttpRequest, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { hasHeader, removeHeader } from '../../protocol/http/headers.ts'
import { PassThrough } from '../../protocol/layer.ts'
import type { Verification, Verifier } from '../../protocol/webhook/verify.ts'
import { arrivalMs } from './inbox-fields.ts'

/** So many bytes of a body at least wait for the verdict. A request takes little more memory than this. */
export const TAIL_BYTES = 64 * 1024

/** Hands on what is signed. */
export function verifying(verifier: Verifier, next: Handler): Handler {
  return (request, response) => {
    const verification = verifier.begin(request.headers, arrivalMs(request))
    const refusal = request.upgrade ? 'a WebSocket is not signed' : verification.refusal
    if (refusal !== undefined) {
      response.responseAbort(new SallyportError('webhook-signature', refusal))
      return discarding(response)
    }
    if (verification.isDecided) return next(request, response)
    if (!hasHeader(request.headers, 'expect')) return new VerifiedExchange(verification, next, request, response)
    // Its upstream is asked only when the body is here, and has nothing to wait for any more.
    if (request.bodyBytes !== 0) response.responseInformational(100, [])
    const headers = [...request.headers]
    removeHeader(headers, 'expect')
    return new VerifiedExchange(verification, next, { ...request, headers }, response)
  }
}

class VerifiedExchange extends PassThrough {
  readonly #verification: Verification
  readonly #next: Handler
  readonly #request: HttpRequest
  readonly #tail = new GatheredChunks()
  #begun = false
  /** The caller's bytes, and those for which it has credit again. */
  #received = 0
  #credited = 0
  /** Until the verdict, the upstream's answer waits; of its body no more than a window, since it gets no credit. */
  #holds = true
  #head: ResponseHead | undefined
  readonly #body = new GatheredChunks()
  #trailers: HeaderList | undefined

  constructor(verification: Verification, next: Handler, request: HttpRequest, response: ResponseSink) {
    super(response)
    this.#verification = verification
    this.#next = next
    this.#request = request
  }

  override requestData(chunk: Uint8Array): void {
    this.#received += chunk.length
    // What waits in the tail would else use up the caller's credit.
    this.requestConsumed(Math.min(this.#received, TAIL_BYTES) - this.#credited)
    this.#verification.update(chunk)
    this.#tail.add(chunk)
    this.#release(TAIL_BYTES)
  }

  override requestEnd(trailers: HeaderList): void {
    const reason = this.#verification.verdict()
    if (reason !== undefined) {
      this.#refuse(new SallyportError('webhook-signature', reason))
      return
    }
    this.#release(0)
    this.#begin()
    super.requestEnd(trailers)
    this.#answer()
  }

  override requestAbort(error: SallyportError): void {
    this.#drop()
    super.requestAbort(error)
  }

  override responseInformational(status: number, headers: HeaderList): void {
    if (!this.#holds) super.responseInformational(status, headers)
  }

  override responseHead(head: ResponseHead): void {
    if (this.#holds) this.#head = head
    else super.responseHead(head)
  }

  override responseData(chunk: Uint8Array): void {
    if (this.#holds) this.#body.add(chunk)
    else super.responseData(chunk)
  }

  override responseEnd(trailers: HeaderList): void {
    if (this.#holds) this.#trailers = trailers
    else super.responseEnd(trailers)
  }

  override responseAbort(error: SallyportError): void {
    this.#drop()
    super.responseAbort(error)
  }

  /** Not more than was received: the tail has its credit before it is taken. */
  override requestConsumed(bytes: number): void {
    const due = Math.min(bytes, this.#received - this.#credited)
    if (due <= 0) return
    this.#credited += due
    super.requestConsumed(due)
  }

  /** Hands on what the upstream has said; what it says meanwhile stands in line. */
  #answer(): void {
    if (this.#head !== undefined) super.responseHead(this.#head)
    for (let chunk = this.#body.shift(); chunk !== undefined; chunk = this.#body.shift()) super.responseData(chunk)
    this.#holds = false
    if (this.#trailers !== undefined) super.responseEnd(this.#trailers)
  }

  #drop(): void {
    this.#tail.clear()
    this.#head = undefined
    this.#body.clear()
    this.#trailers = undefined
  }

  #refuse(error: SallyportError): void {
    this.#drop()
    if (this.#begun) super.requestAbort(error)
    this.detach()
    this.responseAbort(error)
  }

  #release(least: number): void {
    for (let chunk = this.#tail.shift(least); chunk !== undefined; chunk = this.#tail.shift(least)) {
      this.#begin()
      super.requestData(chunk)
    }
  }

  #begin(): void {
    if (this.#begun) return
    this.#begun = true
    this.pass(this.#next, this.#request)
  }
}
