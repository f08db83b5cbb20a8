/** The latest traced requests, kept in memory for `sallyport traces`, so that no receiver is needed. */
import type { FinishedSpan } from '../../protocol/trace/span.ts'

const MAX_TRACES = 100
/** Most spans of one trace. Later ones are dropped. */
const MAX_SPANS = 32
const MAX_CHARS = 256
/** Attributes of a span that are kept, besides its name and times. */
const KEPT = [
  ...['http.response.status_code', 'error.type', 'url.path', 'url.full', 'sallyport.runtime', 'sallyport.route'],
  ...['sallyport.reason', 'sallyport.carrier', 'sallyport.reported_by'],
]

/** A span as the admin listener shows it. */
interface KeptSpan {
  readonly id: string
  readonly parent: string | undefined
  readonly name: string
  readonly kind: string
  readonly startMs: number
  readonly endMs: number
  readonly failed: boolean
  readonly attributes: Readonly<Record<string, string | number | boolean>>
}

export class RecentTraces {
  /** By trace id, oldest first. */
  readonly #traces = new Map<string, KeptSpan[]>()

  readonly add = (span: FinishedSpan): void => {
    const spans = this.#traces.get(span.traceId) ?? this.#begin(span.traceId)
    if (spans.length < MAX_SPANS) spans.push(kept(span))
  }

  #begin(id: string): KeptSpan[] {
    if (this.#traces.size >= MAX_TRACES) this.#traces.delete(this.#traces.keys().next().value!)
    const spans: KeptSpan[] = []
    this.#traces.set(id, spans)
    return spans
  }

  /** Oldest first. */
  list(): object[] {
    return [...this.#traces].map(([id, spans]) => ({ id, spans }))
  }
}

function kept({ spanId, parentId, name, kind, startMs, endMs, failed, attributes }: FinishedSpan): KeptSpan {
  const entries = KEPT.flatMap(name =>
    attributes[name] === undefined ? [] : [[name, short(attributes[name])] as const],
  )
  return {
    ...{ id: spanId, parent: parentId, name: name.slice(0, MAX_CHARS), kind, startMs, endMs, failed },
    attributes: Object.fromEntries(entries),
  }
}

function short<Value>(value: Value): Value | string {
  return typeof value === 'string' ? value.slice(0, MAX_CHARS) : value
}
