/**
 * Checks the signature of a webhook before its upstream has all of it. The body is hashed as it passes, and its tail is held
 * back:
 *
 *     sender ──▶ hash ──▶ the last 64 KiB wait ──▶ upstream
 *
 * A body that fits into the tail waits in full, so the upstream sees nothing of a forgery. Of a larger forgery it sees the
 * beginning but never the end: its request is cut with bytes missing, or without the last chunk. An early answer waits for the
 * verdict, too, so that a forger never reads it. So does a failure of the upstream, since an inbox would store and retry the
 * forgery. After the verdict, an answer goes out as fast as the sender reads, and counts against the room until then. Over HTTP/2
 * every body waits in full, because many servers, including Node's, tell their handlers that a reset body has ended.
 */
import { SallyportError } from '../../protocol/base/errors.ts'
import { GatheredChunks, MOST_ROOM_BYTES } from '../../protocol/base/gathered.ts'
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

/** Least bytes of a body that wait for the verdict. A request takes little more memory than this. */
export const TAIL_BYTES = 64 * 1024
/** The most that waits, since small pieces are passed on together. */
const MOST_TAIL_BYTES = TAIL_BYTES + MOST_ROOM_BYTES

/**
 * Passes on requests with a valid signature. `waitsWhole`: nothing of a body is sent before the verdict. `onValid` hears of valid
 * signatures.
 */
