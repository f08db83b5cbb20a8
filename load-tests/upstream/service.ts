/** The answers of the service behind every setup, which both of its ends must know. */
import { createHmac } from 'node:crypto'

export const PATHS = {
  /** GET: {@link SMALL_BODY}. */
  small: '/small',
  /** GET `/bytes/N`: N bytes of lib/pattern.ts. */
  bytes: '/bytes/',
  /** PUT: bytes from the same source. Answers with their number. */
  sink: '/sink',
  /** POST: {@link HOOK_BODY}, signed. */
  hook: '/hook',
  /** WebSocket. */
  echo: '/echo',
  /** Server-sent events. */
  events: '/events',
} as const

export const SMALL_BODY = 'x'.repeat(1024)

export const HOOK_BODY = JSON.stringify({ action: 'push', commits: 'y'.repeat(10 * 1024 - 34) })

/** Shows a caller that this service is behind the URL. */
export const MARK = ['x-load-test-service', 'sallyport'] as const

/** Not a secret, since both the caller and the service belong to this test. */
export const signature = { header: 'x-hub-signature-256', secret: 'load test' } as const

export const HOOK_HEADERS = {
  'content-type': 'application/json',
  [signature.header]: `sha256=${createHmac('sha256', signature.secret).update(HOOK_BODY).digest('hex')}`,
} as const
