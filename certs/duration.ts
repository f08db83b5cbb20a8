const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/**
 * Milliseconds of `90s`, `30m`, `1h`, `90d` or `250ms`; throws a `TypeError` for anything else.
 *
 * @example
 * ```ts
 * import { parseDurationMs } from 'sallyport/certs'
 *
 * parseDurationMs('30m') // 1_800_000
 * ```
 */
export function parseDurationMs(text: string): number {
  const match = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text)
  if (!match) throw new TypeError(`${JSON.stringify(text)} is no duration such as 90s, 30m, 1h or 90d`)
  return Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS]
}
