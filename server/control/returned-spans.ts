/**
 * Spans that clients return. A client does not name a trace. It names the attempt that a span belongs to, which must be one that was
 * given to its own session and has not been reported yet. So a client can neither write into other traces, nor report more than it
 * was sent. Spans of another replica's attempt go back over the hop, under the same rule.
 */
import { isReturned } from '../../protocol/trace/attributes.ts'
import type { AttributeValue, FinishedSpan, Span, Tracer } from '../../protocol/trace/span.ts'
import type { ReturnedRequest, ReturnedSpan } from '../../protocol/wire/control.ts'
import { AgedMap } from '../aged-map.ts'

/** Most attempts that may still be reported, over all sessions. The oldest are forgotten first. */
const MAX_GIVEN = 65_536

interface Attempt {
  readonly span: Span
  /** Monotonic time. */
  readonly atMs: number
}

interface Given {
  /** Id of the session or of the hop that it was given to. */
  readonly carrier: string
  /** The attempt, or how to reach the replica that it belongs to. */
  readonly attempt: Attempt | TellReplica
}

/** Spans that one session reports. */
export interface SpanReport {
  readonly session: string
  readonly runtime: string
  readonly rttMs: number
  readonly requests: readonly ReturnedRequest[]
}

/** Passes a report on to the replica that the attempts belong to. */
export type TellReplica = (report: SpanReport) => void

export class ReturnedSpans {
  /** Spans that were accepted, and requests that were refused because they are not the session's, or their spans form no tree. */
  readonly stats = { taken: 0, refused: 0 }
  readonly #add: NonNullable<Tracer['add']>
  readonly #given = new AgedMap<Given>()

  constructor(add: NonNullable<Tracer['add']>) {
    this.#add = add
  }

  /** Records that a session or a hop was given this attempt. */
  give(carrier: string, span: Span): void {
    if (span.context.sampled) this.#give(carrier, span.context.spanId, { span, atMs: performance.now() })
  }

  /** Records that a session was given an attempt of another replica. */
  giveFor(session: string, of: string, tell: TellReplica): void {
    this.#give(session, of, tell)
  }

  #give(carrier: string, of: string, attempt: Given['attempt']): void {
    this.#given.putWithin(MAX_GIVEN, of, { carrier, attempt })
  }

  /** Accepts a report. `carrier` is the session that sent it, or the hop to that session. */
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

/** Each span must have a unique id, and a parent: the attempt, or a span that ended later and so comes later in the list. */
function isTree(of: string, spans: readonly ReturnedSpan[]): boolean {
  const behind = new Set([of])
  return spans.toReversed().every(({ id, parent }) => {
    const fits = behind.has(parent) && !behind.has(id)
    behind.add(id)
    return fits
  })
}

/** Does not rely on the client's clock: its part begins half a round trip after the attempt, and has ended by now. */
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
