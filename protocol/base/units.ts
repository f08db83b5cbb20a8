/** Sizes and durations as people write them: `64KiB`, `4MiB`; `500ms`, `90s`, `30m`, `1h`, `90d`. */

const BYTE_UNITS: Record<string, number> = { '': 1, b: 1, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3 }
const DURATION_UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Reads a size in bytes. Throws TypeError. */
export function readBytes(text: string): number {
  const match = /^(\d{1,12}) ?([kmg]ib|b)?$/i.exec(text)
  if (!match) throw new TypeError('expected a size in bytes, or such as 64KiB or 4MiB')
  return Number(match[1]) * BYTE_UNITS[(match[2] ?? '').toLowerCase()]!
}

/** Reads a duration in milliseconds. Throws TypeError. */
export function readDuration(text: string): number {
  const match = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text)
  if (!match) throw new TypeError('expected a duration, such as 90s, 30m or 1h')
  return Number(match[1]) * DURATION_UNITS[match[2]!]!
}
