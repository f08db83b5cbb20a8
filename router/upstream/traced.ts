/** What is told of a call to an upstream whose trace is recorded. */
import type { SallyportError } from '../../protocol/base/errors.ts'
import type { Handler, ResponseSink } from '../../protocol/exchange.ts'
import { PassThrough } from '../../protocol/layer.ts'
import { methodName, plainPath, setMethod, setServer } from '../../protocol/trace/attributes.ts'
import { writeContext } from '../../protocol/trace/context.ts'
import type { Span } from '../../protocol/trace/span.ts'
import type { UpstreamTarget } from '../target.ts'

/** `call`, as a part of `whole`; the upstream is told so. `path`: as the upstream sees it. */
export function traced(whole: Span, call: Handler, { protocol, authority }: UpstreamTarget, path: string): Handler {
  return (request, response) => {
    const span = whole.child(methodName(request.method), 'client')
    const scheme = protocol === 'h2c' ? 'http' : protocol
    setMethod(span, request.method)
    setServer(span, authority, scheme)
    span.set('url.full', `${scheme}://${authority}${plainPath({ path })}`)
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

  /** Of a client, both kinds of statuses are failures. */
  protected override over(error: SallyportError | undefined, cut: boolean): void {
    const { status } = this
    // Without a head it is the status of our own answer.
    const isTheirs = error === undefined || cut
    if (isTheirs && status !== 0) this.#span.set('http.response.status_code', status)
    this.#span.end(error?.reason ?? (status >= 400 ? String(status) : undefined))
  }
}
