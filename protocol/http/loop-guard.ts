/** The duties of a gateway towards the requests that pass it: some end here, and none may loop. */
import { SallyportError } from '../base/errors.ts'
import { discarding } from '../base/guard.ts'
import type { HeaderList, HttpRequest, ResponseSink } from '../exchange.ts'
import type { Layer } from '../layer.ts'
import { getHeader, listTokens, plainNumber, setHeader } from './headers.ts'
import { ALLOWED_METHODS } from './methods.ts'
import type { Refuse } from './problem.ts'

const LOOP_FIELD = 'cdn-loop'
const OUR_NAME = 'sallyport'
/** A service may call another one through us, and that one may call a third. */
const MOST_PASSES = 10

/**
 * Whether an OPTIONS is for us: for the whole server (`*`, RFC 9112 section 3.2.4), or with `Max-Forwards: 0` (RFC 9110
 * section 7.6.2). Otherwise `Max-Forwards`, if there is one, is reduced by one.
 */
function endsHere(request: HttpRequest): boolean {
  if (request.path === '*') return true
  const left = getHeader(request.headers, 'max-forwards')
  const hops = left === undefined ? -1 : plainNumber(left)
  if (hops > 0) setHeader(request.headers, 'max-forwards', String(hops - 1))
  return hops === 0
}

/** Answers an OPTIONS that ends here. */
function answerOptions(response: ResponseSink, request: HttpRequest): void {
  const headers = ['allow', ALLOWED_METHODS, 'x-request-id', request.requestId]
  response.responseHead({ status: 204, headers, bodyBytes: 0 })
  response.responseEnd([])
}

/** The layer that answers requests that end here, and refuses those that loop. */
export function loopGuard(refuse: Refuse): Layer {
  return next => (request, response) => {
    if (request.method === 'OPTIONS' && endsHere(request)) {
      answerOptions(response, request)
      return discarding(response)
    }
    return passes(request.headers)
      ? next(request, response)
      : refuse(request, response, new SallyportError('loop-detected'))
  }
}

/**
 * Records in the fields that the request has passed one of our gateways (`CDN-Loop`, RFC 8586). Returns false if it has passed too
 * many. We do not use `Via`, since some servers compress nothing for requests that have it.
 */
function passes(headers: HeaderList): boolean {
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] === LOOP_FIELD) return passesAgain(headers)
  }
  headers.push(LOOP_FIELD, OUR_NAME)
  return true
}

function passesAgain(headers: HeaderList): boolean {
  let passed = 0
  let last = 0
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] !== LOOP_FIELD) continue
    last = i + 1
    for (const token of listTokens(headers[last]!)) if (token === OUR_NAME) passed++
  }
  if (passed >= MOST_PASSES) return false
  headers[last] += `, ${OUR_NAME}`
  return true
}
