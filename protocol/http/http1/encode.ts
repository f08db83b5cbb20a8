/** Heads and framing as text. Every field is checked once more, so that no source of headers can split a message. */
import type { HeaderList, ResponseHead } from '../../exchange.ts'
import { FIELD_KIND, kindAt, lineStartAt, slotNamed } from '../field-names.ts'
import { HeadCache } from '../head-cache.ts'
import { isFieldValue, isToken, plainNumber, unsendable } from '../headers.ts'

const REASONS: Readonly<Record<number, string>> = {
  100: 'Continue',
  101: 'Switching Protocols',
  102: 'Processing',
  103: 'Early Hints',
  200: 'OK',
  201: 'Created',
  202: 'Accepted',
  203: 'Non-Authoritative Information',
  204: 'No Content',
  205: 'Reset Content',
  206: 'Partial Content',
  207: 'Multi-Status',
  300: 'Multiple Choices',
  301: 'Moved Permanently',
  302: 'Found',
  303: 'See Other',
  304: 'Not Modified',
  307: 'Temporary Redirect',
  308: 'Permanent Redirect',
  400: 'Bad Request',
  401: 'Unauthorized',
  402: 'Payment Required',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  406: 'Not Acceptable',
  407: 'Proxy Authentication Required',
  408: 'Request Timeout',
  409: 'Conflict',
  410: 'Gone',
  411: 'Length Required',
  412: 'Precondition Failed',
  413: 'Content Too Large',
  414: 'URI Too Long',
  415: 'Unsupported Media Type',
  416: 'Range Not Satisfiable',
  417: 'Expectation Failed',
  418: "I'm a teapot",
  421: 'Misdirected Request',
  422: 'Unprocessable Content',
  423: 'Locked',
  424: 'Failed Dependency',
  425: 'Too Early',
  426: 'Upgrade Required',
  428: 'Precondition Required',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  451: 'Unavailable For Legal Reasons',
  499: 'Client Closed Request',
  500: 'Internal Server Error',
  501: 'Not Implemented',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
  505: 'HTTP Version Not Supported',
  507: 'Insufficient Storage',
  508: 'Loop Detected',
}

const STATUS_LINES = Array.from({ length: 600 }, (_, status) => `HTTP/1.1 ${status} ${REASONS[status] ?? ''}`)

/** Without the line end. `status` is from 100 to 599. */
export function statusLine(status: number): string {
  return STATUS_LINES[status]!
}

/** How the length of the body is conveyed. */
export const FRAMING = {
  /** No body; `content-length` as in the headers (HEAD, 304). */
  none: 0,
  /** No body and no `content-length` (1xx, 204, 101). */
  forbidden: 1,
  length: 2,
  chunked: 3,
  /** Until the connection closes. */
  close: 4,
} as const

/**
 * Field lines for `headers`. Framing fields come from the arguments and not from `headers`. Each line begins with the line end
 * of the previous one. Throws SallyportError if a name or value is not allowed in a head.
 */
export function fieldLines(headers: HeaderList, framing: number, bodyBytes: number): string {
  let text = ''
  let lengthSaid = framing !== FRAMING.length
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    const value = headers[i + 1]!
    const slot = slotNamed(name)
    const kind = slot < 0 ? FIELD_KIND.plain : kindAt(slot)
    if (kind === FIELD_KIND.plain || kind === FIELD_KIND.expect) {
      if (!isFieldValue(value) || (slot < 0 && !isToken(name))) throw unsendable(name)
      text += slot < 0 ? `\r\n${name}: ` : lineStartAt(slot)
      text += value
    } else if (kind === FIELD_KIND.contentLength) {
      if (framing === FRAMING.none && plainNumber(value) !== -1) text += `\r\ncontent-length: ${value}`
      if (lengthSaid) continue
      text += `\r\ncontent-length: ${bodyBytes}`
      lengthSaid = true
    }
  }
  if (!lengthSaid) text += `\r\ncontent-length: ${bodyBytes}`
  else if (framing === FRAMING.chunked) text += '\r\ntransfer-encoding: chunked'
  return text
}

/** What a response says about its connection. */
export const CONNECTION = { unsaid: 0, keepAlive: 1, close: 2 } as const

const CONNECTION_LINES = ['', '\r\nconnection: keep-alive', '\r\nconnection: close']
const heads = new HeadCache()

/** The head of a final response. `date` is the date line to add, or '' for none. Throws like {@link fieldLines}. */
export function responseHead(response: ResponseHead, framing: number, connection: number, date: string): string {
  const { status, headers, bodyBytes } = response
  // One number for all three: framings are below 8, connections below 4.
  const about = (status * 8 + framing) * 4 + connection
  const seen = heads.find(headers, about, bodyBytes, date)
  if (seen !== undefined) return seen
  const fields = fieldLines(headers, framing, bodyBytes)
  const dateLine = date === '' ? '' : `\r\ndate: ${date}`
  const text = `${statusLine(status)}${fields}${dateLine}${CONNECTION_LINES[connection]}\r\n\r\n`
  return heads.keep(text, headers, about, bodyBytes, date)
}

/** The end of a chunked body, with trailers that have been stripped. */
export function lastChunk(trailers: HeaderList): string {
  if (trailers.length === 0) return '0\r\n\r\n'
  return `0${fieldLines(trailers, FRAMING.forbidden, 0)}\r\n\r\n`
}

/** The `Date` line for the current second, one for all connections of a listener. */
export class DateClock {
  #second = -1
  #text = ''

  now(): string {
    const now = Date.now()
    const second = Math.floor(now / 1000)
    if (second !== this.#second) {
      this.#second = second
      this.#text = new Date(now).toUTCString()
    }
    return this.#text
  }
}