export function verifying(
  verifier: Verifier,
  waitsWhole: boolean,
  room: BodyRoom,
  next: Handler,
  onValid?: () => void,
): Handler {
  return (request, response) => {
    const hold = (request: HttpRequest): RequestSink =>
      new VerifiedExchange(verification, waitsWhole, room, next, request, response, onValid)
    const verification = verifier.begin(request.headers, arrivalMs(request))
    const refusal = request.upgrade ? 'a WebSocket is not signed' : verification.refusal
    if (refusal !== undefined) {
      response.responseAbort(new SallyportError('webhook-signature', refusal))
      return discarding(response)
    }
    if (verification.isDecided) {
      onValid?.()
      return next(request, response)
    }
    if (!hasHeader(request.headers, 'expect')) return hold(request)
    // The upstream is called only once the body has arrived, so its own 100 would come too late.
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
  readonly #onValid: (() => void) | undefined
  readonly #tail = new GatheredChunks()
  #begun = false
  /** Request bytes: received, credited to the caller, and consumed by the upstream. */
  #received = 0
  #credited = 0
  #taken = 0
  readonly #waitsWhole: boolean
  readonly #share: RoomShare
  readonly #tailShare: RoomShare
  /** Whether the answer is held back: until the verdict, and then until the caller has consumed what waited before. */
  #holds = true
  #isPassingOn = false
  #head: ResponseHead | undefined
  readonly #body = new GatheredChunks()
  /** Answer bytes that were credited to the upstream before the caller consumed them. */
  #advanced = 0
  /** Held answer bytes that were passed on and that the caller has not consumed yet. */
  #untaken = 0
  #trailers: HeaderList | undefined
  /** Why the upstream failed before the verdict. */
  #failure: SallyportError | undefined

  constructor(
    verification: Verification,
    waitsWhole: boolean,
    room: BodyRoom,
    next: Handler,
    request: HttpRequest,
    response: ResponseSink,
    onValid: (() => void) | undefined,
  ) {
    super(response)
    this.#onValid = onValid
    this.#waitsWhole = waitsWhole
    this.#share = room.enter(request, false, () => this.#noRoom())
    this.#tailShare = room.tails.enter(request, false, () => this.#noRoom())
    this.#verification = verification
    this.#next = next
    this.#request = request
  }

  override requestData(chunk: Uint8Array): void {
    this.#received += chunk.length
    if (this.#failure !== undefined) this.#taken = this.#received
    this.#credit()
    this.#verification.update(chunk)
    if (this.#failure === undefined) this.#tail.add(chunk)
    if (!this.#waitsWhole) this.#release(TAIL_BYTES)
    else if (this.#received > MAX_BODY_BYTES) {
      this.#refuse(new SallyportError('body-too-large', `more than ${MAX_BODY_BYTES} bytes to verify`))
    }
    if (!this.isOver && !this.#hold()) this.#noRoom()
  }

  /**
   * Counts what is held. Of each kind, the first bytes count on their own, so that large bodies do not keep small ones out. They do so only
   * until the verdict, so that any number of webhooks may wait for their target.
   */
  #hold(): boolean {
    const body = this.#waitsWhole ? this.#received - this.#taken : Math.min(this.#credited - this.#taken, TAIL_BYTES)
    let first = 0
    let more = 0
    for (const bytes of [this.#verification.heldBytes, body, this.#advanced]) {
      first += Math.min(Math.max(0, bytes), TAIL_BYTES)
      more += Math.max(0, bytes - TAIL_BYTES)
    }
    return this.#share.hold(more) && (this.#share.isVerified || this.#tailShare.hold(first))
  }

  #noRoom(): void {
    this.#refuse(new SallyportError('overloaded', 'too many webhooks are being verified'))
  }

  override requestEnd(trailers: HeaderList): void {
    if (this.isOver) return
    const reason = this.#verification.verdict()
    if (reason !== undefined) {
      this.#refuse(new SallyportError('webhook-signature', reason))
      return
    }
    this.#onValid?.()
    if (this.#failure !== undefined) {
      super.responseAbort(this.#failure)
      return
    }
    this.#share.markVerified()
    this.#tailShare.hold(0)
    this.#hold()
    this.#release(0)
    this.#begin()
    super.requestEnd(trailers)
    this.#passOnAnswer()
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
    else if (this.#share.isVerified) this.#body.add(chunk)
    else this.#keep(chunk)
  }

  /** Keeps answer bytes. If we did not read them, an upstream that answers while it reads would stop reading, and the verdict would never come. */
  #keep(chunk: Uint8Array): void {
    this.#body.add(chunk)
    this.#advanced += chunk.length
    if (this.#advanced > MAX_BODY_BYTES) {
      this.#refuse(
        new SallyportError('upstream-broken', `answered ${MAX_BODY_BYTES} bytes and more before the verdict`),
      )
    } else if (this.#hold()) super.responseConsumed(chunk.length)
    else this.#noRoom()
  }

  override responseConsumed(bytes: number): void {
    const advanced = Math.min(bytes, this.#advanced)
    this.#advanced -= advanced
    this.#untaken -= bytes
    if (!this.isOver) this.#hold()
    if (bytes > advanced) super.responseConsumed(bytes - advanced)
    if (this.#holds && this.#share.isVerified) this.#passOnAnswer()
  }

  override responseEnd(trailers: HeaderList): void {
    if (this.#holds) this.#trailers = trailers
    else super.responseEnd(trailers)
  }

  override responseAbort(error: SallyportError): void {
    this.#drop()
    if (this.#share.isVerified || this.isOver || !error.reason.startsWith('upstream-')) {
      super.responseAbort(error)
      return
    }
    this.#failure = error
    this.detach()
    this.#taken = this.#received
    this.#advanced = 0
    this.#credit()
    this.#hold()
  }

  override requestConsumed(bytes: number): void {
    this.#taken += bytes
    this.#credit()
    if (!this.isOver) this.#hold()
  }

  /** Credits what waits at once. If it used up the caller's credit, the rest would never come. */
  #credit(): void {
    const waiting = this.#waitsWhole ? this.#received : MOST_TAIL_BYTES
    const bytes = Math.min(this.#received, waiting + this.#taken) - this.#credited
    if (bytes <= 0) return
    this.#credited += bytes
    super.requestConsumed(bytes)
  }

  protected override over(): void {
    this.#share.hold(0)
    this.#tailShare.hold(0)
  }

  /** Passes on the held answer as the caller consumes it. Once it has ended, at most as much as a tail still waits. */
  #passOnAnswer(): void {
    if (this.#isPassingOn) return
    this.#isPassingOn = true
    if (this.#head !== undefined) super.responseHead(this.#head)
    this.#head = undefined
    while (this.#untaken < TAIL_BYTES) {
      const chunk = this.#body.shift()
      if (chunk === undefined) break
      this.#untaken += chunk.length
      super.responseData(chunk)
    }
    this.#isPassingOn = false
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
    super.responseAbort(error)
  }

  #release(least: number): void {
    for (let chunk = this.#tail.shift(least); chunk !== undefined; chunk = this.#tail.shift(least)) {
      this.#begin()
      if (this.#failure === undefined) super.requestData(chunk)
    }
  }

  #begin(): void {
    if (this.#begun) return
    this.#begun = true
    this.pass(this.#next, this.#request)
  }
}
