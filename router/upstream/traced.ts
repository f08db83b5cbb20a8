/** Records a span for a call to an upstream. */
import { isFailure, type SallyportError } from '../../protocol/base/errors.ts'
import { withoutQuery } from '../../protocol/base/path.ts'
import type { Handler, ResponseSink } from '../../protocol/exchange.ts'
import { PassThrough } from '../../protocol/layer.ts'
import { methodName, setMethod, setServer } from '../../protocol/trace/attributes.ts'
import { writeContext } from '../../protocol/trace/context.ts'
import type { Span } from '../../protocol/trace/span.ts'
import type { UpstreamTarget } from '../target.ts'

/** Runs `call` in a child span of `whole`, whose context goes to the upstream. `path` is the one that the upstream sees. */
export function traced(whole: Span, call: Handler, { protocol, authority }: UpstreamTarget, path: string): Handler {
  return (request, response) => {
    const span = whole.child(methodName(request.method), 'client')
    const scheme = protocol === 'h2c' ? 'http' : protocol
    setMethod(span, request.method)
    setServer(span, authority, scheme)
    span.set('url.full', `${scheme}://${authority}${withoutQuery(path)}`)
    writeContext(request.headers, span.context)
    return new TracedCall(span, response).pass(call, request)
  }
}

class TracedCall extends PassThrough {
  readonly #span: Span

  constructor(span: Span, response: ResponseSink) {
    super(response)
    this.#span = span
  }

  /** For a client span, both 4xx and 5xx are failures. A caller that leaves is none. */
  protected override over(error: SallyportError | undefined, cut: boolean): void {
    const { status } = this
    // If no head arrived, this is the status of our own answer.
    const isTheirs = cut || !isFailure(error?.reason)
    if (isTheirs && status !== 0) this.#span.set('http.response.status_code', status)
    const code = error?.reason ?? (status >= 400 ? String(status) : undefined)
    this.#span.end(isFailure(code) ? code : undefined)
  }
}
