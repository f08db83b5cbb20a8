/** What a delivery out of the inbox says of itself. Only a session brings one: there the server has removed what callers made up. */
import type { HttpRequest } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'

const FIELDS: ReadonlySet<string> = new Set([
  'sallyport-inbox-id',
  'sallyport-inbox-attempt',
  'sallyport-inbox-received',
])

/** Whether the field of this request may go on to its upstream. */
export function isInboxField(request: HttpRequest, name: string): boolean {
  return request.session !== undefined && FIELDS.has(name)
}

/** Id of the stored webhook; undefined for any other request. */
export function inboxId(request: HttpRequest): string | undefined {
  return request.session === undefined ? undefined : getHeader(request.headers, 'sallyport-inbox-id')
}

/** When its sender gave it to us, ms since 1970: of a delivery out of the inbox that was earlier. */
export function arrivalMs(request: HttpRequest): number {
  const received = inboxId(request) === undefined ? undefined : getHeader(request.headers, 'sallyport-inbox-received')
  const ms = received === undefined ? Number.NaN : Date.parse(received)
  return Number.isNaN(ms) ? Date.now() : ms
}
