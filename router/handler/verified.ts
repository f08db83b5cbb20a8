/**
 * Webhooks whose signature is checked before their upstream has them whole. The body is hashed as it goes by, behind a tail that is
 * held back:
 *
 *     sender ──▶ hash ──▶ the last 64 KiB wait ──▶ upstream
 *
 * A body that fits into the tail waits whole: of a forgery its upstream sees nothing. Of a larger one it sees the beginning, and never
 * the end: its request is broken off, over HTTP/1.1 with bytes missing, over HTTP/2 with a reset.
 */
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import type { Handler, HeaderList, HttpRequest, ResponseSink } from '../../protocol/exchange.ts'
import { hasHeader, removeHeader } from '../../protocol/http/headers.ts'
import { PassThrough } from '../../protocol/layer.ts'
import type { Verification, Verifier } from '../../protocol/webhook/verify.ts'
import { arrivalMs } from './inbox-fields.ts'

/** So many bytes of a body at least wait for the verdict. A request takes little more memory than this. */
const TAIL_BYTES = 64 * 1024

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
  }

  override requestAbort(error: SallyportError): void {
    this.#tail.clear()
    super.requestAbort(error)
  }

  /** Not more than was received: the tail has its credit before it is taken. */
  override requestConsumed(bytes: number): void {
    const due = Math.min(bytes, this.#received - this.#credited)
    if (due <= 0) return
    this.#credited += due
    super.requestConsumed(due)
  }

  #refuse(error: SallyportError): void {
    this.#tail.clear()
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
