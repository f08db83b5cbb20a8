/** Our own spans. */
import { hook, safeLogger } from '../base/guard.ts'
import { newSpanId, newTraceId } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import type { AttributeValue, FinishedSpan, Span, SpanContext, SpanKind, Tracer } from './span.ts'

const MAX_TEXT_CHARS = 1024
const MAX_ATTRIBUTES = 64

/**
 * Creates a tracer that passes each span to `sink` once it is over. The sink is called on the data path, so it should only store the
 * span, and not wait for anything.
 *
 * @example
 * ```ts
 * import { createTracer } from 'sallyport/tracing'
 *
 * const tracer = createTracer(span => console.log(span.name, span.endMs - span.startMs))
 * ```
 */
export function createTracer(sink: (span: FinishedSpan) => void, logger?: Logger): Tracer {
  const add = hook('the sink of spans', sink, safeLogger(logger))
  return {
    add,
    start(name, kind, parent) {
      const offsetMs = Date.now() - performance.now()
      return new OwnSpan({ name, kind, add, offsetMs, of: parent, parentId: parent?.spanId })
    },
  }
}

interface Beginning {
  readonly name: string
  readonly kind: SpanKind
  readonly add: (span: FinishedSpan) => void
  /** The wall clock at the start of the trace here, less the monotonic clock. From then on, times come from the monotonic clock. */
  readonly offsetMs: number
  readonly of: SpanContext | undefined
  readonly parentId: string | undefined
}

class OwnSpan implements Span {
  readonly context: SpanContext
  readonly startMs: number
  readonly #beginning: Beginning
  readonly #attributes: Record<string, AttributeValue> = {}
  readonly #links: SpanContext[] = []
  #name: string
  #count = 0
  #over = false

  constructor(beginning: Beginning) {
    const { of, name, offsetMs } = beginning
    this.#beginning = beginning
    this.#name = name
    this.startMs = offsetMs + performance.now()
    this.context = { traceId: of?.traceId ?? newTraceId(), spanId: newSpanId(), sampled: true, state: of?.state }
  }

  child(name: string, kind: SpanKind): Span {
    const { context } = this
    return new OwnSpan({ ...this.#beginning, name, kind, of: context, parentId: context.spanId })
  }

  rename(name: string): void {
    this.#name = name
  }

  set(name: string, value: AttributeValue): void {
    if (this.#count === MAX_ATTRIBUTES) return
    this.#count++
    this.#attributes[name] = typeof value === 'string' ? value.slice(0, MAX_TEXT_CHARS) : value
  }

  link(context: SpanContext): void {
    this.#links.push(context)
  }

  end(error?: string): void {
    if (this.#over) return
    this.#over = true
    if (error !== undefined) this.#attributes['error.type'] = error
    const { add, kind, offsetMs, parentId } = this.#beginning
    const { traceId, spanId, state } = this.context
    add({
      ...{ traceId, spanId, parentId, state, kind },
      name: this.#name.slice(0, MAX_TEXT_CHARS),
      startMs: this.startMs,
      endMs: offsetMs + performance.now(),
      attributes: this.#attributes,
      links: this.#links,
      failed: error !== undefined,
    })
  }
}
