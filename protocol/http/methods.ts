/** Which methods there are, and what they guarantee. */
import type { HeaderList } from '../exchange.ts'
import { dashed, hasWhere } from './headers.ts'

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

/** By these, callers name the method that a service runs, some services (WordPress) also in a GET. */
const METHOD_NAMES: ReadonlySet<string> = new Set(['x-http-method', 'x-http-method-override', 'x-method-override'])
const METHOD_QUERY = /[?&]_method=/

/** Whether a request asks for no change, so that it may be sent again. Looks at all fields, so it is for rare cases. */
export function isRepeatable(request: { method: string; path: string; headers: HeaderList }): boolean {
  const { method, path, headers } = request
  return isSafe(method) && !METHOD_QUERY.test(path) && !hasWhere(headers, name => METHOD_NAMES.has(dashed(name)))
}
