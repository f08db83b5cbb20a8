/** Creates spans with an embedder's own OpenTelemetry, which decides what happens to them. */
import type * as Api from '@opentelemetry/api'
import { logDefect, safeLogger } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import type { AttributeValue, Span, SpanContext, SpanKind, Tracer } from '../protocol/trace/span.ts'

/**
 * A tracer that creates its spans with `tracer`, and so uses its sampler, processors and exporters. `api` is the module
 * `@opentelemetry/api` that it belongs to. Errors thrown by OpenTelemetry are logged and otherwise ignored.
 *
 * @example
 * ```ts
 * import * as api from '@opentelemetry/api'
 * import { openTelemetry } from 'sallyport/tracing'
 *
 * const tracer = openTelemetry(api, api.trace.getTracer('sallyport'))
 * ```
 */
export function openTelemetry(api: typeof Api, tracer: Api.Tracer, logger?: Logger): Tracer {
  const kinds: Record<SpanKind, Api.SpanKind> = {
    internal: api.SpanKind.INTERNAL,
    server: api.SpanKind.SERVER,
    client: api.SpanKind.CLIENT,
    producer: api.SpanKind.PRODUCER,
    consumer: api.SpanKind.CONSUMER,
  }
  const begin: Begin = (name, kind, parent) => {
    const above = parent === undefined ? api.ROOT_CONTEXT : api.trace.setSpanContext(api.ROOT_CONTEXT, parent)
    return tracer.startSpan(name, { kind: kinds[kind] }, above)
  }
  const foreign = ({ traceId, spanId, sampled, state }: SpanContext): Api.SpanContext => ({
    ...{ traceId, spanId, isRemote: true },
    traceFlags: sampled ? api.TraceFlags.SAMPLED : api.TraceFlags.NONE,
    ...(state !== undefined && { traceState: api.createTraceState(state) }),
  })
  const bridge = { begin, foreign, logger: safeLogger(logger), failed: api.SpanStatusCode.ERROR }
  return { start: (name, kind, parent) => new BridgedSpan(bridge, name, kind, parent && foreign(parent)) }
}

type Begin = (name: string, kind: SpanKind, parent: Api.SpanContext | undefined) => Api.Span

interface Bridge {
  readonly begin: Begin
  readonly foreign: (context: SpanContext) => Api.SpanContext
  readonly failed: Api.SpanStatusCode
  readonly logger: Logger
}

/** The context of a span that could not be started, and so is not recorded. */
const NOWHERE: SpanContext = { traceId: 'f'.repeat(32), spanId: 'f'.repeat(16), sampled: false }

class BridgedSpan implements Span {
  readonly context: SpanContext
  readonly startMs = performance.timeOrigin + performance.now()
  readonly #bridge: Bridge
  readonly #span: Api.Span | undefined

  constructor(bridge: Bridge, name: string, kind: SpanKind, parent: Api.SpanContext | undefined) {
    this.#bridge = bridge
    this.#span = this.#tried(() => bridge.begin(name, kind, parent))
    this.context = this.#tried(() => contextOf(this.#span?.spanContext())) ?? NOWHERE
  }

  #tried<T>(step: () => T): T | undefined {
    try {
      return step()
    } catch (error) {
      logDefect(this.#bridge.logger, 'OpenTelemetry threw', error)
      return undefined
    }
  }

  child(name: string, kind: SpanKind): Span {
    const own = this.#tried(() => this.#span?.spanContext())
    return new BridgedSpan(this.#bridge, name, kind, own ?? this.#bridge.foreign(this.context))
  }

  rename(name: string): void {
    this.#tried(() => this.#span?.updateName(name))
  }

  set(name: string, value: AttributeValue): void {
    this.#tried(() => this.#span?.setAttribute(name, value))
  }

  link(context: SpanContext): void {
    this.#tried(() => this.#span?.addLink({ context: this.#bridge.foreign(context) }))
  }

  end(error?: string): void {
    this.#tried(() => {
      if (error !== undefined) this.#span?.setAttribute('error.type', error).setStatus({ code: this.#bridge.failed })
      this.#span?.end()
    })
  }
}

function contextOf(context: Api.SpanContext | undefined): SpanContext | undefined {
  if (context === undefined) return undefined
  const { traceId, spanId, traceFlags, traceState } = context
  return { traceId, spanId, sampled: (traceFlags & 1) === 1, state: traceState?.serialize() }
}
