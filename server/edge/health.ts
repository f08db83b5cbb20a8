/** The layer that answers a load balancer, on any host. */
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import type { HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import type { Refuse } from '../../protocol/http/problem.ts'
import type { Layer } from '../../protocol/layer.ts'

/** Answers 200 on `path` while the server is `ready`, else 503. Without a path, passes everything on. */
export function health(path: string | undefined, ready: () => boolean, refuse: Refuse): Layer {
  if (path === undefined) return next => next
  return next => (request, response) => {
    if (request.path !== path) return next(request, response)
    if (request.method === 'GET' || request.method === 'HEAD') return answer(request, response, ready())
    return refuse(request, response, new SallyportError('method-not-allowed'))
  }
}

function answer({ method }: HttpRequest, response: ResponseSink, ready: boolean): RequestSink {
  const [status, text] = ready ? [200, 'ok\n'] : [503, 'not ready\n']
  const headers = ['content-type', 'text/plain', 'content-length', String(text.length), 'cache-control', 'no-store']
  const bodyBytes = method === 'HEAD' ? 0 : text.length
  response.responseHead({ status, headers, bodyBytes })
  if (bodyBytes > 0) response.responseData(new TextEncoder().encode(text))
  response.responseEnd([])
  return discarding(response)
}
