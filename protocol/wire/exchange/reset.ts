import { type ErrorCode, SallyportError } from '../../base/errors.ts'
import type { ResetCode } from '../yamux/stream.ts'

/** The code that tells the peer why a stream is reset. */
export function resetCodeOf(error: SallyportError): ResetCode {
  switch (error.reason) {
    case 'cancelled':
      return 'cancelled'
    case 'upstream-timeout':
    case 'request-timeout':
    case 'shutting-down':
      return 'timeout'
    case 'bad-request':
      return 'protocol'
    case 'overloaded':
    case 'body-too-large':
    case 'head-too-large':
    case 'too-many-requests':
    // For a caller whose request may have been executed, when a listener's limit ends it.
    case 'session-lost':
      return 'limit'
    default:
      return 'upstream-broken'
  }
}

const OPENER: Record<ResetCode, ErrorCode> = {
  cancelled: 'upstream-broken',
  refused: 'overloaded',
  'upstream-broken': 'upstream-broken',
  timeout: 'upstream-timeout',
  limit: 'overloaded',
  'session-lost': 'session-lost',
  protocol: 'upstream-broken',
}

/** A reset by the peer, as an error at the end that opened the stream: the response is cut. */
export function errorOfResetResponse(code: ResetCode): SallyportError {
  return new SallyportError(OPENER[code], `the stream was reset: ${code}`)
}

const ANSWERER: Record<ResetCode, ErrorCode> = {
  cancelled: 'cancelled',
  refused: 'cancelled',
  'upstream-broken': 'upstream-broken',
  timeout: 'request-timeout',
  limit: 'overloaded',
  'session-lost': 'session-lost',
  protocol: 'bad-request',
}

/** A reset by the peer, as an error at the end that answers the stream: the caller has gone, or the peer gave its request up. */
export function errorOfResetRequest(code: ResetCode): SallyportError {
  return new SallyportError(ANSWERER[code], `the stream was reset: ${code}`)
}
