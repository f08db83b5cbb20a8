/** One exchange in the ring. What anyone may see is redacted as it arrives; what a replay needs is kept apart. */
import { Buffer } from 'node:buffer'
import { performance } from 'node:perf_hooks'
import { type ErrorCode, isFailure, type SallyportError } from '../../protocol/base/errors.ts'
import type { ExchangeNotes, HeaderList, HttpRequest, ResponseHead } from '../../protocol/exchange.ts'
import { getHeader, textBytes } from '../../protocol/http/headers.ts'
import { reportedError } from '../../protocol/http/problem.ts'
import type { Budget } from './budget.ts'
import { asText, Content, heldBytesOf, MAX_CONTENT_BYTES, showBody } from './content.ts'
import type {
  InspectedBody,
  InspectedDetail,
  InspectedExchange,
  InspectedFields,
  InspectedMessage,
} from './inspected.ts'
import {
  EventStreamMessages,
  MAX_MESSAGES,
  type MessageKind,
  type MessageReader,
  WebSocketMessages,
} from './messages.ts'
import type { Redactor } from './redactor.ts'
import type { Ring, RingMember } from './ring.ts'

/** Memory of an exchange's objects, besides texts and bytes. */
const OVERHEAD_BYTES = 2048
const MESSAGE_OVERHEAD_BYTES = 256
const NO_TIME = 'the inspector had no time for it'
const NOT_SHOWN = '[not shown]'

/** The inspector, as an entry sees it. */
export interface EntryOwner {
  readonly mode: 'heads' | 'bodies'
  readonly ring: Ring<Entry>
  readonly redactor: Redactor
  readonly budget: Budget
  changed(entry: Entry): void
}

/** A request that can be replayed. */
export interface ReplaySource {
  readonly request: HttpRequest
  readonly body: Buffer
  readonly receivedMs: number
}

/** The original request, only for replays. */
interface RawRequest {
  readonly request: HttpRequest
  /** Undefined until it is complete, and if it was not kept in full. */
  body: Buffer | undefined
}

export class Entry implements RingMember {
  readonly id: string
  heldBytes = OVERHEAD_BYTES
  readonly #owner: EntryOwner
  #raw: RawRequest | undefined
  #notes: ExchangeNotes
  readonly #startedMs = Date.now()
  readonly #start = performance.now()
  readonly #facts: Facts
  readonly #heldMs: number | undefined
  readonly #requestFields: HeaderList
  #responseFields: HeaderList | undefined
  readonly #requestContent = new Content()
  readonly #responseContent = new Content()
  #requestBody: InspectedBody | undefined
  #responseBody: InspectedBody | undefined
  #responseType = ''
  #responseEncoding = ''
  /** Directions that carry messages instead of a body. A reader is removed once it has read enough. */
  #messageWays: 'none' | 'out' | 'both' = 'none'
  #readers: { in?: MessageReader; out?: MessageReader } = {}
  /** Bytes that are counted for the readers. */
  #readerBytes = 0
  readonly #messages: InspectedMessage[] = []
  #messageBytes = { in: 0, out: 0 }
  #messagesDropped = false
  #sent: number | undefined
  #headed: number | undefined
  #ended: number | undefined
  #status = 0
  #code: ErrorCode | undefined
  #cut = false
  #isDropped = false

  /** Joins the ring. */
  constructor(id: string, owner: EntryOwner, request: HttpRequest) {
    this.id = id
    this.#owner = owner
    this.#notes = request.notes ??= { route: undefined, session: undefined }
    this.#raw = {
      request: { ...request, headers: [...request.headers], notes: undefined, span: undefined },
      body: undefined,
    }
    this.#requestFields = this.#shownFields(request.headers)
    this.#facts = factsOf(request, owner)
    this.#heldMs = request.heldMs
    // The redacted copy, and the original.
    this.heldBytes +=
      textBytes(this.#requestFields) + textBytes(request.headers) + this.#facts.path.length + request.path.length
    owner.ring.add(this)
  }

  get #contentType(): string {
    return getHeader(this.#raw?.request.headers ?? [], 'content-type') ?? ''
  }

  // Events of the exchange, in order.

