/**
 * One reading of a path for matching and forwarding (security statement R3).
 *
 * The path is forwarded byte for byte. Matching on it is safe only if the upstream cannot read a different path from the same
 * bytes. So a path is *plain* (the usual case, found in one pass over its characters), or:
 *
 * - it is refused: backslash or `%5c`, NUL, overlong UTF-8, `#`, and segments that decode to `.` or `..`, even with
 *   parameters after a semicolon;
 * - or it has two readings: the strict one splits only at `/`; the loose one also treats `%2f` as a slash, merges slashes,
 *   and drops `;parameters`. Both must lead to the same route, or the request is refused.
 */

/** The strict and the loose reading; undefined for a plain path, which has one. */
export interface PathReadings {
  readonly strict: readonly string[]
  readonly loose: readonly string[]
}

const SLASH = 0x2f
const DOT = 0x2e

/** Index of the query's `?`, or the length. */
export function pathEnd(path: string): number {
  const query = path.indexOf('?')
  return query === -1 ? path.length : query
}

/** Whether the path can be read in only one way: no escape, no `//`, no segment that begins with a dot, no `;`. */
export function isPlainPath(path: string, end: number): boolean {
  if (end === 0 || path.charCodeAt(0) !== SLASH) return false
  let before = 0
  for (let i = 0; i < end; i++) {
    const code = path.charCodeAt(i)
    if (code <= 0x3b || code === 0x5c || code > 0x7e) {
      if (code === SLASH || code === DOT) {
        if (before === SLASH) return false
      } else if (code < 0x26 || code === 0x3b || code === 0x5c || code > 0x7e) {
        if (code !== 0x21 && code !== 0x24) return false
      }
    }
    before = code
  }
  return true
}

const REFUSED = /[\\#\0]|%(?:00|5c)|%c[01]%[89ab]|%e0%[89]|%f0%8/i
const ESCAPE = /%([0-9a-f]{2})/gi

/** Decodes percent escapes once, into latin1. An invalid escape stays as it is. */
export function decodeSegment(segment: string): string {
  if (!segment.includes('%')) return segment
  return segment.replace(ESCAPE, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
}

/** The two readings of a path that is not plain; undefined if it must be refused. */
export function readPath(path: string, end: number): PathReadings | undefined {
  const text = path.slice(0, end)
  if (!text.startsWith('/') || REFUSED.test(text)) return undefined
  const strict = text.slice(1).split('/').map(decodeSegment)
  const loose: string[] = []
  let bare = ''
  for (const segment of text.replace(/%2f/gi, '/').split('/')) {
    bare = decodeSegment(segment).replace(/;.*$/s, '')
    if (bare === '.' || bare === '..') return undefined
    if (bare !== '') loose.push(bare)
  }
  // Slashes are merged but not removed, since a route may end with one.
  if (bare === '' && loose.length > 0) loose.push('')
  return { strict, loose }
}

/** Offset after the first `count` segments of a path that begins with a slash. */
export function segmentOffset(path: string, count: number, end: number): number {
  let offset = 0
  for (let i = 0; i < count; i++) {
    const next = path.indexOf('/', offset + 1)
    if (next === -1 || next > end) return end
    offset = next
  }
  return offset
}
