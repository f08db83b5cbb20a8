import { RESET_CODES, type ResetCode } from './stream.ts'

/**
 * Reads the control message `{"type":"reset","stream":2,"code":"limit"}`, which gives the reason of the RST that follows it. An
 * unknown code means `cancelled`. Undefined for any other text.
 */
export function parseReset(text: string): { stream: number; code: ResetCode } | undefined {
  // Most messages are others. Without an escape, the type can be written in one way only.
  if (!text.includes('"reset"') && !text.includes('\\u')) return undefined
  let message: unknown
  try {
    message = JSON.parse(text)
  } catch {
    return undefined
  }
  if (typeof message !== 'object' || message === null) return undefined
  const { type, stream, code } = message as { type?: unknown; stream?: unknown; code?: unknown }
  if (type !== 'reset' || typeof stream !== 'number') return undefined
  const known = RESET_CODES.find(name => name === code)
  return { stream, code: known ?? 'cancelled' }
}