  requestData(chunk: Uint8Array): void {
    if (this.#messageWays === 'both') this.#read('in', chunk)
    else this.#keep(this.#requestContent, chunk)
  }

  requestEnd(): void {
    if (this.#sent !== undefined) return
    this.#sent = performance.now()
    this.#endRequest()
  }

  responseHead(head: ResponseHead): void {
    this.#headed = performance.now()
    this.#status = head.status
    if (head.status >= 400) this.#code = reportedError(head.headers)
    if (this.#isDropped) return
    this.#responseFields = this.#shownFields(head.headers)
    this.#count(textBytes(this.#responseFields))
    this.#responseType = getHeader(head.headers, 'content-type') ?? ''
    this.#responseEncoding = getHeader(head.headers, 'content-encoding') ?? ''
    this.#watchMessages(head)
  }

  #watchMessages(head: ResponseHead): void {
    if (this.#owner.mode === 'heads') return
    const listener = (direction: 'in' | 'out') => (kind: MessageKind, content: Buffer, bytes: number, why?: string) =>
      this.#message(direction, kind, content, bytes, why)
    if (head.status === 101) {
      const isDeflated = /permessage-deflate/i.test(getHeader(head.headers, 'sec-websocket-extensions') ?? '')
      this.#messageWays = 'both'
      this.#readers = {
        in: new WebSocketMessages(isDeflated, listener('in')),
        out: new WebSocketMessages(isDeflated, listener('out')),
      }
    } else if (/^text\/event-stream\b/i.test(this.#responseType) && this.#responseEncoding === '') {
      this.#messageWays = 'out'
      this.#readers = { out: new EventStreamMessages(listener('out')) }
    }
  }

  responseData(chunk: Uint8Array): void {
    if (this.#messageWays !== 'none') this.#read('out', chunk)
    else this.#keep(this.#responseContent, chunk)
  }

  over(error: SallyportError | undefined, cut: boolean): void {
    if (this.#ended !== undefined) return
    this.#ended = performance.now()
    this.#code = error?.reason ?? this.#code
    if (this.#status === 0 && isFailure(error?.reason)) this.#status = error!.status
    this.#cut = cut
    // The notes themselves may belong to an object that leads to the whole session.
    this.#notes = { ...this.#notes }
    this.#endRequest()
    this.#responseBody = this.#endBody(
      this.#responseContent,
      this.#responseContent.take(),
      this.#responseType,
      this.#responseEncoding,
    )
    this.#readers = {}
    this.#countReaders()
    this.#owner.changed(this)
  }

  dropped(): void {
    this.#isDropped = true
    this.#raw = undefined
    this.#readers = {}
    this.#requestContent.take()
    this.#responseContent.take()
    this.#requestBody = undefined
    this.#responseBody = undefined
    this.#responseFields = undefined
    this.#messages.length = 0
    this.heldBytes = 0
  }

  // Keeping.

  #count(bytes: number): void {
    if (this.#isDropped) return
    this.heldBytes += bytes
    this.#owner.ring.count(bytes)
    this.#owner.ring.makeRoom(0, this)
  }

  #keep(content: Content, chunk: Uint8Array): void {
    const { mode, ring } = this.#owner
    const wanted = this.#isDropped || mode === 'heads' ? 0 : Math.min(chunk.length, MAX_CONTENT_BYTES)
    const kept = content.add(chunk, wanted === 0 ? 0 : ring.makeRoom(wanted, this))
    if (kept > 0) this.#count(kept)
    if (mode === 'bodies') ring.droppedBytes += chunk.length - kept
  }

  #endRequest(): void {
    const raw = this.#raw
    if (raw === undefined || this.#requestBody !== undefined) return
    const body = this.#requestContent.take()
    if (this.#sent !== undefined && this.#requestContent.isWhole) raw.body = body
    const encoding = getHeader(raw.request.headers, 'content-encoding') ?? ''
    this.#requestBody = this.#endBody(this.#requestContent, body, this.#contentType, encoding)
    // The raw body stays if it is kept for a replay.
    if (raw.body !== undefined) this.#count(body.length)
  }

  /** From now on, the shown body is counted instead of the raw bytes. */
  #endBody(content: Content, kept: Buffer, type: string, encoding: string): InspectedBody | undefined {
    if (this.#isDropped || content.bytes === 0) return undefined
    const { mode, redactor, budget, ring } = this.#owner
    const { bytes } = content
    if (mode === 'heads') return { bytes, truncated: true, omitted: 'bodies are not kept' }
    const found = budget.spend(() => showBody(kept, bytes, type, encoding, redactor))
    if (found === undefined) ring.droppedBytes += content.kept
    const shown = found ?? { bytes, truncated: true, omitted: NO_TIME }
    this.#count(heldBytesOf(shown) - content.kept)
    return shown
  }

  #read(direction: 'in' | 'out', chunk: Uint8Array): void {
    this.#messageBytes[direction] += chunk.length
    const reader = this.#readers[direction]
    if (reader === undefined) return
    const read = this.#owner.budget.spend(() => {
      reader.add(chunk)
      return reader
    })
    // After a gap, messages can no longer be parsed.
    if (read === undefined) this.#dropMessages(chunk.length)
    this.#countReaders()
  }

  #dropMessages(bytes: number): void {
    this.#messagesDropped = true
    this.#readers = {}
    this.#owner.ring.droppedBytes += bytes
  }

  #countReaders(): void {
    const held = (this.#readers.in?.heldBytes ?? 0) + (this.#readers.out?.heldBytes ?? 0)
    const more = held - this.#readerBytes
    this.#readerBytes = held
    this.#count(more)
  }

  #message(direction: 'in' | 'out', kind: MessageKind, content: Buffer, bytes: number, why: string | undefined): void {
    const { redactor, ring } = this.#owner
    if (this.#isDropped || this.#messages.length >= MAX_MESSAGES) {
      this.#messagesDropped = true
      this.#readers = {}
      return
    }
    const shown = why === undefined ? redactor.body(content.toString('latin1'), '') : undefined
    const isCut = content.length < bytes && kind !== 'close'
    const omitted = why ?? 'it has secrets in an encoding that cannot be redacted'
    const seen: Partial<InspectedBody> = shown === undefined ? { omitted } : asText(Buffer.from(shown, 'latin1'), isCut)
    const size = MESSAGE_OVERHEAD_BYTES + heldBytesOf(seen)
    const used = this.#messages.reduce((sum, message) => sum + (message.direction === direction ? message.bytes : 0), 0)
    if (used + bytes > MAX_CONTENT_BYTES || ring.makeRoom(size, this) < size) {
      this.#messagesDropped = true
      ring.droppedBytes += bytes
      return
    }
    this.#count(size)
    const at = since(this.#start, performance.now())
    this.#messages.push({ direction, at, kind, bytes, truncated: isCut, ...seen })
  }

  // Showing.

  /** Shows only the names of the fields if there is no time to redact them. */
  #shownFields(headers: HeaderList): HeaderList {
    const { budget, redactor } = this.#owner
    const withheld = () => headers.map((text, at) => (at % 2 === 0 && !text.includes('eyJ') ? text : NOT_SHOWN))
    return budget.spend(() => redactor.fields(headers)) ?? withheld()
  }

