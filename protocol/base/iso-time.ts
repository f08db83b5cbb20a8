/** A time such as `2026-11-21T08:00Z`, or a day, in seconds since 1970. NaN for anything else. */
export function isoTimeS(text: string): number {
  // `Date` takes 30 February for 2 March, and reads `0` and `never 1`.
  const [day] = /^\d{4}-\d{2}-\d{2}(?=T|$)/.exec(text) ?? []
  const isDay = day !== undefined && (new Date(day).toJSON()?.startsWith(day) ?? false)
  return isDay ? Date.parse(text) / 1000 : Number.NaN
}
