/** What a method guarantees. */

/** Where we answer for ourselves. */
export const ALLOWED_METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'

const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'QUERY'])

/** RFC 9110 section 9.2.1 (and QUERY): the caller asks for no change. TRACE never gets this far. */
export function isSafe(method: string): boolean {
  return method === 'GET' || SAFE.has(method)
}
