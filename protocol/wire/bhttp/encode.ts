/**
 * Binary HTTP messages (RFC 9292), indeterminate-length form, as latin1 strings: one character per byte. The writer of the
 * stream turns them into bytes in a single call.
 */

import { memoizeLast } from '../../base/memoize-last.ts'
import type { HeaderList } from '../../exchange.ts'
import { HeadCache } from '../../http/head-cache.ts'
import { varintText } from '../varint.ts'
import { checkFields, fieldsText } from './fields.ts'

/** Framing indicators (RFC 9292 section 3.3). */
export const FRAMING_INDICATOR = { request: 2, response: 3 } as const

/** Ends a field section or the content. */
const TERMINATOR = '\0'

const REQUEST = varintText(FRAMING_INDICATOR.request)
const SCHEMES = { http: '\x04http', https: '\x05https' } as const

/** Framing indicator, control data and fields of a request. */
export function requestHeadText(
  method: string,
  scheme: 'http' | 'https',
  authority: string,
  path: string,
  headers: HeaderList,
): string {
  const start = requestStart(method, scheme, authority)
  return start + varintText(path.length) + path + fieldsText(headers) + TERMINATOR
}

/** Everything before the path. */
const requestStart = memoizeLast(
  (method: string, scheme: 'http' | 'https', authority: string) =>
    REQUEST + varintText(method.length) + method + SCHEMES[scheme] + varintText(authority.length) + authority,
)

/** Begins a response, once, before its first {@link responseHeadText}. */
export const RESPONSE_START = varintText(FRAMING_INDICATOR.response)

const heads = new HeadCache()

/** Status and fields of a response, informational or final. Throws as {@link checkFields}; what is cached was checked. */
export function responseHeadText(status: number, headers: HeaderList): string {
  const seen = heads.find(headers, status)
  if (seen !== undefined) return seen
  checkFields(headers)
  return heads.keep(varintText(status) + fieldsText(headers) + TERMINATOR, headers, status)
}

/** End of the content, the trailers and their end. */
export function messageEndText(trailers: HeaderList): string {
  return trailers.length === 0 ? '\0\0' : TERMINATOR + fieldsText(trailers) + TERMINATOR
}
