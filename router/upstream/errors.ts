/** Maps errors of the operating system and of TLS to rows of the error table, never by message text. */
import { type ErrorCode, SallyportError } from '../../protocol/base/errors.ts'
import type { UpstreamTarget } from '../target.ts'

/** How far a connection had got when it failed. */
export type UpstreamDialPhase = 'name' | 'connect' | 'tls'

const NAME_CODES: ReadonlySet<string> = new Set([
  'ENOTFOUND',
  'EAI_AGAIN',
  'EAI_FAIL',
  'EAI_NODATA',
  'EAI_NONAME',
  'ENODATA',
  'ESERVFAIL',
])
/** Too many files or ports are open on this machine, which is not the upstream's fault. */
const OWN_CODES: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'EADDRNOTAVAIL', 'ENOBUFS'])

export function dialError(error: unknown, phase: UpstreamDialPhase, target: UpstreamTarget): SallyportError {
  if (error instanceof SallyportError) return error
  const code = codeOf(error)
  return new SallyportError(reasonOf(code, phase), `${whatFailed(phase)} ${target.host}:${target.port} (${code})`, {
    cause: error,
  })
}

function reasonOf(code: string, phase: UpstreamDialPhase): ErrorCode {
  if (OWN_CODES.has(code)) return 'overloaded'
  if (code === 'ETIMEDOUT') return 'upstream-timeout'
  if (phase === 'tls') return code === 'ECONNRESET' || code === 'EPIPE' ? 'upstream-broken' : 'upstream-tls'
  if (NAME_CODES.has(code)) return 'upstream-name'
  return 'upstream-refused'
}

function whatFailed(phase: UpstreamDialPhase): string {
  return phase === 'tls' ? 'TLS with' : 'connecting to'
}

function codeOf(error: unknown): string {
  const { code, errors } = error as { code?: unknown; errors?: unknown[] }
  if (typeof code === 'string') return code
  return errors?.[0] === undefined ? 'no code' : codeOf(errors[0])
}
