/**
 * Spans of one session's exchanges, which go back to its server. They go by request, once the exchange is over here: what it has
 * recorded until then, in messages of a bounded size and at a bounded rate. What is too much is dropped.
 */

import { Buffer } from 'node:buffer'
import type { Guard } from '../protocol/base/guard.ts'
import { isReturned } from '../protocol/trace/attributes.ts'
import type { FinishedSpan, Span, SpanContext, SpanKind, Tracer } from '../protocol/trace/span.ts'
import { createTracer } from '../protocol/trace/tracer.ts'
import {
  MAX_CONTROL_BYTES,
  type ReturnedRequest,
  type ReturnedSpan,
  SPANS_LIMITS,
  type SpansReturned,
} from '../protocol/wire/control.ts'

/** Of the message, around its requests. */
const FRAME_BYTES = 64
/** So long others are waited for: four messages a second, where a server takes 20. */
const DELAY_MS = 250
/** Most bytes that wait: four messages. */
const MAX_WAITING_BYTES = 4 * MAX_CONTROL_BYTES

interface SpanReturnOptions {
  readonly guard: Guard
  send(message: SpansReturned): void
}

interface Waiting {
  readonly request: ReturnedRequest
  /** As JSON. */
  readonly bytes: number
}

export class SpanReturn implements Tracer {
  readonly #options: SpanReturnOptions
  readonly #waiting: Waiting[] = []
  #bytes = 0
  #timer: NodeJS.Timeout | undefined
  #closed = false

  constructor(options: SpanReturnOptions) {
    this.#options = options
  }

  start(name: string, kind: SpanKind, parent: SpanContext | undefined): Span {
    const spans: FinishedSpan[] = []
    const tracer = createTracer(span => {
      spans.push(span)
      if (parent !== undefined && span.parentId === parent.spanId) this.#add(parent.spanId, spans, span.startMs)
    })
    return tracer.start(name, kind, parent)
  }

  /** What has not ended before the whole is not told. */
  #add(of: string, spans: readonly FinishedSpan[], fromMs: number): void {
    const request = { of, spans: spans.slice(-SPANS_LIMITS.ofRequest).map(span => returned(span, fromMs)) }
    const bytes = Buffer.byteLength(JSON.stringify(request)) + 1
    if (this.#closed || bytes > MAX_CONTROL_BYTES - FRAME_BYTES || this.#bytes + bytes > MAX_WAITING_BYTES) return
    this.#waiting.push({ request, bytes })
    this.#bytes += bytes
    this.#timer ??= this.#later()
  }

  #later(): NodeJS.Timeout {
    return setTimeout(
      this.#options.guard(() => this.#send()),
      DELAY_MS,
    ).unref()
  }

  #send(): void {
    const requests: ReturnedRequest[] = []
    for (let left = MAX_CONTROL_BYTES - FRAME_BYTES; requests.length < SPANS_LIMITS.requests; ) {
      const [next] = this.#waiting
      if (next === undefined || next.bytes > left) break
      left -= next.bytes
      this.#bytes -= next.bytes
      requests.push(next.request)
      this.#waiting.shift()
    }
    if (requests.length > 0) this.#options.send({ type: 'spans', requests })
    this.#timer = this.#waiting.length === 0 || this.#closed ? undefined : this.#later()
  }

  /** Sends what one message holds of what waits, and takes no more. */
  close(): void {
    clearTimeout(this.#timer)
    this.#closed = true
    this.#send()
  }
}

/** Times as microseconds since the request came here: no clock but one's own is believed at either end. */
function returned(span: FinishedSpan, fromMs: number): ReturnedSpan {
  const { spanId, parentId, name, kind, startMs, endMs, attributes, failed } = span
  const told = Object.entries(attributes).filter(([name, said]) => isReturned(name, said))
  return {
    ...{ id: spanId, parent: parentId!, name: plain(name), kind },
    at: micros(startMs - fromMs),
    took: micros(endMs - startMs),
    attributes: Object.fromEntries(told.map(([name, said]) => [name, typeof said === 'string' ? plain(said) : said])),
    ...(failed && { failed }),
  }
}

function micros(ms: number): number {
  return Math.min(Math.max(0, Math.round(ms * 1000)), SPANS_LIMITS.micros)
}

/** A caller may have chosen parts of it, and nothing of it may break the session. */
function plain(text: string): string {
  return text.slice(0, SPANS_LIMITS.chars).replaceAll(/[^\x20-\x7e]/g, '?')
}
