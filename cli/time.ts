import { parseDurationMs } from '../certs/duration.ts'
import { isoTimeS } from '../protocol/base/iso-time.ts'
import { usageError } from './failure.ts'

/**
 * Reads a time: `now`, seconds since 1970, ISO 8601 (`2026-11-21T08:00Z`), or relative to now (`+90d`, `-1h`). Returns seconds
 * since 1970.
 */
export function readTimeS(flag: string, text: string, nowMs: number = Date.now()): number {
  if (text === 'now') return nowMs / 1000
  if (/^\d{9,11}$/.test(text)) return Number(text)
  const relative = /^([+-])(\d+(?:ms|s|m|h|d))$/.exec(text)
  if (relative !== null) {
    const ms = parseDurationMs(relative[2]!)
    return (nowMs + (relative[1] === '+' ? ms : -ms)) / 1000
  }
  const at = isoTimeS(text)
  if (Number.isNaN(at)) throw usageError(`${flag} ${text}: expected now, 2026-11-21T08:00Z, +90d or -1h`)
  return at
}
