/** Converts the headers and bodies that undici accepts to those of the data path. */
import { Blob } from 'node:buffer'
import { stringify } from 'node:querystring'
import type { Dispatcher } from 'undici'
import { BODY_UNKNOWN, type HeaderList } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'
import type { BodySource } from './body.ts'

export function headOf(options: Dispatcher.DispatchOptions, body: Body | undefined) {
  const isPath = options.path.startsWith('/')
  // Not parsed against the origin, since a path that begins with two slashes would be taken for a host.
  const url = new URL(isPath ? '/' : options.path, options.origin ?? 'https://runtime.invalid')
  const query = stringify(options.query ?? {})
  const headers = flatten(options.headers)
  if (body?.contentType !== undefined && getHeader(headers, 'content-type') === undefined) {
    headers.push('content-type', body.contentType)
  }
  const path = isPath ? options.path : url.pathname + url.search
  if (query !== '' && path.includes('?')) throw new TypeError('the path has a query already')
  const whole = query === '' ? path : `${path}?${query}`
  return { method: options.method, url, path: whole, headers, bodyBytes: body?.bytes ?? 0 }
}

function flatten(headers: Dispatcher.DispatchOptions['headers']): HeaderList {
  const list: HeaderList = []
  const add = (name: string, value: unknown) => {
    if (value === undefined || value === null) return
    for (const one of Array.isArray(value) ? value : [value]) list.push(name.toLowerCase(), String(one).trim())
  }
  if (Array.isArray(headers) && typeof headers[0] === 'string') {
    for (let i = 0; i + 1 < headers.length; i += 2) add(String(headers[i]), headers[i + 1])
  } else if (headers !== null && headers !== undefined) {
    const pairs = Symbol.iterator in headers ? (headers as Iterable<[string, unknown]>) : Object.entries(headers)
    for (const [name, value] of pairs) add(name, value)
  }
  return list
}

interface Body {
  readonly source: BodySource
  readonly bytes: number
  readonly contentType?: string
}

export function bodyOf(body: unknown): Body | undefined {
  if (body === undefined || body === null) return undefined
  if (typeof body === 'string') return bodyOf(Buffer.from(body))
  if (body instanceof ArrayBuffer) return bodyOf(new Uint8Array(body))
  if (ArrayBuffer.isView(body)) {
    const bytes = new Uint8Array(body.buffer, body.byteOffset, body.byteLength)
    return bytes.length === 0 ? undefined : { source: [bytes], bytes: bytes.length }
  }
  if (body instanceof Blob) {
    const source = body.stream() as unknown as BodySource
    return { source, bytes: body.size, ...(body.type === '' ? {} : { contentType: body.type }) }
  }
  if (isForm(body)) {
    const encoded = new Response(platformForm(body))
    const contentType = encoded.headers.get('content-type')!
    return { source: encoded.body as unknown as BodySource, bytes: BODY_UNKNOWN, contentType }
  }
  if (typeof body === 'object' && (Symbol.asyncIterator in body || Symbol.iterator in body)) {
    return { source: body as BodySource, bytes: BODY_UNKNOWN }
  }
  throw new TypeError('the dispatcher does not support this kind of body')
}

/** Either the platform's FormData, or the one that undici exports, which is a different class. */
function isForm(body: unknown): body is FormData {
  return typeof body === 'object' && body !== null && Object.prototype.toString.call(body) === '[object FormData]'
}

function platformForm(body: FormData): FormData {
  if (body instanceof FormData) return body
  const form = new FormData()
  for (const [name, value] of body as FormData) form.append(name, value)
  return form
}
