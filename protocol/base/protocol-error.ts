import { type ErrorCode, SallyportError } from './errors.ts'

/**
 * What a peer sent breaks the protocol (SPEC.md). It ends the stream or the session that carried it and nothing else.
 * `message` is for our own log.
 */
export class ProtocolError extends SallyportError {
  constructor(message: string, reason: ErrorCode = 'upstream-broken') {
    super(reason, message)
  }
}
