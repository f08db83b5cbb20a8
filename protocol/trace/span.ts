/** Spans: what is told of a request, part by part. They exist only for requests that are recorded. */

/** The place of a span in its trace. */
export interface SpanContext {
  /** 32 hex digits. */
  readonly traceId: string
  /** 16 hex digits. */
  readonly spanId: string
  /** Whether it is recorded by those before us, who want the same of us. */
  readonly sampled: boolean
  /** `tracestate`, where it is one that may go on. */
  readonly state?: string | undefined
}

/** As OpenTelemetry has them. */
export type SpanKind = 'internal' | 'server' | 'client' | 'producer' | 'consumer'

/** What an attribute can say. */
export type AttributeValue = string | number | boolean

/** A span that is over. */
export interface FinishedSpan {
  readonly traceId: string
  readonly spanId: string
  /** Absent: it is the first of its trace. */
  readonly parentId: string | undefined
  readonly state: string | undefined
  readonly name: string
  readonly kind: SpanKind
  /** Ms since 1970, with fractions. */
  readonly startMs: number
  readonly endMs: number
  readonly attributes: Readonly<Record<string, AttributeValue>>
  /** Spans that led to it and are not above it. */
  readonly links: readonly SpanContext[]
  /** It failed; `error.type` says at what. */
  readonly failed: boolean
}

/** A part of what happens to a request, from its beginning until `end`. */
export interface Span {
  readonly context: SpanContext
  /** Ms since 1970, with fractions. */
  readonly startMs: number
  /** A part of this part, from now on. */
  child(name: string, kind: SpanKind): Span
  rename(name: string): void
  /** Long texts are cut. */
  set(name: string, value: AttributeValue): void
  link(context: SpanContext): void
  /** Last, and once; what comes later is ignored. `error`: why it failed. */
  end(error?: string): void
}

/** Begins spans. Made by {@link createTracer}, or by `openTelemetry` of `sallyport/tracing`. */
export interface Tracer {
  /** `parent` is of another process, or absent: then it is the first of a new trace. */
  start(name: string, kind: SpanKind, parent: SpanContext | undefined): Span
  /** Takes a span that the other end of a session has recorded. Absent: there is nowhere to put one. */
  add?(span: FinishedSpan): void
}
