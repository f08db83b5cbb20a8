/** The layer that joins a request to its trace, or begins one. */
import { newSpanId } from '../../protocol/base/ids.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import type { Layer } from '../../protocol/layer.ts'
import { methodName } from '../../protocol/trace/attributes.ts'
import { readContext, removeContext, writeContext } from '../../protocol/trace/context.ts'
import { isRecorded, type Tracing } from '../../protocol/trace/sampling.ts'
import { TracedExchange } from '../../protocol/trace/traced.ts'

/**
 * Of a request that `trusts` vouches for, the context is believed; any other goes no further. Without tracing it is no layer at
 * all, and contexts pass.
 */
export function trace(tracing: Tracing | undefined, trusts: (request: HttpRequest) => boolean): Layer {
  if (tracing === undefined) return next => next
  return next => (request, response) => {
    const { headers } = request
    const context = trusts(request) ? readContext(headers) : undefined
    if (isRecorded(tracing, context)) {
      const span = tracing.tracer.start(methodName(request.method), 'server', context)
      return new TracedExchange(span, request, response).pass(next, request)
    }
    // It is not recorded here, but those behind are to see who called them.
    if (context === undefined) removeContext(headers)
    else writeContext(headers, { ...context, spanId: newSpanId(), sampled: false })
    return next(request, response)
  }
}
