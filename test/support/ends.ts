/** The two ends of an exchange, as a test plays them: each writes down what it is told. */
import type { SallyportError } from '../../protocol/base/errors.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import type { UpstreamRequest } from '../../router/upstream/types.ts'

export const EXCHANGE: HttpRequest = {
  method: 'GET',
  authority: 'demo.example',
  path: '/x?secret=1',
  headers: [],
  bodyBytes: 0,
  upgrade: false,
  peerAddress: '127.0.0.1',
  encrypted: false,
  caller: { address: '192.0.2.7', scheme: 'http', host: 'demo.example' },
  requestId: 'r-1',
  exchangeId: undefined,
}

/** A request to an upstream. */
export const UPSTREAM_REQUEST: UpstreamRequest = {
  method: 'GET',
  authority: 'a',
  path: '/',
  headers: [],
  bodyBytes: 0,
  upgrade: false,
  caller: '192.0.2.1',
  idempotent: false,
}

/** A downstream end that takes no notice of anything, and gives no credit. */
export const DEAF: ResponseSink = {
  responseInformational() {},
  responseHead() {},
  responseData() {},
  responseEnd() {},
  responseAbort() {},
  requestConsumed() {},
}

export interface Ends {
  /** What the end in front was told, and what the end behind was, in order. */
  readonly events: string[]
  readonly front: ResponseSink
  readonly back: RequestSink
  /** What the end behind was given to answer with. */
  response: ResponseSink
  request: HttpRequest | undefined
  readonly next: Handler
}

export function ends(): Ends {
  const events: string[] = []
  const say = (what: string) => void events.push(what)
  const back: RequestSink = {
    requestData: chunk => say(`requestData ${chunk.length}`),
    requestEnd: () => say('requestEnd'),
    requestAbort: (error: SallyportError) => say(`requestAbort ${error.reason}`),
    responseConsumed: bytes => say(`responseConsumed ${bytes}`),
  }
  const front: ResponseSink = {
    responseInformational: status => say(`informational ${status}`),
    responseHead: head => say(`head ${head.status}`),
    responseData: chunk => say(`responseData ${chunk.length}`),
    responseEnd: () => say('responseEnd'),
    responseAbort: (error: SallyportError) => say(`responseAbort ${error.reason}`),
    requestConsumed: bytes => say(`requestConsumed ${bytes}`),
    requestKept: bytes => say(`requestKept ${bytes}`),
    acknowledged: () => say('acknowledged'),
    unwanted: () => say('unwanted'),
  }
  const both: Ends = {
    events,
    front,
    back,
    response: front,
    request: undefined,
    next: (request, response) => {
      both.request = request
      both.response = response
      return back
    },
  }
  return both
}
