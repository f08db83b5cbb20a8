/**
 * Spans that clients return. A client names none of its traces: it says of which attempt a span is, and that must be one that its own
 * session was given and has not told of yet. So it can neither write into other traces, nor tell of more than it was sent. What is of
 * an attempt of another replica goes back over the hop, where the same holds.
 */
import { isReturned } from '../../protocol/trace/attributes.ts'
import type { AttributeValue, FinishedSpan, Span, Tracer } from '../../protocol/trace/span.ts'
import type { ReturnedRequest, ReturnedSpan } from '../../protocol/wire/control.ts'
import { AgedMap } from '../aged-map.ts'

/** Attempts that may still be told of, over all sessions; the oldest are forgotten first. */
const MAX_GIVEN = 65_536

interface Attempt {
  readonly span: Span
  /** Of a clock that never goes back. */
  readonly atMs: number
}

interface Given {
  /** Id of the session, or of the hop. */
  readonly carrier: string
  /** Where it is another replica's: its way there. */
  readonly attempt: Attempt | TellReplica
}

/** What one session has told. */
export interface SpanReport {
  readonly session: string
  readonly runtime: string
  readonly rttMs: number
  readonly requests: readonly ReturnedRequest[]
}

/** Passes a report on to the replica whose attempts it is about. */
export type TellReplica = (report: SpanReport) => void

export class ReturnedSpans {
  /** Spans that went on, and requests that were not the session's to tell of, or are no tree. */
  readonly stats = { taken: 0, refused: 0 }
  readonly #add: NonNullable<Tracer['add']>
  readonly #given = new AgedMap<Given>()

  constructor(add: NonNullable<Tracer['add']>) {
    this.#add = add
  }

  /** The session, or the hop, was given this attempt. */
  give(carrier: string, span: Span): void {
    if (span.context.sampled) this.#give(carrier, span.context.spanId, { span, atMs: performance.now() })
  }

  /** The session was given the attempt `of` another replica. */
  giveFor(session: string, of: string, tell: TellReplica): void {
    this.#give(session, of, tell)
  }

  #give(carrier: string, of: string, attempt: Given['attempt']): void {
    this.#given.putWithin(MAX_GIVEN, of, { carrier, attempt })
  }

  /** `carrier`: who tells, the session itself or the hop to it. */
  take(carrier: string, report: SpanReport): void {
    const passed = new Map<TellReplica, ReturnedRequest[]>()
    for (const request of report.requests) {
      const { of, spans } = request
      const given = this.#given.get(of)
      if (given?.carrier !== carrier || !isTree(of, spans)) {
        this.stats.refused++
        continue
      }
      this.#given.delete(of)
      const { attempt } = given
      if (typeof attempt === 'function') passed.set(attempt, [...(passed.get(attempt) ?? []), request])
      else this.#take(attempt, spans, report)
    }
    for (const [tell, requests] of passed) tell({ ...report, requests })
  }

  #take(attempt: Attempt, spans: readonly ReturnedSpan[], report: SpanReport): void {
    for (const span of spans) this.#add(finished(span, attempt, report))
    this.stats.taken += spans.length
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
function finished(span: ReturnedSpan, { span: attempt, atMs }: Attempt, report: SpanReport): FinishedSpan {
  const { session, runtime, rttMs } = report
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
      ...{ 'sallyport.reported_by': 'client', 'sallyport.session': session, 'sallyport.runtime': runtime },
    },
  }
}
