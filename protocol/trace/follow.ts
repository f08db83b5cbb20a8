/** Joins a request to its trace, or starts one. */
import { newSpanId } from '../base/ids.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../exchange.ts'
import { methodName } from './attributes.ts'
import { readContext, removeContext, writeContext } from './context.ts'
import { isRecorded, type Tracing } from './sampling.ts'
import { TracedExchange } from './traced.ts'

/** Passes a request on to `next`. The trace context of the request is used only if its sender is `trusted`. Otherwise it is removed. */
export function followTrace(
  tracing: Tracing,
  trusted: boolean,
  next: Handler,
  request: HttpRequest,
  response: ResponseSink,
): RequestSink {
  const { headers } = request
  const context = trusted ? readContext(headers) : undefined
  if (isRecorded(tracing, context)) {
    const span = tracing.tracer.start(methodName(request.method), 'server', context)
    writeContext(headers, span.context)
    return new TracedExchange(span, request, response).pass(next, request)
  }
  // It is not recorded here, but the services behind us should see who called them.
  if (context === undefined) removeContext(headers)
  else writeContext(headers, { ...context, spanId: newSpanId(), sampled: false })
  return next(request, response)
}
