/** What a method promises. */

const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'QUERY'])

/** RFC 9110 section 9.2.1 (and QUERY): the caller asks for nothing to be changed. TRACE never comes this far. */
export function isSafe(method: string): boolean {
  return method === 'GET' || SAFE.has(method)
}
