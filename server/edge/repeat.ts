/** Whether an exchange that a session did not answer may be sent again, and to whom (design: sent again or not). */
import type { SallyportError } from '../../protocol/errors.ts'
import { type RefusalCode, RefusedError } from '../../protocol/exchange/refusal.ts'
import { isSafe } from '../../protocol/methods.ts'

/** `instance`: only to the one that was asked before, which remembers what it has begun. */
export type Repeat = 'never' | 'instance' | 'anywhere'

/** Another session would answer alike, or the exchange was begun before. */
const FINAL: ReadonlySet<RefusalCode> = new Set([
  'malformed',
  'unsupported',
  'already-begun',
  'too-late',
  'caller-not-allowed',
])

/** `unsent`: no stream could be opened, so nobody has seen it. */
export function mayRepeat(error: SallyportError, method: string, unsent: boolean): Repeat {
  if (error instanceof RefusedError) return FINAL.has(error.refusal) ? 'never' : 'anywhere'
  if (unsent) return 'anywhere'
  if (error.reason !== 'session-lost') return 'never'
  return isSafe(method) ? 'anywhere' : 'instance'
}
