/** Stands in for a head that could not be parsed. */
import type { Buffer } from 'node:buffer'
import { unreadRequest } from '../unread-request.ts'
import type { RequestHead } from './request-head.ts'

/** A little more than a head may have. */
const MOST_BYTES = 32 * 1024
const TARGET = /^(?:\r\n)?([^\s]*) ?([^\s]*)/

/** Parses leniently. Nothing is forwarded based on the result, and an origin counts only if a policy names it. */
export function unreadHead(bytes: Buffer | undefined, peerAddress: string): RequestHead {
  const text = bytes?.toString('latin1', 0, MOST_BYTES) ?? ''
  const [, method, path] = TARGET.exec(text) ?? []
  const read = { method, path, authority: field(text, 'host'), origin: field(text, 'origin'), peerAddress }
  return {
    request: unreadRequest(read, 0),
    http10: false,
    keepAlive: false,
    expectsContinue: false,
    webSocketKey: undefined,
  }
}

/** A field whose line is complete. */
function field(text: string, name: string): string | undefined {
  return new RegExp(`\\r\\n${name}:[ \\t]*([!-~]+)[ \\t]*\\r\\n`, 'i').exec(text)?.[1]
}
