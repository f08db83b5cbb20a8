/** Records of exchanges at the edge. */
import type { SallyportError } from '../../protocol/base/errors.ts'
import type { ExchangeRecord, HttpRequest } from '../../protocol/exchange.ts'

type Outcome = Pick<ExchangeRecord, 'status' | 'code' | 'cut' | 'durationMs' | 'bytesIn' | 'bytesOut'>

/** The record of an exchange that is over. The query is left out: it may hold secrets. */
export function recordOf(
  request: HttpRequest,
  runtime: string | undefined,
  session: string | undefined,
  outcome: Outcome,
): ExchangeRecord {
  const query = request.path.indexOf('?')
  return {
    requestId: request.requestId,
    runtime,
    route: undefined,
    session,
    method: request.method,
    host: request.authority,
    path: query < 0 ? request.path : request.path.slice(0, query),
    caller: request.caller?.address ?? request.peerAddress,
    status: outcome.status,
    code: outcome.code,
    cut: outcome.cut,
    durationMs: outcome.durationMs,
    bytesIn: outcome.bytesIn,
    bytesOut: outcome.bytesOut,
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
