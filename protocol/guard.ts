/** A handler never throws; one that does nevertheless costs its own exchange, not the process. */
import { SallyportError, toSallyportError } from './errors.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from './exchange.ts'
import type { Logger } from './log.ts'

export function callHandler(
  handler: Handler,
  request: HttpRequest,
  response: ResponseSink,
  logger: Logger,
): RequestSink {
  try {
    return handler(request, response)
  } catch (error) {
    if (!(error instanceof SallyportError)) {
      logger.error({ error: error instanceof Error ? error.stack : String(error) }, 'a handler threw')
    }
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
