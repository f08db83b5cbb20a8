/**
 * Webhooks that get a new signature on their way to the target. It stands in the head, so the body is here whole before the head goes
 * out: all of them together have a bound.
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
import { getHeader, removeWhere } from '../../protocol/http/headers.ts'
import { PassThrough } from '../../protocol/layer.ts'
import type { Signer } from '../../protocol/webhook/sign.ts'
import { inboxId } from './inbox-fields.ts'
import { TAIL_BYTES } from './verified.ts'

/** Largest body that GitHub sends. */
const MAX_BODY_BYTES = 25 * 1024 * 1024
/** Room for one of the largest bodies, and many of the usual size beside it. */
const ROOM_BYTES = 32 * 1024 * 1024

/** Of it, for small bodies alone. */
const RESERVED_BYTES = 4 * 1024 * 1024

/** Memory for the bodies that a router signs at a time. */
export class SigningRoom {
  #left = ROOM_BYTES

  /** `isSmall`: the body comes when its signature is known to be good. Of others a forger may send most, and wait. */
  take(bytes: number, isSmall: boolean): boolean {
    if (bytes > this.#left - (isSmall ? 0 : RESERVED_BYTES)) return false
    this.#left -= bytes
    return true
  }

  give(bytes: number): void {
    this.#left += bytes
  }
}

/** Hands on what `signer` has signed. */
export function resigning(signer: Signer, room: SigningRoom, next: Handler): Handler {
  return (request, response) => new ResignedExchange(signer, room, next, request, response)
}

class ResignedExchange extends PassThrough {
  readonly #signer: Signer
  readonly #room: SigningRoom
  readonly #next: Handler
  readonly #request: HttpRequest
  readonly #isSmall: boolean
  readonly #body = new GatheredChunks()
  /** Bytes of the room in use. */
  #taken = 0

  constructor(signer: Signer, room: SigningRoom, next: Handler, request: HttpRequest, response: ResponseSink) {
    super(response)
    this.#signer = signer
    this.#room = room
    this.#next = next
    this.#request = request
    this.#isSmall = request.bodyBytes !== BODY_UNKNOWN && request.bodyBytes <= TAIL_BYTES
  }

  override requestData(chunk: Uint8Array): void {
    super.requestConsumed(chunk.length)
    if (this.isOver) return
    if (this.#body.bytes + chunk.length > MAX_BODY_BYTES) {
      this.responseAbort(new SallyportError('body-too-large', `more than ${MAX_BODY_BYTES} bytes to sign`))
    } else if (!this.#room.take(chunk.length, this.#isSmall)) {
      this.responseAbort(new SallyportError('overloaded', 'too many webhooks are signed at a time'))
    } else {
      this.#taken += chunk.length
      this.#body.add(chunk)
    }
  }

  override requestEnd(trailers: HeaderList): void {
    if (this.isOver) return
    const body: Uint8Array[] = []
    for (let piece = this.#body.shift(); piece !== undefined; piece = this.#body.shift()) body.push(piece)
    this.pass(this.#next, { ...this.#request, headers: this.#sign(body) })
    for (const piece of body) super.requestData(piece)
    super.requestEnd(trailers)
  }

  #sign(body: readonly Uint8Array[]): HeaderList {
    const headers = [...this.#request.headers]
    const id = (getHeader(headers, 'webhook-id') || inboxId(this.#request)) ?? this.#request.requestId
    removeWhere(headers, name => this.#signer.fields.has(name))
    const signing = { id: id.replaceAll('.', '-'), timestamp: Math.floor(Date.now() / 1000) }
    headers.push(...this.#signer.sign(body, signing))
    return headers
  }

  /** The caller has its credit: only the room is free again. */
  override requestConsumed(bytes: number): void {
    const back = Math.min(bytes, this.#taken)
    this.#taken -= back
    this.#room.give(back)
  }

  protected override over(): void {
    this.#body.clear()
    this.requestConsumed(this.#taken)
  }
}
