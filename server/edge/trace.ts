/** The layer that joins a request to its trace. */
import type { HttpRequest } from '../../protocol/exchange.ts'
import type { Layer } from '../../protocol/layer.ts'
import { followTrace } from '../../protocol/trace/follow.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'

/** `trusts`: whether the context of a request is believed. Without tracing it is no layer at all, and contexts pass. */
export function trace(tracing: Tracing | undefined, trusts: (request: HttpRequest) => boolean): Layer {
  if (tracing === undefined) return next => next
  return next => (request, response) => {
    // A delivery of the inbox has its own already.
    if (request.span !== undefined) return next(request, response)
    return followTrace(tracing, trusts(request), next, request, response)
  }
}
