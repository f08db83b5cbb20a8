/** An exchange whose span is recorded, as seen by the end that receives the request. */
import { isFailure, type SallyportError } from '../base/errors.ts'
import { withoutQuery } from '../base/path.ts'
import type { HttpRequest, ResponseHead, ResponseSink } from '../exchange.ts'
import { getHeader } from '../http/headers.ts'
import { reportedError } from '../http/problem.ts'
import { PassThrough } from '../layer.ts'
import { setMethod, setServer } from './attributes.ts'
import type { Span } from './span.ts'

export class TracedExchange extends PassThrough {
  readonly #span: Span
  readonly #request: HttpRequest
  #code: string | undefined

  constructor(span: Span, request: HttpRequest, response: ResponseSink) {
    super(response)
    this.#span = span
    this.#request = request
    request.span = span
    describe(span, request)
  }

  override responseHead(head: ResponseHead): void {
    if (head.status >= 400) this.#code = reportedError(head.headers)
    super.responseHead(head)
  }

  protected override over(error: SallyportError | undefined, cut: boolean): void {
    const span = this.#span
    const { runtime, notes } = this.#request
    if (runtime !== undefined) span.set('sallyport.runtime', runtime)
    if (notes?.session !== undefined) span.set('sallyport.session', notes.session)
    if (this.status !== 0) span.set('http.response.status_code', this.status)
    if (cut) span.set('sallyport.cut', true)
    span.end(failure(this.status, error?.reason ?? this.#code, cut))
  }
}

/** For a server's span, a caller's mistake is not a failure, and neither is a caller that leaves. */
function failure(status: number, code: string | undefined, cut: boolean): string | undefined {
  if (!cut && status > 0 && status < 500) return undefined
  return code === undefined ? String(status) : isFailure(code) ? code : undefined
}

function describe(span: Span, request: HttpRequest): void {
  const { caller, headers, peerAddress, requestId } = request
  const scheme = caller?.scheme ?? (request.encrypted ? 'https' : 'http')
  setMethod(span, request.method)
  setServer(span, caller?.host ?? request.authority, scheme)
  span.set('url.scheme', scheme)
  span.set('url.path', withoutQuery(request.path))
  span.set('client.address', caller?.address ?? peerAddress)
  const agent = getHeader(headers, 'user-agent')
  if (agent !== undefined) span.set('user_agent.original', agent)
  span.set('sallyport.request_id', requestId)
}
