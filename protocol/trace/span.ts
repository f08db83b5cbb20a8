/** Spans: the record of a request, step by step. They exist only for requests that are recorded. */

/** The place of a span in its trace. */
export interface SpanContext {
  /** 32 hex digits. */
  readonly traceId: string
  /** 16 hex digits. */
  readonly spanId: string
  /** Whether the services before us record the trace, and want us to record it too. */
  readonly sampled: boolean
  /** The `tracestate`, if it is valid. */
  readonly state?: string | undefined
}

/** Span kinds, as in OpenTelemetry. */
export type SpanKind = 'internal' | 'server' | 'client' | 'producer' | 'consumer'

/** The values that an attribute can have. */
export type AttributeValue = string | number | boolean

/** A span that is over. */
export interface FinishedSpan {
  readonly traceId: string
  readonly spanId: string
  /** Absent for the first span of a trace. */
  readonly parentId: string | undefined
  readonly state: string | undefined
  readonly name: string
  readonly kind: SpanKind
  /** Ms since 1970, with fractions. */
  readonly startMs: number
  readonly endMs: number
  readonly attributes: Readonly<Record<string, AttributeValue>>
  /** Spans that led to this one but are not its parents. */
  readonly links: readonly SpanContext[]
  /** Whether it failed. The attribute `error.type` says why. */
  readonly failed: boolean
}

/** One step of a request, from its start until `end`. */
export interface Span {
  readonly context: SpanContext
  /** Ms since 1970, with fractions. */
  readonly startMs: number
  /** Starts a step within this step. */
  child(name: string, kind: SpanKind): Span
  rename(name: string): void
  /** Long texts are truncated. */
  set(name: string, value: AttributeValue): void
  link(context: SpanContext): void
  /** Called last, and once. Later calls are ignored. `error` says why the step failed. */
  end(error?: string): void
}

/** Starts spans. Made by {@link createTracer}, or by `openTelemetry` of `sallyport/tracing`. */
export interface Tracer {
  /** `parent` belongs to another process. If it is absent, the span is the first of a new trace. */
  start(name: string, kind: SpanKind, parent: SpanContext | undefined): Span
  /** Receives a span that the other end of a session has recorded. Absent if there is nowhere to put one. */
  add?(span: FinishedSpan): void
}
