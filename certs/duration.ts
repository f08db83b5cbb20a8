import { readDuration } from '../protocol/base/units.ts'

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
  try {
    return readDuration(text)
  } catch {
    throw new TypeError(`${JSON.stringify(text)} is not a duration such as 90s, 30m, 1h or 90d`)
  }
}
