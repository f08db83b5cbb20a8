/** Exchanges as HAR 1.2 (http://www.softwareishard.com/blog/har-12-spec/), which browsers read. */
import type { InspectedBody, InspectedDetail, InspectedFields } from '../../client/index.ts'
import { packageVersion } from '../../protocol/base/version.ts'

/** -1 means unknown. */
const UNKNOWN = -1

export function harOf(exchanges: readonly InspectedDetail[]): object {
  const creator = { name: 'sallyport', version: packageVersion() }
  return { log: { version: '1.2', creator, pages: [], entries: exchanges.map(entryOf) } }
}

function entryOf(exchange: InspectedDetail): object {
  const { timings, id, code, route, replayOf, messages } = exchange
  const { send = 0, wait = 0, receive = 0, hold = UNKNOWN } = timings
  return {
    startedDateTime: exchange.started,
    time: send + wait + receive + Math.max(0, hold),
    request: requestOf(exchange),
    response: responseOf(exchange),
    cache: {},
    timings: { blocked: hold, dns: UNKNOWN, connect: UNKNOWN, ssl: UNKNOWN, send, wait, receive },
    ...{ _id: id, _code: code, _route: route, _replayOf: replayOf },
    // In the form that Chromium writes.
    ...(messages.length === 0
      ? {}
      : { _webSocketMessages: messages.map(message => webSocketMessage(exchange, message)) }),
    comment: 'secrets are redacted',
  }
}

function webSocketMessage({ started }: InspectedDetail, message: InspectedDetail['messages'][number]): object {
  const { direction, kind, text, base64 = '', at } = message
  return {
    type: direction === 'in' ? 'send' : 'receive',
    time: (Date.parse(started) + at) / 1000,
    opcode: kind === 'binary' ? 2 : kind === 'close' ? 8 : 1,
    data: text ?? base64,
  }
}

function requestOf({ method, scheme, host, path, request, upgrade, bytesIn }: InspectedDetail): object {
  const { headers, body } = request
  return {
    ...common(headers, upgrade ? 0 : bytesIn),
    method,
    url: `${scheme}://${host}${path.startsWith('/') ? path : '/'}`,
    queryString: queryOf(path),
    ...(body === undefined
      ? {}
      : {
          postData: {
            mimeType: fieldOf(headers, 'content-type'),
            params: [],
            text: body.text ?? body.base64 ?? '',
            // The format has no encoding here.
            ...(body.base64 === undefined ? {} : { _encoding: 'base64' }),
            ...commentOf(body),
          },
        }),
  }
}

function responseOf({ response, status, upgrade, code, bytesOut }: InspectedDetail): object {
  const { headers = [], body } = response ?? {}
  return {
    ...common(headers, upgrade ? UNKNOWN : bytesOut),
    status,
    statusText: '',
    redirectURL: fieldOf(headers, 'location'),
    content: {
      // Decoded size, or as transferred if that is not known.
      size: body?.decodedBytes ?? (upgrade ? 0 : bytesOut),
      ...(body?.decodedBytes === undefined ? {} : { compression: body.decodedBytes - body.bytes }),
      mimeType: fieldOf(headers, 'content-type') || 'x-unknown',
      ...(body?.text === undefined ? {} : { text: body.text }),
      ...(body?.base64 === undefined ? {} : { text: body.base64, encoding: 'base64' }),
      ...commentOf(body),
    },
    ...(code === undefined ? {} : { _error: code }),
  }
}

/** Cookies are secrets. They are in the fields, redacted. */
function common(headers: InspectedFields, bodySize: number): object {
  return {
    httpVersion: 'HTTP/1.1',
    cookies: [],
    headers: headers.map(([name, value]) => ({ name, value })),
    headersSize: UNKNOWN,
    bodySize,
  }
}

function commentOf(body: InspectedBody | undefined): object {
  const comment = body?.omitted ?? (body?.truncated === true ? 'only the beginning was kept' : undefined)
  return comment === undefined ? {} : { comment }
}

function fieldOf(headers: InspectedFields, name: string): string {
  return headers.find(([other]) => other === name)?.[1] ?? ''
}

function queryOf(path: string): { name: string; value: string }[] {
  const at = path.indexOf('?')
  return at < 0 ? [] : [...new URLSearchParams(path.slice(at + 1))].map(([name, value]) => ({ name, value }))
}
