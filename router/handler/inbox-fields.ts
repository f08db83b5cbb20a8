/** What a delivery out of the inbox says of itself. Only a session brings one: there the server has removed what callers made up. */
import type { HttpRequest } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'

const FIELDS: ReadonlySet<string> = new Set([
  'sallyport-inbox-id',
  'sallyport-inbox-attempt',
  'sallyport-inbox-received',
])

/** Whether the field of this request may go on to its upstream: also the mark of a replay, which no caller can make. */
export function isInboxField(request: HttpRequest, name: string): boolean {
  if (name === 'sallyport-replay') return request.replay !== undefined
  return request.session !== undefined && FIELDS.has(name)
}

/** Id of the stored webhook; undefined for any other request. */
export function inboxId(request: HttpRequest): string | undefined {
  return request.session === undefined ? undefined : getHeader(request.headers, 'sallyport-inbox-id')
}

/** When its sender gave it to us, ms since 1970: of a delivery out of the inbox, and of a replay, that was earlier. */
export function arrivalMs(request: HttpRequest): number {
  if (request.replay !== undefined) return request.replay.receivedMs
  const received = inboxId(request) === undefined ? undefined : getHeader(request.headers, 'sallyport-inbox-received')
  const ms = received === undefined ? Number.NaN : Date.parse(received)
  return Number.isNaN(ms) ? Date.now() : ms
}
