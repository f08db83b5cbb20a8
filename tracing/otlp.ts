/** Encodes spans as OTLP JSON: ids as hex, 64-bit numbers as text, enums as numbers. */
import { packageVersion } from '../protocol/base/version.ts'
import type { AttributeValue, FinishedSpan, SpanContext, SpanKind } from '../protocol/trace/span.ts'

const KINDS: Record<SpanKind, number> = { internal: 1, server: 2, client: 3, producer: 4, consumer: 5 }
const FAILED = { code: 2 }
/** `SpanFlags`: the lower byte has the W3C flags, and bit 8 says that bit 9 is meaningful. */
const SAMPLED = 1
const REMOTE_KNOWN = 0x100
const REMOTE = 0x200

/** The body of an `ExportTraceServiceRequest`. `resource` has the resource attributes. */
export function encodeSpans(spans: readonly FinishedSpan[], resource: Readonly<Record<string, string>>): string {
  const scope = { name: 'sallyport', version: packageVersion() }
  return JSON.stringify({
    resourceSpans: [
      { resource: { attributes: keyValues(resource) }, scopeSpans: [{ scope, spans: spans.map(encodeSpan) }] },
    ],
  })
}

function encodeSpan(span: FinishedSpan): object {
  const { traceId, spanId, parentId, state, name, kind, startMs, endMs, attributes, links, failed } = span
  return {
    ...{ traceId, spanId, traceState: state, parentSpanId: parentId, flags: SAMPLED },
    ...{ name, kind: KINDS[kind], startTimeUnixNano: nanos(startMs), endTimeUnixNano: nanos(Math.max(startMs, endMs)) },
    attributes: keyValues(attributes),
    ...(links.length > 0 && { links: links.map(encodeLink) }),
    ...(failed && { status: FAILED }),
  }
}

function encodeLink({ traceId, spanId, state, sampled }: SpanContext): object {
  return { traceId, spanId, traceState: state, flags: (sampled ? SAMPLED : 0) | REMOTE_KNOWN | REMOTE }
}

function keyValues(values: Readonly<Record<string, AttributeValue>>): object[] {
  return Object.entries(values).map(([key, value]) => ({ key, value: anyValue(value) }))
}

function anyValue(value: AttributeValue): object {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (Number.isSafeInteger(value)) return { intValue: String(value) }
  return { doubleValue: Number.isFinite(value) ? value : String(value) }
}

function nanos(ms: number): string {
  const whole = Math.floor(ms)
  return `${whole}${String(Math.floor((ms - whole) * 1e6)).padStart(6, '0')}`
}
