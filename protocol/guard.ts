/** A handler never throws; one that does nevertheless costs its own exchange, not the process. */
import { toSallyportError } from './errors.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from './exchange.ts'

export function callHandler(handler: Handler, request: HttpRequest, response: ResponseSink): RequestSink {
  try {
    return handler(request, response)
  } catch (error) {
    response.abort(toSallyportError(error))
    return discarding(response)
  }
}

/** The end of a request that nobody takes. */
export function discarding(response: ResponseSink): RequestSink {
  return {
    data: chunk => response.consumed(chunk.length),
    end: ignore,
    abort: ignore,
    consumed: ignore,
  }
}

function ignore(): void {}
