/** Joins a request to its trace, or begins one. */
import { newSpanId } from '../base/ids.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../exchange.ts'
import { methodName } from './attributes.ts'
import { readContext, removeContext, writeContext } from './context.ts'
import { isRecorded, type Tracing } from './sampling.ts'
import { TracedExchange } from './traced.ts'

/** Hands a request on to `next`. Only where it is `believed` may it say what trace it is of; any other context goes no further. */
export function followTrace(
  tracing: Tracing,
  believed: boolean,
  next: Handler,
  request: HttpRequest,
  response: ResponseSink,
): RequestSink {
  const { headers } = request
  const context = believed ? readContext(headers) : undefined
  if (isRecorded(tracing, context)) {
    const span = tracing.tracer.start(methodName(request.method), 'server', context)
    writeContext(headers, span.context)
    return new TracedExchange(span, request, response).pass(next, request)
  }
  // It is not recorded here, but those behind are to see who called them.
  if (context === undefined) removeContext(headers)
  else writeContext(headers, { ...context, spanId: newSpanId(), sampled: false })
  return next(request, response)
}
