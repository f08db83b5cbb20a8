/** What the page shows from an inspector: exchanges, with their secrets redacted. */
import type { ServerResponse } from 'node:http'
import { jsonPage, type Page } from './page.ts'

interface Body {
  readonly text?: string | undefined
  readonly base64?: string | undefined
}

interface Message {
  readonly body?: Body | undefined
}

/** One exchange, with the kept parts of its bodies. */
interface Inspected {
  readonly request: Message
  readonly response?: Message | undefined
}

/** What the page needs of an inspector. */
export interface InspectedSource {
  /** JSON values, newest last. */
  list(): readonly object[]
  get(id: string): Inspected | undefined
}

/**
 * `ID` is everything except the bodies. `ID/request` and `ID/response` are a body to download. `undefined` if there is no such
 * exchange (any more).
 */
export function inspectedPage(path: string, source: InspectedSource): Page | undefined {
  const [, id, part] = /^([\w-]{1,64})(?:\/(request|response))?$/.exec(path) ?? []
  const found = id === undefined ? undefined : source.get(id)
  if (found === undefined) return undefined
  if (part !== undefined) return download(`${id}-${part}`, found[part as 'request' | 'response']?.body)
  const [request, response] = [withoutBody(found.request), found.response && withoutBody(found.response)]
  return jsonPage({ ...found, request, response })
}

/** `saved` tells that the body can be downloaded. */
function withoutBody(message: Message): object {
  if (message.body === undefined) return message
  const { text, base64, ...body } = message.body
  return { ...message, body: { ...body, saved: text !== undefined || base64 !== undefined } }
}

/** With headers that keep browsers from rendering it, whatever its type. */
function download(name: string, body: Body | undefined): Page | undefined {
  const bytes = body?.base64 === undefined ? body?.text : Buffer.from(body.base64, 'base64')
  if (bytes === undefined) return undefined
  return {
    status: 200,
    contentType: 'application/octet-stream',
    text: '',
    headers: {
      'content-disposition': `attachment; filename="${name}${body?.text === undefined ? '.bin' : '.txt'}"`,
      'content-security-policy': "default-src 'none'; sandbox",
      'cross-origin-resource-policy': 'same-origin',
    },
    stream: (response: ServerResponse) => {
      response.end(bytes)
    },
  }
}
