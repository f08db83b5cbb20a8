/**
 * Returns the spans of one session's exchanges to its server. The spans of a request are sent together once its exchange has
 * ended here, in messages of bounded size and at a bounded rate. Whatever exceeds the bounds is dropped.
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

/** Size of the message around its requests. */
const FRAME_BYTES = 64
/** Time to collect further requests: four messages per second, where a server accepts 20. */
const DELAY_MS = 250
/** Most bytes that may wait: four messages. */
const MAX_WAITING_BYTES = 4 * MAX_CONTROL_BYTES

interface SpanReturnOptions {
  readonly guard: Guard
  send(message: SpansReturned): void
}

interface Waiting {
  readonly request: ReturnedRequest
  /** Size as JSON. */
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
      if (parent === undefined || span.parentId !== parent.spanId) return
      // If the caller leaves, the steps of its request end right after the request.
      queueMicrotask(this.#options.guard(() => this.#add(parent.spanId, spans, span.startMs)))
    })
    return tracer.start(name, kind, parent)
  }

  /** Spans that have not ended by now are left out. */
  #add(of: string, spans: readonly FinishedSpan[], fromMs: number): void {
    const kept = childrenFirst(of, spans).slice(-SPANS_LIMITS.ofRequest)
    const request = { of, spans: kept.map(span => returned(span, fromMs)) }
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

  /** Sends as many waiting requests as fit into one message, and accepts no more. */
  close(): void {
    clearTimeout(this.#timer)
    this.#closed = true
    this.#send()
  }
}

/** In the order that a server reads, in whatever order they ended. A span whose parent has not ended is left out. */
function childrenFirst(of: string, spans: readonly FinishedSpan[]): FinishedSpan[] {
  const byParent = Map.groupBy(spans, ({ parentId }) => parentId)
  const parentsFirst: FinishedSpan[] = []
  const ids = [of]
  for (const id of ids) {
    for (const span of byParent.get(id)?.toReversed() ?? []) {
      parentsFirst.push(span)
      ids.push(span.spanId)
    }
  }
  return parentsFirst.toReversed()
}

/** The kinds that a server reads. It ends a session that sends another, and an embedder's layer may give its spans any. */
const KINDS: ReadonlySet<SpanKind> = new Set(['internal', 'server', 'client'])

/** Times are microseconds since the request arrived here, because neither end trusts the clock of the other. */
function returned(span: FinishedSpan, fromMs: number): ReturnedSpan {
  const { spanId, parentId, name, kind, startMs, endMs, attributes, failed } = span
  const kept = Object.entries(attributes).filter(([name, value]) => isReturned(name, value))
  return {
    ...{ id: spanId, parent: parentId!, name: plain(name) || 'unnamed', kind: KINDS.has(kind) ? kind : 'internal' },
    at: micros(startMs - fromMs),
    took: micros(endMs - startMs),
    attributes: Object.fromEntries(
      kept.map(([name, value]) => [name, typeof value === 'string' ? plain(value) : value]),
    ),
    ...(failed && { failed }),
  }
}

function micros(ms: number): number {
  return Math.min(Math.max(0, Math.round(ms * 1000)), SPANS_LIMITS.micros)
}

/** Callers choose part of these texts, and none of them may break the session. */
function plain(text: string): string {
  return text.slice(0, SPANS_LIMITS.chars).replaceAll(/[^\x20-\x7e]/g, '?')
}
