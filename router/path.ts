/**
 * The readings of a path, for matching and forwarding (security statement R3).
 *
 * The path is forwarded byte for byte. Matching on it is safe only if the upstream cannot read a different path from the same
 * bytes. So a path is *plain* (the usual case, found in one pass over its characters), or:
 *
 * - it is refused: a wrong escape, backslash or `%5c`, control characters, overlong UTF-8, `#`, and segments that decode to
 *   dots alone in any reading;
 * - or it has readings: the strict one, which splits only at `/`, and one for each order in which a server may split at `%2f`,
 *   drop `;parameters`, merge slashes, take `//host` for a host, and decode twice (`STEPS`). A server may also keep escapes that
 *   need not be, and take nothing for a name. All must lead to the same route, or the request is refused.
 */
import { isUtf8 } from 'node:buffer'

/** Segments of every reading. The strict one is the first. */
type PathReadings = ReadonlyArray<readonly string[]>

const SLASH = 0x2f
const DOT = 0x2e
const OPEN = 0x28

/** Index of the query's `?`, or the length. */
export function pathEnd(path: string): number {
  const query = path.indexOf('?')
  return query === -1 ? path.length : query
}

/** Whether the path can be read in only one way: no escape, no `//`, no segment that begins with a dot or `(`, no `;`. */
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
      } else if (code === OPEN && before === SLASH) return false
    }
    before = code
  }
  return true
}

/** RFC 3986 section 2.1. Jetty takes other signs for digits (`%6=` for `m`) and `%3?` for one escape; IIS reads `%u0061`. */
const WRONG_ESCAPE = /%(?![0-9a-f]{2})/i
/**
 * In a decoded path: segments of dots alone (Mojolicious drops three, CivetWeb more), backslash, control characters and line separators
 * (`$` and `.` in a pattern know only some of them), overlong UTF-8, and wrong escapes that stand for ASCII where they are decoded next.
 */
const REFUSED =
  /%[uU](?:00[0-7]|[fF]{2}|221[56]|2024|2044)|%(?![0-9a-fA-F]{2})[0-?@`a-fA-F]{2}|\/\.+(?:\/|$)|\\|[^ -~\x80-\xff]|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]|\xf8[\x80-\x87]|\xfc[\x80-\x83]/
const ESCAPE = /%([0-9a-f]{2})/gi

/** Decodes percent escapes once, into latin1. An invalid escape stays as it is. */
export function decodeSegment(segment: string): string {
  return segment.includes('%') ? segment.replace(ESCAPE, characterOf) : segment
}

/** Keeps escapes that need not be. */
function decodeNeeded(segment: string): string {
  return segment.replace(NEEDED, characterOf)
}

function characterOf(_escape: string, hex: string): string {
  return String.fromCharCode(Number.parseInt(hex, 16))
}

/** A session of ASP.NET in the path, as `/(S(abc))`, which is dropped whether sessions are used or not. */
const SESSION = /\/(?:\(|%28)(?:[A-Z](?:\(|%28)(?:(?!%2[89])[^()/])*(?:\)|%29))+(?:\)|%29)(?=\/|$)/g

/**
 * What servers do to a path before they split it at its slashes and decode the segments: none, some or all, in any order. Fastify 4
 * drops all behind a `;`. A path that is decoded and passed on like that ends at a `?` or `#`. Slashes at the beginning are merged, or
 * a host follows them: two or more for `new URL(path, base)`, two for others.
 */
const STEPS: ReadonlyArray<(path: string) => string> = [
  path => path.replace(/%2f/gi, '/'),
  path => path.replace(/%3b/gi, ';'),
  path => path.replace(/;[^/]*/g, ''),
  path => path.replace(/\/{2,}/g, '/'),
  path => path.replace(/;.*$/s, ''),
  path => path.replace(/%(?:3f|23).*$/is, ''),
  path => path.replace(/^\/{2,}/, '/'),
  path => path.replace(/^\/\/[^/]*/, ''),
  path => path.replace(/^\/{2,}[^/]*/, ''),
  path => path.replace(SESSION, ''),
]

/** Escapes of what cannot be in a path as it is, in capitals (RFC 3986 section 2.1). */
const NEEDED = /%(2[035Ff]|3F|[89A-F][0-9A-F])/g
const NEEDLESS = new RegExp(`(?!${NEEDED.source})%[0-9a-fA-F]{2}`)

/** What a capture takes and no literal is, since their characters are bytes. */
export const NO_NAME = '\u2205'

/** Most texts that the steps make of a path, and their characters in all. A long path may still have four. So comparing them costs little. */
const MAX_TEXTS = 32
const MAX_CHARS = 16 * 1024
const MIN_TEXTS = 4

/** Every reading of a path that is not plain, the strict one first; none if there are too many; undefined if it must be refused. */
export function readPath(path: string, end: number): PathReadings | undefined {
  const text = path.slice(0, end)
  if (!text.startsWith('/') || text.includes('#') || WRONG_ESCAPE.test(text)) return undefined
  let count = 0
  let chars = 0
  const texts = new Set([text])
  const readings: string[][] = []
  // The set grows while we go through it.
  for (const each of texts) {
    chars += each.length
    if (texts.size > MAX_TEXTS || (chars > MAX_CHARS && count >= MIN_TEXTS)) return []
    count++
    const decoded = decodeSegment(each)
    if (REFUSED.test(decoded)) return undefined
    readings.push(...readSegments(each))
    for (const step of STEPS) texts.add(step(each))
    // Some servers decode twice.
    if (decoded !== each && decoded.search(ESCAPE) >= 0) texts.add(decoded)
    const bytes = Buffer.from(decoded, 'latin1')
    if (isUtf8(bytes)) continue
    // Jetty 9 takes it for Latin-1, with control characters that are in no route. Bottle drops what is no UTF-8.
    texts.add(Buffer.from(decoded.replaceAll(/[\x80-\x9f]/g, '?')).toString('latin1'))
    texts.add(Buffer.from(bytes.toString().replaceAll('\ufffd', '')).toString('latin1'))
  }
  return readings
}

/**
 * Many servers compare segments as they came (Express, Koa, chi, axum), but with the usual escapes. Some take an empty segment for a name
 * (Fastify, chi, axum); whether the last one is such a name, `matchRequest` asks for itself.
 */
function* readSegments(text: string): Generator<string[]> {
  const segments = text.slice(1).split('/')
  const ways = NEEDLESS.test(text) ? [decodeSegment, decodeNeeded] : [decodeSegment]
  const nameless = segments.lastIndexOf('', -2) >= 0
  for (const decode of ways) {
    const read = segments.map(decode)
    yield read
    if (nameless) yield read.map((segment, i) => (segment === '' && i < read.length - 1 ? NO_NAME : segment))
  }
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
