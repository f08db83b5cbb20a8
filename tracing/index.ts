/**
 * Tracing: receivers for the spans of a server or a client.
 *
 * @example
 * ```ts
 * import { createServer } from 'sallyport/server'
 * import { createTracer } from 'sallyport/tracing'
 *
 * const tracer = createTracer(span => console.log(span.name, span.attributes))
 * await using server = await createServer({
 *   public: { port: 8080 },
 *   control: { port: 8443, tls: { cert: { file: 'server.pem' }, key: { file: 'server-key.pem' } } },
 *   domains: ['tunnels.example.com'],
 *   auth: { jwks: { file: 'jwks.json' } },
 *   tracing: { tracer, ratio: 0.01 },
 * })
 * ```
 */
export type { Logger } from '../protocol/base/log.ts'
export type { TracingOptions } from '../protocol/trace/sampling.ts'
export type { AttributeValue, FinishedSpan, Span, SpanContext, SpanKind, Tracer } from '../protocol/trace/span.ts'
export { createTracer } from '../protocol/trace/tracer.ts'
export { type OtelSettings, readOtelEnvironment } from './environment.ts'
export { createExporter, type DropReason, type Exporter, type ExporterOptions, type ExporterStats } from './exporter.ts'
export { openTelemetry } from './opentelemetry.ts'
