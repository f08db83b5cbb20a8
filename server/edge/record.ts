/** What the record of an exchange says of its request. */
import type { SallyportError } from '../../protocol/errors.ts'
import type { ExchangeRecord, HttpRequest } from '../../protocol/exchange.ts'

type AboutRequest = Pick<
  ExchangeRecord,
  'requestId' | 'runtime' | 'route' | 'method' | 'host' | 'path' | 'caller' | 'upgrade'
>

/** The query is left out: it may hold secrets. */
export function aboutRequest(request: HttpRequest, runtime: string | undefined): AboutRequest {
  const query = request.path.indexOf('?')
  return {
    requestId: request.requestId,
    runtime,
    route: undefined,
    method: request.method,
    host: request.authority,
    path: query < 0 ? request.path : request.path.slice(0, query),
    caller: request.caller?.address ?? request.peerAddress,
    upgrade: request.upgrade,
  }
}

/** The record of a request whose head could not be read. */
export function recordOfBadRequest(error: SallyportError, caller: string): ExchangeRecord {
  return {
    requestId: '',
    runtime: undefined,
    route: undefined,
    session: undefined,
    method: '',
    host: '',
    path: '',
    caller,
    status: error.status,
    code: error.reason,
    cut: false,
    durationMs: 0,
    bytesIn: 0,
    bytesOut: 0,
    upgrade: false,
  }
}
