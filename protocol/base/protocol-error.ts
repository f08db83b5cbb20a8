import { type ErrorCode, SallyportError } from './errors.ts'

/**
 * A peer violated the protocol (SPEC.md). This ends the stream or session that it happened on, and nothing else. `message` is
 * for our own log.
 */
export class ProtocolError extends SallyportError {
  constructor(message: string, reason: ErrorCode = 'upstream-broken') {
    super(reason, message)
  }
}
