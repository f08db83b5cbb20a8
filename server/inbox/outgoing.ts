/** One delivery of a stored message, as an ordinary exchange that starts inside the edge. */
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { type Failing, guardWith, logDefect, stepOf } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type {
  Handler,
  HeaderList,
  HttpRequest,
  RequestSink,
  ResponseHead,
  ResponseSink,
} from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'
import { reportedError } from '../../protocol/http/problem.ts'
import { readRetryAfter } from '../../protocol/http/retry-after.ts'
import { LENGTH_BYTES } from '../../protocol/sealing/sealed-webhook.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'
import { decodeHead, sealedRequest } from './head.ts'
import type { InboxMac } from './mac.ts'
import { type Outcome, outcomeOf } from './retry.ts'
import { tracedDelivery } from './spans.ts'
import { type InboxStore, type Message, StoreError } from './store.ts'

/** Head and first part of the body are sent together, as in any request, since a receiver may answer as soon as it has the head. */
const FIRST_PARTS = 2
/** How long the rest of an answer may take after its status. */
export const REST_MS = 10_000

export function outcomeOfHead({ status, headers }: ResponseHead, now: number): Outcome {
  return outcomeOf(status, reportedError(headers), readRetryAfter(getHeader(headers, 'retry-after'), now))
}

export function outcomeOfError(error: SallyportError): Outcome {
  return outcomeOf(error.status, error.reason)
}

interface OutgoingOptions {
  readonly handler: Handler
  readonly store: InboxStore
  readonly mac: InboxMac | undefined
  readonly logger: Logger
  readonly attemptMs: number
  readonly now: () => number
  readonly tracing: Tracing | undefined
}

const DAMAGED: Outcome = { kind: 'damaged', reason: 'damaged' }
/** No valid MAC: it was not stored by a server that has one of our secrets. */
const UNPROVEN: Outcome = { kind: 'damaged', reason: 'bad-mac' }

/** Resolves to the outcome. Rejects with a {@link StoreError} if the store cannot be read now. */
export async function deliverMessage(message: Message, options: OutgoingOptions): Promise<Outcome> {
  const first = await firstOf(message, options)
  if ('kind' in first) return first
  const kept = requestOf(message, first[0]!, options.logger)
  if (kept === undefined) return DAMAGED
  const { request, trailers } = kept
  request.notes = { route: message.route, session: undefined, inboxId: message.id }
  return await new Promise<Outcome>((resolve, reject) => {
    const handler = tracedDelivery(options.tracing, message, options.handler)
    const delivery = new Outgoing({ ...options, handler }, { resolve, reject })
    delivery.begin(request, message, first, trailers)
  })
}

async function firstOf(message: Message, options: OutgoingOptions): Promise<Uint8Array[] | Outcome> {
  const first: Uint8Array[] = []
  for (let n = 0; n < Math.min(message.parts, FIRST_PARTS); n++) {
    const bytes = await partOf(message, n, options)
    if ('kind' in bytes) return bytes
    first.push(bytes)
  }
  return first
}

/** Part `n` as it was stored, or why it cannot be delivered. */
async function partOf(message: Message, n: number, { store, mac }: OutgoingOptions): Promise<Uint8Array | Outcome> {
  const bytes = await store.part(message.id, n)
  if (bytes === undefined) return DAMAGED
  return mac?.verifies(message, n, bytes) === false ? UNPROVEN : bytes
}

/** `undefined` if the stored bytes are not a request. */
function requestOf(message: Message, bytes: Uint8Array, logger: Logger): ReturnType<typeof decodeHead> | undefined {
  try {
    if (message.key !== '') return { request: sealedRequest(message), trailers: [] }
    return decodeHead(bytes, message, message.bytes - bytes.length)
  } catch (error) {
    logger.error({ inboxId: message.id, err: error }, 'a webhook of the inbox cannot be read')
    return undefined
  }
}

interface Settled {
  resolve(outcome: Outcome): void
  reject(error: unknown): void
}

const late = stepOf<Outgoing>(delivery => delivery.late())

class Outgoing implements ResponseSink, Failing {
  readonly #options: OutgoingOptions
  readonly #promise: Settled
  #sink: RequestSink | undefined
  #timer: NodeJS.Timeout
  /** Bytes that the next layer has not consumed yet. */
  #unconsumed = 0
  #onConsumed: (() => void) | undefined
  #responseBytes = 0
  /** The whole request has been sent. */
  #sent = false
  /** The receiver's answer, if it came before the whole request was sent. */
  #early: Outcome | undefined
  #over = false

