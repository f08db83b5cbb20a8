/**
 * Webhooks whose signature is checked before their upstream has them whole. The body is hashed as it goes by, behind a tail that is
 * held back:
 *
 *     sender ──▶ hash ──▶ the last 64 KiB wait ──▶ upstream
 *
 * A body that fits into the tail waits whole: of a forgery its upstream sees nothing. Of a larger one it sees the beginning, and never
 * the end: its request is broken off with bytes missing, or without the last chunk. What it answers before the end waits for the verdict,
 * too: a forger never reads it. Then it goes out as the sender takes it, and counts until then. Over HTTP/2 every body waits whole: many servers, Node's among them, tell their handlers of a body that was
 * reset that it has ended.
 */
import { SallyportError } from '../../protocol/base/errors.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import { discarding } from '../../protocol/base/guard.ts'
import type {
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { hasHeader, removeHeader } from '../../protocol/http/headers.ts'
import { PassThrough } from '../../protocol/layer.ts'
import type { Verification, Verifier } from '../../protocol/webhook/verify.ts'
import { arrivalMs } from './inbox-fields.ts'
import { type BodyRoom, MAX_BODY_BYTES, type RoomShare } from './room.ts'

/** So many bytes of a body at least wait for the verdict. A request takes little more memory than this. */
export const TAIL_BYTES = 64 * 1024

/** Hands on what is signed. `waitsWhole`: nothing of a body before the verdict. */
export function verifying(verifier: Verifier, waitsWhole: boolean, room: BodyRoom, next: Handler): Handler {
  return (request, response) => {
    const hold = (request: HttpRequest): RequestSink =>
      new VerifiedExchange(verification, waitsWhole, room, next, request, response)
    const verification = verifier.begin(request.headers, arrivalMs(request))
    const refusal = request.upgrade ? 'a WebSocket is not signed' : verification.refusal
    if (refusal !== undefined) {
      response.responseAbort(new SallyportError('webhook-signature', refusal))
      return discarding(response)
    }
    if (verification.isDecided) return next(request, response)
    if (!hasHeader(request.headers, 'expect')) return hold(request)
    // Its upstream is asked only when the body is here, and has nothing to wait for any more.
    if (request.bodyBytes !== 0) response.responseInformational(100, [])
    const headers = [...request.headers]
    removeHeader(headers, 'expect')
    return hold({ ...request, headers })
  }
}

class VerifiedExchange extends PassThrough {
  readonly #verification: Verification
  readonly #next: Handler
  readonly #request: HttpRequest
  readonly #tail = new GatheredChunks()
  #begun = false
  /** The caller's bytes, those for which it has credit again, and those that the upstream has taken. */
  #received = 0
  #credited = 0
  #taken = 0
  readonly #waitsWhole: boolean
  readonly #share: RoomShare
  /** The upstream's answer waits: for the verdict, then for the caller to take what waited before it. */
  #holds = true
  #isHandingOn = false
  #head: ResponseHead | undefined
  readonly #body = new GatheredChunks()
  /** Of the answer's bytes, those that its upstream has credit for before the caller has taken them. */
  #advanced = 0
  /** Of the answer's bytes that waited, those that were handed on and the caller has not taken. */
  #untaken = 0
  #trailers: HeaderList | undefined

  constructor(
    verification: Verification,
    waitsWhole: boolean,
    room: BodyRoom,
    next: Handler,
    request: HttpRequest,
    response: ResponseSink,
  ) {
    super(response)
    this.#waitsWhole = waitsWhole
    this.#share = room.enter(request, false, () => this.#noRoom())
    this.#verification = verification
    this.#next = next
    this.#request = request
  }

  override requestData(chunk: Uint8Array): void {
    this.#received += chunk.length
    // What waits in the tail would else use up the caller's credit.
    this.#credit((this.#waitsWhole ? this.#received : Math.min(this.#received, TAIL_BYTES)) - this.#credited)
    this.#verification.update(chunk)
    this.#tail.add(chunk)
    if (!this.#waitsWhole) this.#release(TAIL_BYTES)
    else if (this.#received > MAX_BODY_BYTES) {
      this.#refuse(new SallyportError('body-too-large', `more than ${MAX_BODY_BYTES} bytes to verify`))
    }
    if (!this.isOver && !this.#share.hold(this.#heldBytes)) this.#noRoom()
  }

  /** Beyond what each request may have. */
  get #heldBytes(): number {
    const body = this.#waitsWhole ? this.#received - this.#taken : 0
    return [this.#verification.heldBytes, body, this.#advanced].reduce(
      (sum, bytes) => sum + Math.max(0, bytes - TAIL_BYTES),
      0,
    )
  }

  #noRoom(): void {
    this.#refuse(new SallyportError('overloaded', 'too many webhooks are verified at a time'))
  }

  override requestEnd(trailers: HeaderList): void {
    if (this.isOver) return
    const reason = this.#verification.verdict()
    if (reason !== undefined) {
      this.#refuse(new SallyportError('webhook-signature', reason))
      return
    }
    this.#share.good()
    this.#share.hold(this.#heldBytes)
    this.#release(0)
    this.#begin()
    super.requestEnd(trailers)
    this.#handOn()
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
    if (!this.#holds) super.responseData(chunk)
    else if (this.isOver) return
    else if (this.#share.isGood) this.#body.add(chunk)
    else this.#keep(chunk)
  }

  /** An upstream that answers as it reads, and is not read, would read no more, and the verdict never come. */
  #keep(chunk: Uint8Array): void {
    this.#body.add(chunk)
    this.#advanced += chunk.length
    if (this.#advanced > MAX_BODY_BYTES) {
      this.#refuse(
        new SallyportError('upstream-broken', `answered ${MAX_BODY_BYTES} bytes and more before the verdict`),
      )
    } else if (this.#share.hold(this.#heldBytes)) super.responseConsumed(chunk.length)
    else this.#noRoom()
  }

  override responseConsumed(bytes: number): void {
    const advanced = Math.min(bytes, this.#advanced)
    this.#advanced -= advanced
    this.#untaken -= bytes
    if (!this.isOver) this.#share.hold(this.#heldBytes)
    if (bytes > advanced) super.responseConsumed(bytes - advanced)
    if (this.#holds && this.#share.isGood) this.#handOn()
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
    this.#taken += bytes
    if (!this.isOver) this.#share.hold(this.#heldBytes)
    this.#credit(Math.min(bytes, this.#received - this.#credited))
  }

  #credit(bytes: number): void {
    if (bytes <= 0) return
    this.#credited += bytes
    super.requestConsumed(bytes)
  }

  protected override over(): void {
    this.#share.hold(0)
  }

  /** Hands on what the upstream has said, as the caller takes it: once it is over, no more than the tail's length still waits. */
  #handOn(): void {
    if (this.#isHandingOn) return
    this.#isHandingOn = true
    if (this.#head !== undefined) super.responseHead(this.#head)
    this.#head = undefined
    while (this.#untaken < TAIL_BYTES) {
      const chunk = this.#body.shift()
      if (chunk === undefined) break
      this.#untaken += chunk.length
      super.responseData(chunk)
    }
    this.#isHandingOn = false
    if (this.#body.bytes > 0 || this.#untaken > TAIL_BYTES) return
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
