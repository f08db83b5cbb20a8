/**
 * Signs webhooks again on their way to the target. The signature is in the head, so the whole body must arrive before the head
 * can be sent. One limit applies to all these bodies together.
 */
import { SallyportError } from '../../protocol/base/errors.ts'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HeaderList,
  type HttpRequest,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import { getHeader, hasTwin, removeWhere } from '../../protocol/http/headers.ts'
import { PassThrough } from '../../protocol/layer.ts'
import type { Signer } from '../../protocol/webhook/sign.ts'
import { inboxId } from './inbox-fields.ts'
import { type BodyRoom, MAX_BODY_BYTES, type RoomShare } from './room.ts'
import { TAIL_BYTES } from './verified.ts'

/** Passes on requests with a signature of `signer`. */
export function resigning(signer: Signer, room: BodyRoom, next: Handler): Handler {
  return (request, response) => new ResignedExchange(signer, room, next, request, response)
}

class ResignedExchange extends PassThrough {
  readonly #signer: Signer
  readonly #share: RoomShare
  readonly #next: Handler
  readonly #request: HttpRequest
  readonly #body = new GatheredChunks()
  readonly #isSigned = (name: string) => hasTwin(this.#signer.fields, name)

  constructor(signer: Signer, room: BodyRoom, next: Handler, request: HttpRequest, response: ResponseSink) {
    super(response)
    this.#signer = signer
    this.#next = next
    this.#request = request
    const isSmall = request.bodyBytes !== BODY_UNKNOWN && request.bodyBytes <= TAIL_BYTES
    this.#share = room.enter(request, isSmall, () => this.#noRoom())
  }

  override requestData(chunk: Uint8Array): void {
    super.requestConsumed(chunk.length)
    if (this.isOver) return
    if (this.#body.bytes + chunk.length > MAX_BODY_BYTES) {
      this.responseAbort(new SallyportError('body-too-large', `more than ${MAX_BODY_BYTES} bytes to sign`))
    } else if (this.#share.hold(this.#share.bytes + chunk.length)) this.#body.add(chunk)
    else this.#noRoom()
  }

  #noRoom(): void {
    this.responseAbort(new SallyportError('overloaded', 'too many webhooks are being signed'))
  }

  override requestEnd(trailers: HeaderList): void {
    if (this.isOver) return
    this.#share.markVerified()
    const body: Uint8Array[] = []
    for (let piece = this.#body.shift(); piece !== undefined; piece = this.#body.shift()) body.push(piece)
    this.pass(this.#next, { ...this.#request, headers: this.#sign(body) })
    for (const piece of body) super.requestData(piece)
    const others = [...trailers]
    removeWhere(others, this.#isSigned)
    super.requestEnd(others)
  }

  #sign(body: readonly Uint8Array[]): HeaderList {
    const headers = [...this.#request.headers]
    const id = (getHeader(headers, 'webhook-id') || inboxId(this.#request)) ?? this.#request.requestId
    removeWhere(headers, this.#isSigned)
    const signing = { id: id.replaceAll('.', '-'), timestamp: Math.floor(Date.now() / 1000) }
    headers.push(...this.#signer.sign(body, signing))
    return headers
  }

  /** The caller already has its credit, so this only frees the room. */
  override requestConsumed(bytes: number): void {
    this.#share.hold(Math.max(0, this.#share.bytes - bytes))
  }

  protected override over(): void {
    this.#body.clear()
    this.#share.hold(0)
  }
}
