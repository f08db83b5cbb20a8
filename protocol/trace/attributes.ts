/** The HTTP attributes of spans, by OpenTelemetry's conventions. They leave out the query, which may hold secrets. */
import type { AttributeValue, Span } from './span.ts'

const METHODS: ReadonlySet<string> = new Set('CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT QUERY TRACE'.split(' '))

/** The name of a span for a method. Callers can invent any number of methods, so unknown ones share a name. */
export function methodName(method: string): string {
  return METHODS.has(method) ? method : 'HTTP'
}

export function setMethod(span: Span, method: string): void {
  span.set('http.request.method', METHODS.has(method) ? method : '_OTHER')
  if (!METHODS.has(method)) span.set('http.request.method_original', method)
}

/** Host and port of an authority. Without a port, it is the scheme's default port. */
export function setServer(span: Span, authority: string, scheme: string): void {
  const [, host = authority, port] = /^(.*?)(?::([0-9]*))?$/.exec(authority) ?? []
  span.set('server.address', host.startsWith('[') ? host.slice(1, -1) : host)
  span.set('server.port', Number(port) || (scheme === 'https' ? 443 : 80))
}

type Fits = (said: AttributeValue) => boolean
const isText: Fits = said => typeof said === 'string'
const isFlag: Fits = said => typeof said === 'boolean'
const isUpTo =
  (most: number): Fits =>
  said =>
    Number.isInteger(said) && (said as number) >= 0 && (said as number) <= most

const RETURNED: ReadonlyMap<string, Fits> = new Map([
  ['http.request.method', isText],
  ['http.response.status_code', isUpTo(999)],
  ['http.route', isText],
  ['error.type', isText],
  ['url.full', isText],
  ['server.address', isText],
  ['server.port', isUpTo(65_535)],
  ['sallyport.route', isText],
  ['sallyport.cut', isFlag],
])

/**
 * Whether a client may report this attribute in a span that it returns. The edge knows everything else better, such as who called.
 * If a number is not one that OTLP has, a receiver would refuse everything that is sent with it.
 */
export function isReturned(name: string, said: AttributeValue): boolean {
  return RETURNED.get(name)?.(said) ?? false
}
