import { setTimeout as pause } from 'node:timers/promises'
import { UNKNOWN_CA } from '../../client/dial/explain.ts'
import { errorOf } from '../../protocol/base/errors.ts'
import type { Probe } from '../../protocol/base/probe.ts'

export const ATTEMPT_MS = 5000

type About = Pick<Probe, 'code' | 'what' | 'expected'>
/** `ok`, unless it says otherwise. */
type Found = Pick<Probe, 'found'> & Partial<Pick<Probe, 'status' | 'hint'>>

/** What to say when an attempt fails. */
export interface Advice {
  readonly hint: string
  /** What names the authorities that are trusted. */
  readonly ca: string
}

/** What helps, by the code of a failure. */
const REMEDIES: Readonly<Record<string, string>> = {
  ENOTFOUND: 'Correct the host, or create its DNS record.',
  EAI_AGAIN: 'The resolver of this machine fails, or does not answer.',
  ECONNREFUSED: 'Nothing is listening there: start it, or correct the address.',
  ENOSPC: 'The disk is full.',
  TimeoutError: 'It hangs, or a firewall drops the packets.',
  ERR_SSL_WRONG_VERSION_NUMBER: 'It does not speak TLS there.',
}

/** Tries something for at most `ms`. */
export async function attempt(
  about: About,
  { hint, ca }: Advice,
  look: () => Promise<Found>,
  ms: number = ATTEMPT_MS,
): Promise<Probe> {
  try {
    return { ...about, status: 'ok', hint: '', ...(await Promise.race([look(), late(ms)])) }
  } catch (error) {
    const remedy = remedyFor(error, ca)
    return { ...about, status: 'fail', found: reasonOf(error), hint: [remedy, hint].filter(Boolean).join(' ') }
  }
}

async function late(ms: number): Promise<never> {
  await pause(ms, undefined, { ref: false })
  throw new DOMException('late', 'TimeoutError')
}

/** What helps. `ca` names the authorities that are trusted. */
export function remedyFor(error: unknown, ca: string): string | undefined {
  const code = codeOf(error)
  return UNKNOWN_CA.has(code) ? `Trust its authority (${ca}).` : REMEDIES[code]
}

/** At a deadline, `events.once` throws an AbortError. */
function codeOf(error: unknown): string {
  const { name, code } = errorOf(error) as NodeJS.ErrnoException
  if (name === 'AbortError') return 'TimeoutError'
  return typeof code === 'string' ? code : name
}

export function reasonOf(error: unknown): string {
  const code = codeOf(error)
  if (code === 'TimeoutError') return 'no answer in time'
  // What OpenSSL says begins with the number of a thread, and Node adds what is only for programmers.
  if (code.startsWith('ERR_SSL_')) return code
  const { message } = errorOf(error)
  return (UNKNOWN_CA.has(code) ? message.split(';')[0] : message) || code
}
