/** Which methods there are, and what they guarantee. */

/** Where we answer for ourselves. */
export const ALLOWED_METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'

const METHOD = /^[A-Z0-9_-]+$/

/**
 * RFC 9110 section 9.1 allows any token. A lower-case `delete` would be another method to the rules of a route, and DELETE to services that
 * fold case. As nginx and Node do, we take none.
 */
export function isMethod(text: string): boolean {
  return METHOD.test(text)
}

/** RFC 9110 section 9.3: CONNECT and TRACE are for us. PRI begins HTTP/2 (RFC 9113 section 3.4), and an upstream may take it for that. */
export function staysHere(method: string): boolean {
  return method === 'CONNECT' || method === 'TRACE' || method === 'PRI'
}

const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'QUERY'])

/** RFC 9110 section 9.2.1 (and QUERY): the caller asks for no change. TRACE never gets this far. */
export function isSafe(method: string): boolean {
  return method === 'GET' || SAFE.has(method)
}
