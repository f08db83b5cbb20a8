/** Which requests are recorded. */
import { type LimitOptions, type Limits, resolveLimits } from '../base/limit.ts'
import { checkMembers, type Members } from '../base/members.ts'
import type { SpanContext, Tracer } from './span.ts'

export const TRACING = {
  ratio: {
    kind: 'share',
    flag: 'tracing.ratio',
    default: '0',
    least: '0',
    zero: 'none of them',
    about: 'Share of the requests without a trace of their own that are traced.',
  },
} as const satisfies Limits

/** How a server or a client traces its requests. */
export interface TracingOptions extends LimitOptions<typeof TRACING> {
  /** Starts the spans of the requests. */
  readonly tracer: Tracer
  /** If false, `ratio` also applies to traces that others have started. Default true: those are recorded if their parent is sampled. */
  readonly parentBased?: boolean | undefined
}

export interface Tracing {
  readonly tracer: Tracer
  readonly ratio: number
  readonly parentBased: boolean
}

const MEMBERS: Members<TracingOptions, typeof TRACING> = { tracer: 'object', parentBased: 'boolean' }

/** Throws TypeError. */
export function resolveTracing(options: TracingOptions | undefined): Tracing | undefined {
  if (options === undefined) return undefined
  checkMembers('tracing', options, MEMBERS, TRACING)
  const { tracer, parentBased = true, ...limits } = options
  if (typeof tracer?.start !== 'function') throw new TypeError('tracing.tracer is required: see createTracer')
  return { tracer, parentBased, ...resolveLimits(TRACING, limits, 'tracing') }
}

/** `context` is that of a trace that others have started. */
export function isRecorded({ ratio, parentBased }: Tracing, context: SpanContext | undefined): boolean {
  if (context === undefined) return ratio > 0 && Math.random() < ratio
  return parentBased ? context.sampled : isInShare(context.traceId, ratio)
}

/** Decided by the trace id, so that all with the same ratio pick the same traces. */
function isInShare(traceId: string, ratio: number): boolean {
  return Number.parseInt(traceId.slice(-13), 16) < ratio * 2 ** 52
}
