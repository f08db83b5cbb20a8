/** What the page shows of an inspector: exchanges that hold no secrets any more. */
import type { ServerResponse } from 'node:http'
import type { Page } from './page.ts'

interface Body {
  readonly text?: string | undefined
  readonly base64?: string | undefined
}

interface Message {
  readonly body?: Body | undefined
}

/** One exchange, and what was kept of its bodies. */
interface Inspected {
  readonly request: Message
  readonly response?: Message | undefined
}

/** What the page needs of an inspector. */
export interface InspectedSource {
  /** The newest last: JSON values. */
  list(): readonly object[]
  get(id: string): Inspected | undefined
}

/** `ID`: all but the bodies; `ID/request`, `ID/response`: a body, to be saved. Undefined if it is not there, or no more. */
export function inspectedPage(path: string, source: InspectedSource): Page | undefined {
  const [, id, part] = /^([\w-]{1,64})(?:\/(request|response))?$/.exec(path) ?? []
  const found = id === undefined ? undefined : source.get(id)
  if (found === undefined) return undefined
  if (part !== undefined) return download(`${id}-${part}`, found[part as 'request' | 'response']?.body)
  const shown = {
    ...found,
    request: withoutBody(found.request),
    response: found.response && withoutBody(found.response),
  }
  return { status: 200, contentType: 'application/json', text: JSON.stringify(shown) }
}

/** `saved`: it can be downloaded. */
function withoutBody(message: Message): object {
  if (message.body === undefined) return message
  const { text, base64, ...body } = message.body
  return { ...message, body: { ...body, saved: text !== undefined || base64 !== undefined } }
}

/** No browser renders it, whatever type it claims to be. */
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
