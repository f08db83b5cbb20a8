/** Durations in ms, checked where they enter: Node takes what its timers cannot hold (31 bits) for 1 ms. */

export const MAX_TIMER_MS = 2 ** 31 - 1

/** Gives `ms` back; throws TypeError if it is no number from `least` to `most`. */
export function checkDuration(name: string, ms: number, least = 0, most = MAX_TIMER_MS): number {
  if (Number.isFinite(ms) && ms >= least && ms <= most) return ms
  throw new TypeError(`${name} must be from ${least} to ${most} ms, not ${ms}`)
}

/** The same for every member of `options` whose name says that it is a duration. */
export function checkDurations(group: string, options: object = {}): void {
  for (const [name, value] of Object.entries(options)) {
    if (name.endsWith('Ms') && value !== undefined) checkDuration(`${group}.${name}`, value)
  }
}
