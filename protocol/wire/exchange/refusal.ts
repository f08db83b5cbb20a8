import { type ErrorCode, SallyportError } from '../../base/errors.ts'

/** Why a stream was refused, with nothing of it forwarded. SPEC.md has the same numbers. */
export const REFUSALS = {
  /** The preamble or the head cannot be parsed. */
  malformed: 1,
  /** A kind, or an odd preamble entry, that the answerer does not know. */
  unsupported: 2,
  /** The runtime or the epoch is not served here. */
  'not-here': 3,
  /** The instance has already begun to forward this exchange, and its method is not safe. */
  'already-begun': 4,
  /** The stream was opened after the last stream of a drain. */
  draining: 5,
  overloaded: 6,
  /** The attempt is older than the instance's memory of exchanges. */
  'too-late': 7,
  /** Between replicas: the runtime's client does not allow this caller. */
  'caller-not-allowed': 8,
  /** Between replicas: no session has a token that names the host of its own that the caller asked for. */
  'not-its-host': 9,
} as const
/** Why an exchange was refused unprocessed: a key of {@link REFUSALS}. */
export type RefusalCode = keyof typeof REFUSALS

const CODES = new Map<number, RefusalCode>((Object.keys(REFUSALS) as RefusalCode[]).map(code => [REFUSALS[code], code]))

/** Unknown numbers come from a newer peer, and mean only that nothing was forwarded. */
export function refusalOf(value: number): RefusalCode {
  return CODES.get(value) ?? 'not-here'
}

const REASONS: Record<RefusalCode, ErrorCode> = {
  malformed: 'internal',
  unsupported: 'internal',
  'not-here': 'runtime-offline',
  'already-begun': 'session-lost',
  draining: 'runtime-offline',
  overloaded: 'overloaded',
  'too-late': 'session-lost',
  'caller-not-allowed': 'caller-not-allowed',
  'not-its-host': 'runtime-offline',
}

/** The peer refused the exchange and forwarded nothing of it. */
export class RefusedError extends SallyportError {
  readonly refusal: RefusalCode
  readonly unprocessed = true

  constructor(refusal: RefusalCode) {
    super(REASONS[refusal], `the exchange was refused: ${refusal}`)
    this.refusal = refusal
  }
}
