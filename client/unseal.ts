/**
 * The layer that opens sealed webhooks from the inbox of a server. Such an exchange is a POST whose body consists of sealed
 * parts, each preceded by its length: first the head of the webhook, then its body. The layers after this one see the
 * original webhook.
 */
import { Buffer } from 'node:buffer'
import { SallyportError } from '../protocol/base/errors.ts'
import { GatheredChunks } from '../protocol/base/gathered.ts'
import type { Logger } from '../protocol/base/log.ts'
import { BODY_UNKNOWN, type Handler, type HttpRequest, type ResponseSink } from '../protocol/exchange.ts'
import { getHeader, removeWhere } from '../protocol/http/headers.ts'
import { refusing } from '../protocol/http/problem.ts'
import { type Layer, PassThrough } from '../protocol/layer.ts'
import type { Opener } from '../protocol/sealing/hpke.ts'
import {
  type InboxKeys,
  LENGTH_BYTES,
  MAX_PART_BYTES,
  partAad,
  SEALED_FIELDS,
  type SealedIdentity,
} from '../protocol/sealing/sealed-webhook.ts'
import { readSealedHead } from './sealed-head.ts'

const refuse = refusing(() => undefined)
const OWN_FIELDS: ReadonlySet<string> = new Set(Object.values(SEALED_FIELDS))

/** Without `keys`, nothing can be opened. `unopened` is called once for each exchange that ends here and goes no further. */
export function unsealing(
  keys: InboxKeys | undefined,
  logger: Logger,
  unopened: (request: HttpRequest) => void = () => {},
): Layer {
  return next => (request, response) => {
    const keyId = getHeader(request.headers, SEALED_FIELDS.key)
    if (keyId === undefined) return next(request, response)
    const { runtime = '', headers } = request
    const id = getHeader(headers, 'sallyport-inbox-id') ?? ''
    const key = keys?.find(keyId)
    if (key === undefined) {
      logger.error(
        { inboxId: id, reason: keyId },
        'a webhook is sealed for another key; it stays in the inbox of the server',
      )
      unopened(request)
      return refuse(request, response, new SallyportError('inbox-sealed'))
    }
    try {
      const received = Date.parse(getHeader(headers, 'sallyport-inbox-received') ?? '')
      const identity = { runtime, id, lane: getHeader(headers, SEALED_FIELDS.lane) ?? '', received }
      const opener = key.opener(getHeader(headers, SEALED_FIELDS.enc) ?? '')
      return new Unsealed({ opener, identity, next, request, logger, unopened }, response)
    } catch (error) {
      logger.error({ inboxId: id, err: error }, 'a webhook could not be opened')
      unopened(request)
      return refuse(request, response, new SallyportError('inbox-sealed'))
    }
  }
}

interface UnsealedOptions {
  readonly opener: Opener
  readonly identity: SealedIdentity
  readonly next: Handler
  /** The request that delivers the webhook. */
  readonly request: HttpRequest
  readonly logger: Logger
  readonly unopened: (request: HttpRequest) => void
}

class Unsealed extends PassThrough {
  readonly #options: UnsealedOptions
  readonly #response: ResponseSink
  /** What has arrived of the current part, beginning with its length. */
  readonly #part = new GatheredChunks()
  /** Size of the current part including its length; 0 until it is known. */
  #partBytes = 0
  /** Number of the current part. */
  #n = 0
  #head: ReturnType<typeof readSealedHead> | undefined
  /** Its size. It is kept until the exchange is over. */
  #headBytes = 0
  #over = false
  /** Bytes of the body that are still to come. */
  #bodyLeft = 0
  /** Received bytes that we have not given credit for. */
  #owed = 0
  /** Opened bytes that the next layer has not consumed. */
  #open = 0

  constructor(options: UnsealedOptions, response: ResponseSink) {
    super(response)
    this.#options = options
    this.#response = response
  }

