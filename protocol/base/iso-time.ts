const TIME = /^(\d{4}-\d{2}-\d{2})(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2}))?$/i

/**
 * A time such as `2026-11-21T08:00Z`, or a day, in seconds since 1970. NaN for anything else, such as a time without a zone, which is
 * another moment on each machine.
 */
export function isoTimeS(text: string): number {
  const day = TIME.exec(text)?.[1]
  // `Date` takes 30 February for 2 March.
  const isDay = day !== undefined && (new Date(day).toJSON()?.startsWith(day) ?? false)
  return isDay ? Date.parse(text.toUpperCase()) / 1000 : Number.NaN
}
