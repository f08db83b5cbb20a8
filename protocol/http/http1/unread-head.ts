/** Stands in for a head that could not be read. */
import type { Buffer } from 'node:buffer'
import { unreadRequest } from '../unread-request.ts'
import type { RequestHead } from './request-head.ts'

/** As much as a head may have, and then some. */
const MOST_BYTES = 32 * 1024
const TARGET = /^(?:\r\n)?([^\s]*) ?([^\s]*)/

/** Read leniently, since nothing is forwarded on its word, and an origin counts only where a policy names it. */
export function unreadHead(bytes: Buffer | undefined): RequestHead {
  const text = bytes?.toString('latin1', 0, MOST_BYTES) ?? ''
  const [, method, path] = TARGET.exec(text) ?? []
  return {
    request: unreadRequest({ method, path, authority: field(text, 'host'), origin: field(text, 'origin') }, 0),
    http10: false,
    keepAlive: false,
    expectsContinue: false,
    webSocketKey: undefined,
  }
}

/** A field whose line is whole. */
function field(text: string, name: string): string | undefined {
  return new RegExp(`\\r\\n${name}:[ \\t]*([^\\s]+)[ \\t]*\\r\\n`, 'i').exec(text)?.[1]
}