  override requestData(chunk: Uint8Array): void {
    this.#owed += chunk.length
    if (this.#over) {
      this.#giveCredit()
      return
    }
    this.#part.add(chunk)
    try {
      while (this.#takePart());
    } catch (error) {
      this.#broken(error)
    }
    this.#giveCredit()
  }

  /** Opens the current part if it has arrived in full. */
  #takePart(): boolean {
    if (this.#partBytes === 0 && this.#part.bytes >= LENGTH_BYTES) {
      const length = this.#joined().readUInt32BE(0)
      if (length > MAX_PART_BYTES) throw new Error('a part is too long')
      this.#partBytes = LENGTH_BYTES + length
    }
    if (this.#partBytes === 0 || this.#part.bytes < this.#partBytes) return false
    const all = this.#joined()
    const sealed = all.subarray(LENGTH_BYTES, this.#partBytes)
    this.#part.clear()
    if (all.length > this.#partBytes) this.#part.add(all.subarray(this.#partBytes))
    this.#partBytes = 0
    this.#opened(this.#options.opener.open(this.#n, partAad(this.#options.identity, this.#n), sealed))
    this.#n++
    return true
  }

  #joined(): Buffer {
    const all = Buffer.concat([...this.#part], this.#part.bytes)
    this.#part.clear()
    this.#part.add(all)
    return all
  }

  #opened(text: Uint8Array): void {
    if (this.#head === undefined) {
      this.#headBytes = text.length
      this.#begin(readSealedHead(text))
    } else {
      this.#bodyLeft -= text.length
      if (this.#bodyLeft < 0 || text.length === 0) throw new Error('the body is not as long as its head says')
      this.#open += text.length
      super.requestData(text)
    }
  }

  #begin(head: ReturnType<typeof readSealedHead>): void {
    this.#head = head
    this.#bodyLeft = head.bodyBytes
    const { next, request } = this.#options
    const own = [...request.headers]
    removeWhere(own, name => !name.startsWith('sallyport-inbox-') || OWN_FIELDS.has(name))
    const isWhole = head.trailers.length === 0
    const headers = [...head.headers, ...own, ...(isWhole ? ['content-length', String(head.bodyBytes)] : [])]
    const { method, authority, path, caller, requestId } = head
    const bodyBytes = isWhole ? head.bodyBytes : BODY_UNKNOWN
    this.pass(next, { ...request, method, authority, path, caller, requestId, headers, bodyBytes })
  }

  override requestEnd(): void {
    if (this.#over) return
    if (this.#head === undefined || this.#part.bytes > 0 || this.#bodyLeft > 0 || this.#n !== this.#head.parts + 1) {
      this.#broken(new Error('it is not complete'))
    } else super.requestEnd(this.#head.trailers)
  }

  override requestAbort(error: SallyportError): void {
    if (this.#head === undefined) this.#leave()
    super.requestAbort(error)
  }

  /** Ends the exchange before anything of it went on to the next layer. */
  #leave(): void {
    if (!this.#over) this.#options.unopened(this.#options.request)
    this.#over = true
    this.#part.clear()
  }

  override requestConsumed(bytes: number): void {
    if (this.#over) return
    this.#open -= bytes
    this.#giveCredit()
  }

  /**
   * Gives credit only once the next layer has consumed everything that was opened, so that only one part is in memory. That part
   * counts as held beyond the bytes that we still owe credit for.
   */
  #giveCredit(): void {
    const bytes = this.#open > 0 ? 0 : this.#owed
    this.#owed -= bytes
    if (bytes > 0) this.#response.requestConsumed(bytes)
    this.#response.requestKept?.(this.#headBytes + Math.max(0, this.#part.bytes + this.#open - this.#owed))
  }

  /** A webhook that cannot be opened in full must not look complete, so its receiver never sees its end. */
  #broken(error: unknown): void {
    const { logger, identity, request } = this.#options
    logger.error({ inboxId: identity.id, err: error }, 'a webhook could not be opened')
    const isAnswered = this.status !== 0
    const sealed = new SallyportError('inbox-sealed')
    if (this.#head === undefined) this.#leave()
    else super.requestAbort(sealed)
    this.#over = true
    this.#part.clear()
    this.#open = 0
    this.#headBytes = 0
    this.detach()
    if (isAnswered) this.#response.responseAbort(sealed)
    else refuse(request, this.#response, sealed)
    this.#giveCredit()
  }
}
