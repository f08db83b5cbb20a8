/** A page that sends events as they happen, and does not end. */
import type { ServerResponse } from 'node:http'
import { guardWith } from '../protocol/base/guard.ts'
import type { Page } from './page.ts'

/** Starts sending events with `send`. Returns a function that stops it. */
export type EventSource = (send: (name: string, value: unknown) => void) => () => void

/** How much may be buffered for a slow reader. */
const MAX_UNREAD_BYTES = 256 * 1024
const HEARTBEAT_MS = 15_000

export function eventPage(source: EventSource): Page {
  return { status: 200, contentType: 'text/event-stream', text: '', stream: response => follow(response, source) }
}

/** Sends events until the reader leaves or stops reading. */
function follow(response: ServerResponse, source: EventSource): void {
  const guard = guardWith(() => response.destroy())
  const say = (text: string) => {
    if (response.writableLength > MAX_UNREAD_BYTES) response.destroy()
    else response.write(text)
  }
  const stop = source((name, value) => say(`event: ${name}\ndata: ${JSON.stringify(value)}\n\n`))
  const heartbeat = setInterval(
    guard(() => say(':\n\n')),
    HEARTBEAT_MS,
  )
  const left = guard(() => {
    clearInterval(heartbeat)
    stop()
  })
  response.once('close', left)
  say('retry: 2000\n\n')
}
