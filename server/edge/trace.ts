/** The layer that joins a request to its trace. */
import type { HttpRequest } from '../../protocol/exchange.ts'
import type { Layer } from '../../protocol/layer.ts'
import { followTrace } from '../../protocol/trace/follow.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'

/** `trusts` tells whether a request's trace context is trusted. Without tracing, the layer adds nothing and contexts pass through. */
export function trace(tracing: Tracing | undefined, trusts: (request: HttpRequest) => boolean): Layer {
  if (tracing === undefined) return next => next
  return next => (request, response) => {
    // A delivery from the inbox has a span already.
    if (request.span !== undefined) return next(request, response)
    return followTrace(tracing, trusts(request), next, request, response)
  }
}
