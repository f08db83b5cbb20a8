/** Durations in ms, checked on input. Node treats a time that its timers cannot hold (31 bits) as 1 ms. */

export const MAX_TIMER_MS = 2 ** 31 - 1
/** The latest time that a Date can hold, in seconds since 1970. A token that expires later never does. */
export const MAX_DATE_S = 8_640_000_000_000

/** Returns `ms`. Throws TypeError if it is not a number from `least` to `most`. */
export function checkDuration(name: string, ms: number, least = 0, most = MAX_TIMER_MS): number {
  if (Number.isFinite(ms) && ms >= least && ms <= most) return ms
  throw new TypeError(`${name} must be from ${least} to ${most} ms, not ${ms}`)
}

/** Checks every member of `options` whose name ends in `Ms`. */
export function checkDurations(group: string, options: object = {}): void {
  for (const [name, value] of Object.entries(options)) {
    if (name.endsWith('Ms') && value !== undefined) checkDuration(`${group}.${name}`, value)
  }
}

/**
 * The two largest units of a duration, for people: `3 min 10 s`, `2 d 4 h`; below a second, `151 ms`.
 *
 * @example
 * ```ts
 * import { formatDuration } from 'sallyport/certs'
 *
 * formatDuration(190_000) // '3 min 10 s'
 * ```
 */
export function formatDuration(durationMs: number): string {
  const ms = Math.round(durationMs)
  if (ms > 0 && ms < 1000) return `${ms} ms`
  let rest = Math.max(0, Math.round(ms / 1000))
  const parts: string[] = []
  for (const [unit, seconds] of [
    ['d', 86_400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ] as const) {
    const count = Math.floor(rest / seconds)
    rest -= count * seconds
    if (count > 0) parts.push(`${count} ${unit}`)
    else if (parts.length > 0) break
  }
  return parts.slice(0, 2).join(' ') || '0 s'
}
