/** Which requests are recorded. */
import { type LimitOptions, type Limits, resolveLimits } from '../base/limit.ts'
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

/** How a server, or a client, tells of its requests. */
export interface TracingOptions extends LimitOptions<typeof TRACING> {
  /** Begins their spans. */
  readonly tracer: Tracer
  /** False: `ratio` holds for traces that others have begun, too. Default true: those are recorded that they record. */
  readonly parentBased?: boolean | undefined
}

export interface Tracing {
  readonly tracer: Tracer
  readonly ratio: number
  readonly parentBased: boolean
}

/** Throws TypeError. */
export function resolveTracing(options: TracingOptions | undefined): Tracing | undefined {
  if (options === undefined) return undefined
  const { tracer, parentBased = true, ...limits } = options
  if (typeof tracer?.start !== 'function') throw new TypeError('tracing.tracer is required: see createTracer')
  return { tracer, parentBased, ...resolveLimits(TRACING, limits, 'tracing') }
}

/** `context`: that of a trace that others have begun. */
export function isRecorded({ ratio, parentBased }: Tracing, context: SpanContext | undefined): boolean {
  if (context === undefined) return ratio > 0 && Math.random() < ratio
  return parentBased ? context.sampled : isInShare(context.traceId, ratio)
}

/** By the id, so that all who take the same share take the same traces. */
function isInShare(traceId: string, ratio: number): boolean {
  return Number.parseInt(traceId.slice(-13), 16) < ratio * 2 ** 52
}