  summary(): InspectedExchange {
    const headed = this.#headed ?? this.#ended
    const whole = this.#sent ?? this.#ended
    // Times that overlap would add up to more than the total.
    const sent = (whole ?? Number.POSITIVE_INFINITY) > (headed ?? Number.POSITIVE_INFINITY) ? undefined : whole
    return {
      id: this.id,
      started: new Date(this.#startedMs).toISOString(),
      state: this.#ended === undefined ? 'open' : 'done',
      ...this.#facts,
      route: this.#notes.route,
      status: this.#status,
      code: this.#code,
      cut: this.#cut,
      bytesIn: this.#requestContent.bytes + this.#messageBytes.in,
      bytesOut: this.#responseContent.bytes + this.#messageBytes.out,
      timings: {
        hold: this.#facts.inboxId === undefined ? this.#heldMs : Math.max(0, this.#startedMs - this.#receivedMs),
        send: since(this.#start, sent),
        wait: since(sent ?? this.#start, headed),
        receive: since(this.#headed, this.#ended),
        total: since(this.#start, this.#ended),
      },
      replayable: this.replaySource !== undefined,
    }
  }

  detail(): InspectedDetail {
    const headers = this.#responseFields
    return {
      ...this.summary(),
      request: { headers: pairs(this.#requestFields), body: this.#requestBody },
      response:
        headers === undefined ? undefined : { status: this.#status, headers: pairs(headers), body: this.#responseBody },
      messages: [...this.#messages],
      messagesDropped: this.#messagesDropped,
    }
  }

  /** When it reached the server, if that is known. */
  get #receivedMs(): number {
    const received = Date.parse(getHeader(this.#requestFields, 'sallyport-inbox-received') ?? '')
    return Number.isNaN(received) ? this.#startedMs : received
  }

  /** The original request, only for replays. */
  get replaySource(): ReplaySource | undefined {
    const raw = this.#raw
    if (raw?.body === undefined || raw.request.upgrade) return undefined
    return { request: raw.request, body: raw.body, receivedMs: raw.request.replay?.receivedMs ?? this.#receivedMs }
  }
}

type Facts = Pick<
  InspectedExchange,
  | ('method' | 'scheme' | 'host' | 'path' | 'caller' | 'requestId' | 'runtime' | 'session' | 'attempt' | 'inboxId')
  | ('replayOf' | 'upgrade')
>

function factsOf(request: HttpRequest, { redactor, budget }: EntryOwner): Facts {
  const { caller, method, upgrade } = request
  const found = budget.spend(() => ({ path: redactor.path(request.path) }))
  return {
    method,
    scheme: caller?.scheme ?? (request.encrypted ? 'https' : 'http'),
    host: redactor.text(caller?.host ?? request.authority),
    path: found?.path ?? `/${NOT_SHOWN}`,
    caller: caller?.address ?? request.peerAddress,
    requestId: redactor.text(request.requestId),
    runtime: request.runtime,
    session: request.session,
    attempt: request.attempt ?? 0,
    inboxId: getHeader(request.headers, 'sallyport-inbox-id'),
    replayOf: request.replay?.of,
    upgrade,
  }
}

function pairs(fields: HeaderList): InspectedFields {
  return Array.from({ length: fields.length / 2 }, (_, at) => [fields[2 * at]!, fields[2 * at + 1]!] as const)
}

/** Milliseconds with three decimals. */
function since(start: number, end: number): number
function since(start: number | undefined, end: number | undefined): number | undefined
function since(start: number | undefined, end: number | undefined): number | undefined {
  return start === undefined || end === undefined ? undefined : Math.round(Math.max(0, end - start) * 1000) / 1000
}