  constructor(options: OutgoingOptions, promise: Settled) {
    this.#options = options
    this.#promise = promise
    this.#timer = setTimeout(late, options.attemptMs, this)
  }

  begin(request: HttpRequest, message: Message, first: Uint8Array[], trailers: HeaderList): void {
    try {
      this.#run(this.#options.handler(request, this), message, first, trailers)
    } catch (error) {
      this.#broken(error)
    }
  }

  #run(sink: RequestSink, message: Message, first: Uint8Array[], trailers: HeaderList): void {
    this.#sink = sink
    if (this.#responseBytes > 0) sink.responseConsumed(this.#responseBytes)
    const guard = guardWith(error => this.#broken(error))
    const failed = guard((error: unknown) => this.#broken(error))
    this.#send(sink, message, first, trailers).catch(failed)
  }

  /** Sends the parts one by one, each after the one before has been consumed. Those that were sent are kept nowhere. */
  async #send(sink: RequestSink, message: Message, first: Uint8Array[], trailers: HeaderList): Promise<void> {
    const isSealed = message.key !== ''
    if (!isSealed) first.shift()
    for (let n = isSealed ? 0 : 1; n < message.parts && !this.#over; n++) {
      const bytes = first.shift() ?? (await partOf(message, n, this.#options))
      if (this.#over) return
      if ('kind' in bytes) {
        this.#giveUp(bytes)
        return
      }
      if (isSealed) this.#give(sink, lengthOf(bytes))
      this.#give(sink, bytes)
      if (n > 0 && n < message.parts - 1) await this.#consumed()
    }
    if (this.#over) return
    sink.requestEnd(trailers)
    await this.#consumed()
    this.#sent = true
  }

  #give(sink: RequestSink, bytes: Uint8Array): void {
    this.#unconsumed += bytes.length
    sink.requestData(bytes)
  }

  #consumed(): Promise<void> | undefined {
    if (this.#unconsumed <= 0 || this.#over) return undefined
    return new Promise(resolve => {
      this.#onConsumed = resolve
    })
  }

  /** A failure in our own code counts as a failure of the receiver, so the delivery is retried. */
  #broken(error: unknown): void {
    if (error instanceof StoreError) this.#promise.reject(error)
    else logDefect(this.#options.logger, 'a delivery from the inbox failed', error)
    this.#fail(toSallyportError(error))
  }

  #fail(error: SallyportError): void {
    this.#giveUp(outcomeOfError(error), error)
  }

  #giveUp(outcome: Outcome, why = new SallyportError('cancelled')): void {
    this.#finish()
    this.#sink?.requestAbort(why)
    this.#promise.resolve(outcome)
  }

  #finish(): void {
    this.#over = true
    clearTimeout(this.#timer)
    this.#onConsumed?.()
    this.#onConsumed = undefined
  }

  /** @internal The head, or the rest of the answer, did not come in time. */
  late(): void {
    this.#fail(new SallyportError('upstream-timeout'))
  }

  threw(error: unknown): void {
    this.#broken(error)
  }

  responseInformational(): void {}

  responseHead(head: ResponseHead): void {
    const outcome = outcomeOfHead(head, this.#options.now())
    // A receiver that answers 2xx early still gets the rest of the request. What counts is the end of its answer.
    if (outcome.kind === 'delivered' && !this.#sent) {
      this.#early = outcome
      return
    }
    this.#promise.resolve(outcome)
    clearTimeout(this.#timer)
    this.#timer = setTimeout(late, REST_MS, this)
  }

  responseData(chunk: Uint8Array): void {
    if (this.#sink === undefined) this.#responseBytes += chunk.length
    else this.#sink.responseConsumed(chunk.length)
  }

  responseEnd(): void {
    this.#finish()
    if (this.#early !== undefined) this.#promise.resolve(this.#early)
  }

  responseAbort(error: SallyportError): void {
    this.#finish()
    this.#promise.resolve(outcomeOfError(error))
  }

  requestConsumed(bytes: number): void {
    this.#unconsumed -= bytes
    if (this.#unconsumed > 0) return
    this.#onConsumed?.()
    this.#onConsumed = undefined
  }
}

function lengthOf({ length }: Uint8Array): Uint8Array {
  const bytes = Buffer.alloc(LENGTH_BYTES)
  bytes.writeUInt32BE(length)
  return bytes
}
