/** Fields of a delivery from the inbox. They are trusted only on a session, where the server has removed forged ones. */
import type { HttpRequest } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'

const FIELDS: ReadonlySet<string> = new Set([
  'sallyport-inbox-id',
  'sallyport-inbox-attempt',
  'sallyport-inbox-received',
])

/** Whether this field of the request is a trusted one that may go on to the upstream. So is the mark of a replay, which no caller can forge. */
export function isInboxField(request: HttpRequest, name: string): boolean {
  if (name === 'sallyport-replay') return request.replay !== undefined
  return request.session !== undefined && FIELDS.has(name)
}

/** Id of the stored webhook; undefined for any other request. */
export function inboxId(request: HttpRequest): string | undefined {
  return request.session === undefined ? undefined : getHeader(request.headers, 'sallyport-inbox-id')
}

/** When the sender sent it to us, in ms since 1970. For a delivery from the inbox or a replay, that was earlier than now. */
export function arrivalMs(request: HttpRequest): number {
  if (request.replay !== undefined) return request.replay.receivedMs
  const received = inboxId(request) === undefined ? undefined : getHeader(request.headers, 'sallyport-inbox-received')
  const ms = received === undefined ? Number.NaN : Date.parse(received)
  return Number.isNaN(ms) ? Date.now() : ms
}
