/**
 * Spans that clients return. A client names none of its traces: it says of which attempt a span is, and that must be one that its own
 * session was given and has not told of yet. So it can neither write into other traces, nor tell of more than it was sent.
 */
import { isReturned } from '../../protocol/trace/attributes.ts'
import type { AttributeValue, FinishedSpan, Span, Tracer } from '../../protocol/trace/span.ts'
import type { ReturnedRequest, ReturnedSpan } from '../../protocol/wire/control.ts'
import { AgedMap } from '../aged-map.ts'

/** Attempts that may still be told of, over all sessions; the oldest are forgotten first. */
const MAX_GIVEN = 65_536

interface Given {
  readonly session: string
  readonly span: Span
  /** Of a clock that never goes back. */
  readonly atMs: number
}

/** Of whom it believes. */
interface Reporter {
  readonly id: string
  readonly runtime: string
  readonly rttMs: number
}

export class ReturnedSpans {
  /** Spans that went on, and requests that were not the session's to tell of, or are no tree. */
  readonly stats = { taken: 0, refused: 0 }
  readonly #add: NonNullable<Tracer['add']>
  readonly #given = new AgedMap<Given>()

  constructor(add: NonNullable<Tracer['add']>) {
    this.#add = add
  }

  /** The session was given this attempt. */
  give(session: string, span: Span): void {
    if (span.context.sampled)
      this.#given.putWithin(MAX_GIVEN, span.context.spanId, { session, span, atMs: performance.now() })
  }

  take(by: Reporter, requests: readonly ReturnedRequest[]): void {
    for (const { of, spans } of requests) {
      const given = this.#given.get(of)
      if (given?.session !== by.id || !isTree(of, spans)) {
        this.stats.refused++
        continue
      }
      this.#given.delete(of)
      for (const span of spans) this.#add(finished(span, given, by))
      this.stats.taken += spans.length
    }
  }
}

/** Each has an id of its own, and a parent: the attempt, or one that ended later and so stands behind it. */
function isTree(of: string, spans: readonly ReturnedSpan[]): boolean {
  const behind = new Set([of])
  return spans.toReversed().every(({ id, parent }) => {
    const fits = behind.has(parent) && !behind.has(id)
    behind.add(id)
    return fits
  })
}

/** The client's clock is not asked: its part begins half a round trip after the attempt, and has ended by now. */
function finished(span: ReturnedSpan, { span: attempt, atMs }: Given, { id, runtime, rttMs }: Reporter): FinishedSpan {
  const attributes: Record<string, AttributeValue> = {}
  for (const [name, value] of Object.entries(span.attributes ?? {}))
    if (isReturned(name, value)) attributes[name] = value
  const nowMs = attempt.startMs + performance.now() - atMs
  const startMs = Math.min(attempt.startMs + rttMs / 2 + span.at / 1000, nowMs)
  const { traceId, state } = attempt.context
  return {
    ...{ traceId, state, spanId: span.id, parentId: span.parent, name: span.name, kind: span.kind },
    ...{ startMs, endMs: Math.min(startMs + span.took / 1000, nowMs), links: [], failed: span.failed === true },
    attributes: {
      ...attributes,
      ...{ 'sallyport.reported_by': 'client', 'sallyport.session': id, 'sallyport.runtime': runtime },
    },
  }
}
