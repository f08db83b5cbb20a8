/** Replays a request to the target. */
import { Buffer } from 'node:buffer'
import { randomUUID } from 'node:crypto'
import { SallyportError } from '../../protocol/base/errors.ts'
import { stepOf } from '../../protocol/base/guard.ts'
import { newExchangeId } from '../../protocol/base/ids.ts'
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import {
  isFieldValue,
  isForwardedName,
  isHopByHop,
  isMountName,
  isPath,
  isToken,
  removeHeader,
  setHeader,
} from '../../protocol/http/headers.ts'
import { isMethod, staysHere } from '../../protocol/http/methods.ts'
import { MAX_CONTENT_BYTES } from './content.ts'
import type { ReplaySource } from './entry.ts'
import type { ReplayEdits } from './inspected.ts'

const REPLAY_MS = 60_000
const MAX_EDITED_FIELDS = 100

/** The request of the replay and its body. Throws TypeError for invalid edits. */
export function replayRequest(
  id: string,
  { request, body, receivedMs }: ReplaySource,
  edits: ReplayEdits,
): { request: HttpRequest; body: Buffer } {
  const { method = request.method, path = request.path } = edits
  if (!isMethod(method) || staysHere(method)) throw new TypeError('edits.method is not a method')
  if (!path.startsWith('/') || !isPath(path)) throw new TypeError('edits.path is not a path with a query')
  const headers = editedFields(request.headers, edits.headers ?? {})
  const sent = edits.body === undefined ? body : Buffer.from(edits.body)
  if (sent.length > MAX_CONTENT_BYTES) throw new TypeError(`edits.body is longer than ${MAX_CONTENT_BYTES} bytes`)
  removeHeader(headers, 'expect')
  removeHeader(headers, 'content-length')
  if (edits.body !== undefined) removeHeader(headers, 'content-encoding')
  if (sent.length > 0 || request.bodyBytes !== 0) headers.push('content-length', String(sent.length))
  setHeader(headers, 'sallyport-replay', id)
  const requestId = randomUUID()
  setHeader(headers, 'x-request-id', requestId)
  const edited = Object.values(edits).some(edit => edit !== undefined) || request.replay?.edited === true
  const replayed: HttpRequest = {
    ...{ ...request, method, path, headers, requestId, bodyBytes: sent.length, exchangeId: newExchangeId() },
    ...{ notes: undefined, attempt: 0, heldMs: undefined, replay: { of: id, receivedMs, edited } },
  }
  return { request: replayed, body: sent }
}

function editedFields(headers: HeaderList, edits: NonNullable<ReplayEdits['headers']>): HeaderList {
  const edited = [...headers]
  const entries = Object.entries(edits)
  if (entries.length > MAX_EDITED_FIELDS) throw new TypeError(`edits.headers has more than ${MAX_EDITED_FIELDS} fields`)
  for (const [given, value] of entries) {
    const name = given.toLowerCase()
    if (
      !isToken(name) ||
      name === 'host' ||
      name === 'content-length' ||
      isHopByHop(name) ||
      isForwardedName(name) ||
      isMountName(name)
    ) {
      throw new TypeError(`edits.headers: the field ${JSON.stringify(given)} cannot be edited`)
    }
    removeHeader(edited, name)
    if (value === null) continue
    if (typeof value !== 'string' || !isFieldValue(value))
      throw new TypeError(`edits.headers: the value of ${name} is not valid`)
    edited.push(name, value)
  }
  return edited
}

const late = stepOf<ReplayRun>(replay => replay.end(new SallyportError('upstream-timeout', 'the replay took too long')))

/** The downstream end of a replay. It consumes everything and keeps nothing, since the inspector records the exchange. */
export class ReplayRun implements ResponseSink {
  readonly #over = Promise.withResolvers<void>()
  #sink: RequestSink | undefined
  #early = 0
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  /** Resolves when the replay has ended, successfully or not. */
  run(handler: Handler, request: HttpRequest, body: Buffer): Promise<void> {
    this.#timer = setTimeout(late, REPLAY_MS, this)
    const sink = handler(request, this)
    this.#sink = sink
    if (this.#early > 0) sink.responseConsumed(this.#early)
    if (body.length > 0) sink.requestData(Buffer.from(body))
    sink.requestEnd([])
    return this.#over.promise
  }

  end(error: SallyportError): void {
    if (this.#isOver) return
    this.#finish()
    this.#sink?.requestAbort(error)
  }

  threw(): void {
    this.#finish()
  }

  #finish(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#over.resolve()
  }

  responseInformational(): void {}

  responseHead(): void {}

  responseData(chunk: Uint8Array): void {
    if (this.#sink === undefined) this.#early += chunk.length
    else this.#sink.responseConsumed(chunk.length)
  }

  responseEnd(): void {
    this.#finish()
  }

  responseAbort(): void {
    this.#finish()
  }

  requestConsumed(): void {}
}
