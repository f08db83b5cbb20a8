/** Rules for flat header lists (see {@link HeaderList}): look-up, change, grammar, and which fields stay on one hop. */
import { SallyportError } from '../base/errors.ts'
import type { HeaderList } from '../exchange.ts'
import { FIELD_KIND, kindOf, SIGNS } from './field-names.ts'
import { VALUE } from './http1/bytes.ts'

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
const BAD_VALUE = /[^\t\x20-\x7e\x80-\xff]/
/** Shorter values are checked in a loop, which costs less than calling the regular expression. */
const SHORT_CHARS = 64
const BAD_PATH = /[^\x21-\x22\x24-\x7e]/
/** A port is at most 65535. `URL` takes no other, so what is behind us might fail. */
const PORT = '[0-5]?[0-9]{0,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]'
/** A host whose last label begins with a digit is captured, as one in brackets is: it may be an address. */
const HOST = '(?:[\\w-]+\\.)*[A-Za-z_-][\\w-]*\\.?|([\\w-]+(?:\\.[\\w-]+)*\\.?|\\[[0-9A-Fa-f:.]{2,45}\\])'
const AUTHORITY = new RegExp(`^(?:${HOST})(?::(?:${PORT}))?$`)

/** Fields that belong to one hop, whether or not `Connection` names them (RFC 9110 section 7.6.1). */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
])

/**
 * Fields of framing, routing, authentication and content. They mean nothing in a trailer section, or do harm if it is merged into
 * the head (RFC 9110 section 6.5.1). As {@link dashed}, since a CGI-like upstream may do that.
 */
const NEVER_TRAILERS: ReadonlySet<string> = new Set([
  'content-length',
  'content-type',
  'content-encoding',
  'content-range',
  'host',
  'trailer',
  'expect',
  'authorization',
  'cookie',
  'set-cookie',
  'x-request-id',
])

export function isHopByHop(name: string): boolean {
  return HOP_BY_HOP.has(name) || kindOf(name) === FIELD_KIND.twin
}

/** RFC 9110 section 5.6.2: a method or a field name. */
export function isToken(text: string): boolean {
  return TOKEN.test(text)
}

/** RFC 9110 section 5.5: visible bytes, space, tab, and obs-text; no control bytes. */
export function isFieldValue(text: string): boolean {
  if (text.length > SHORT_CHARS) return !BAD_VALUE.test(text)
  for (let i = 0; i < text.length; i++) if (VALUE[text.charCodeAt(i)] !== 1) return false
  return true
}

/** Origin form: begins with a slash, visible ASCII without `#`. */
export function isPath(text: string): boolean {
  return text.charCodeAt(0) === 0x2f && !BAD_PATH.test(text)
}

/** The number of 1 to 15 digits; -1 for anything else. */
export function plainNumber(text: string): number {
  if (text.length === 0 || text.length > 15) return -1
  let number = 0
  for (let i = 0; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 0x30
    if (digit < 0 || digit > 9) return -1
    number = number * 10 + digit
  }
  return number
}

/**
 * Host with an optional port, no user info; at most 255 characters. A name has letters, digits, `-` and `_` between single dots. What else
 * RFC 3986 section 3.2.2 allows is not read alike by all software: in `X-Forwarded-Host` and `Forwarded`, a comma would begin another host.
 * Nor are addresses: `URL` reads `10.7` as `10.0.0.7`. So they are spelled as `URL` spells them, in either case.
 */
export function isAuthority(text: string): boolean {
  const match = text.length <= 255 ? AUTHORITY.exec(text) : null
  return match !== null && (match[1] === undefined || isAsRead(match[1]))
}

function isAsRead(host: string): boolean {
  return URL.parse(`http://${host}`)?.hostname === host.toLowerCase()
}

/** Removes an empty port, which means the default one (RFC 3986 section 3.2.3). Not all software reads `name:` that way. */
export function withoutEmptyPort(authority: string): string {
  const last = authority.length - 1
  return authority.charCodeAt(last) === 0x3a ? authority.slice(0, last) : authority
}

/** Wraps `test` to remember the last text that passed, since most requests of a connection or session repeat it. */
export function remembering(test: (text: string) => boolean): (text: string) => boolean {
  let passed: string | undefined
  return text => {
    if (text === passed) return true
    if (!test(text)) return false
    passed = text
    return true
  }
}

/** First value of the field, or undefined. `name` is lower case. */
export function getHeader(headers: HeaderList, name: string): string | undefined {
  for (let i = 0; i < headers.length; i += 2) if (headers[i] === name) return headers[i + 1]
  return undefined
}

/** All values of the field in order. */
export function getAllHeaders(headers: HeaderList, name: string): string[] {
  const values: string[] = []
  for (let i = 0; i < headers.length; i += 2) if (headers[i] === name) values.push(headers[i + 1]!)
  return values
}

export function hasHeader(headers: HeaderList, name: string): boolean {
  for (let i = 0; i < headers.length; i += 2) if (headers[i] === name) return true
  return false
}

/** Whether there is a field with such a name. */
export function hasWhere(headers: HeaderList, test: (name: string) => boolean): boolean {
  for (let i = 0; i < headers.length; i += 2) if (test(headers[i]!)) return true
  return false
}

/** Removes, in place, every field for which `remove` returns true. */
export function removeWhere(headers: HeaderList, remove: (name: string) => boolean): void {
  let kept = 0
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    if (remove(name)) continue
    if (kept !== i) {
      headers[kept] = name
      headers[kept + 1] = headers[i + 1]!
    }
    kept += 2
  }
  headers.length = kept
}

export function removeHeader(headers: HeaderList, name: string): void {
  if (hasHeader(headers, name)) removeWhere(headers, other => other === name)
}

/** Replaces the first occurrence of the field, or appends it. */
export function setHeader(headers: HeaderList, name: string, value: string): void {
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] !== name) continue
    const tail = headers.splice(i + 2)
    headers[i + 1] = value
    removeHeader(tail, name)
    for (const text of tail) headers.push(text)
    return
  }
  headers.push(name, value)
}

/** Members of a comma-separated list, in lower case, without empty ones. */
export function listTokens(value: string): string[] {
  const tokens: string[] = []
  for (const part of value.split(',')) {
    const token = part.trim().toLowerCase()
    if (token !== '') tokens.push(token)
  }
  return tokens
}

/**
 * Removes, in place, hop-by-hop fields and those that `Connection` names. For header lists that do not come from our own parsers.
 * `content-length` stays even if it is named, since it is part of the framing. `te: trailers` stays if `keepTe` is true.
 */
export function stripHopByHop(headers: HeaderList, keepTe = false): void {
  const named = namedByConnection(getAllHeaders(headers, 'connection'))
  removeWhere(headers, name => name !== 'te' && (isHopByHop(name) || (named?.has(name) ?? false)))
  const te = getHeader(headers, 'te')
  if (te === undefined) return
  if (keepTe && te.trim().toLowerCase() === 'trailers') setHeader(headers, 'te', 'trailers')
  else removeHeader(headers, 'te')
}

/** The length of all names and values, which are latin1. */
export function textBytes(fields: readonly string[]): number {
  let bytes = 0
  for (const text of fields) bytes += text.length
  return bytes
}

/** What `Connection` may name without effect on other fields. A sender of `te` has to name it, and it is handled by itself. */
const UNNAMED: ReadonlySet<string> = new Set(['close', 'keep-alive', 'upgrade', 'content-length', 'te'])

/** Names in `Connection` values, without those that must stay. */
export function namedByConnection(values: readonly string[]): Set<string> | undefined {
  let named: Set<string> | undefined
  for (const value of values) {
    for (const token of listTokens(value)) {
      if (UNNAMED.has(token)) continue
      named ??= new Set()
      named.add(token)
    }
  }
  return named
}

/** Removes from a request's trailers, in place, fields that may not be in them, including those of {@link removeClaims}. */
export function stripRequestTrailers(trailers: HeaderList): HeaderList {
  if (trailers.length > 0) removeWhere(trailers, isNoRequestTrailer)
  return trailers
}

/** The same for a response, where other software's names, such as `client-ip`, are a service's own. */
export function stripResponseTrailers(trailers: HeaderList): HeaderList {
  if (trailers.length > 0) removeWhere(trailers, isNoTrailer)
  return trailers
}

function isNoRequestTrailer(name: string): boolean {
  return isNoTrailer(name) || isClaim(name) || isMountName(name) || isPathName(name)
}

function isNoTrailer(name: string): boolean {
  return isHopByHop(name) || NEVER_TRAILERS.has(dashed(name)) || isForwardedName(name)
}

const ODD = /[^a-z0-9-]/
const ODDS = /[^a-z0-9]/g

/** The name in lower case as CGI-like upstreams read it. To some, only `_` and `.` are dashes; to lighttpd, all but letters and digits. */
export function dashed(name: string): string {
  return ODD.test(name) ? name.replace(ODDS, '-') : name
}

/** grpc-gateway passes what is behind it as metadata, among which others are the caller's fields of that name. */
const METADATA = /^grpc-metadata-(?:grpcgateway-)?/

/** Whether one of these names, which are {@link dashed}, is what some service may read instead of this one. */
export function hasTwin(names: ReadonlySet<string>, name: string): boolean {
  const plain = dashed(name)
  return names.has(plain) || (plain.startsWith('grpc-metadata-') && names.has(plain.replace(METADATA, '')))
}

/** Claims about the caller that we make ourselves, and our own internal names. `*` stands for any end. */
const FORWARDED =
  'forwarded x-forwarded* x-real-ip x-client-ip x-cluster-client-ip x-original-forwarded-for sallyport-* x-sallyport-*'
/** Other names under which proxies tell services a caller's address or certificate. */
const BY_PROXIES = `true-client-ip client-ip proxy-client-ip wl-proxy-* forwarded-for remote-addr x-remote-addr x-remote-ip
x-originating-ip cf-connecting-ip* cf-pseudo-ipv4 fastly-client-ip fly-client-ip do-connecting-ip x-envoy-external-address
x-azure-clientip x-azure-socketip x-appengine-user-ip x-appengine-remote-addr x-proxyuser-ip cloudfront-viewer-address
client-cert* x-client-cert* x-client-verify x-client-dn ssl-client-* x-ssl-* x-arr-clientcert x-amzn-mtls-* cf-client-cert* cf-cert-*
cloudfront-viewer-cert* ssl-cipher* ssl-session-id proxy-auth-cert proxy-ssl-id x-proxied-https front-end-https`

const patternOf = (...names: string[]) =>
  new RegExp(`(?:${METADATA.source}|^)(?:${names.join('|').replaceAll('*', '.*')})$`)
const FORWARDED_NAMES = FORWARDED.split(' ')
const CLAIM_NAMES = [...FORWARDED_NAMES, ...BY_PROXIES.split(/\s+/)]
const FORWARDED_NAME = patternOf(...FORWARDED_NAMES)
const CLAIM = patternOf(...CLAIM_NAMES)

/** By the first and the third character of a name, whether it may be one of them. Hardly any other name may. */
const MAY_BE_CLAIM = new Uint8Array(32 * 32)
for (const [first, , third] of [...CLAIM_NAMES, 'grpc-metadata-']) {
  for (const sign of third === '-' ? SIGNS : third!) MAY_BE_CLAIM[startOf(`${first} ${sign}`)] = 1
}

function startOf(name: string): number {
  return ((name.charCodeAt(0) & 31) << 5) | (name.charCodeAt(2) & 31)
}

/**
 * Whether a field makes claims about the caller that only the network can prove: `forwarded`, `x-forwarded-*`, `x-real-ip` and the
 * like, our own internal names, and variants that CGI-like upstreams (see {@link dashed}) or grpc-gateway read as the same. No peer's own
 * pass.
 */
export function isForwardedName(name: string): boolean {
  return MAY_BE_CLAIM[startOf(name)] === 1 && FORWARDED_NAME.test(dashed(name))
}

/** As {@link isForwardedName}, or one that only a trusted proxy may send. */
export function isClaim(name: string): boolean {
  return MAY_BE_CLAIM[startOf(name)] === 1 && CLAIM.test(dashed(name))
}

/**
 * Fields by which proxies say where a service is mounted, or which request they have rewritten. Some services take the path from them
 * that they run: gunicorn (`script-name`, `path-info`), Daphne, Pyramid and Zope (`x-vhm-`), Symfony and IIS (`x-original-url`). Liberty
 * takes the host from `$WSSN`, which is `-wssn` here.
 */
const MOUNT_NAMES: ReadonlySet<string> = new Set([
  'daphne-root-path',
  'path-info',
  'request-uri',
  'script-name',
  'x-base-path',
  'x-context-path',
  'x-envoy-original-host',
  'x-envoy-original-path',
  'x-http-host-override',
  'x-ingress-path',
  'x-path-info',
  'x-path-prefix',
  'x-proxy-base',
  'x-proxy-path',
  'x-proxycontextpath',
  'x-replaced-path',
  'x-request-base',
  'x-request-uri',
  'x-root-path',
  'x-rstudio-root-path',
  'x-script-name',
  'x-traversal-path',
  'x-vhm-host',
  'x-vhm-root',
  'x-waws-unencoded-url',
  ...['url', 'uri', 'path', 'prefix', 'query', 'host', 'method'].flatMap(what => [
    `x-original-${what}`,
    `x-rewrite-${what}`,
  ]),
  ...['at', 'cc', 'cs', 'is', 'pc', 'pr', 'ra', 'rh', 'ru', 'sc', 'si', 'sn', 'sp'].map(what => `-ws${what}`),
])

/** By first letter, a bit for each length. So any other name rarely costs more than one look. */
const MOUNT_LENGTHS = new Int32Array(0x80)
for (const name of MOUNT_NAMES) {
  for (const sign of name[0] === '-' ? SIGNS : name[0]!) MOUNT_LENGTHS[sign.charCodeAt(0)]! |= 1 << name.length
}

/**
 * Whether a service may take from this field another path, host or method than the request's. No caller may send it, and neither may a
 * trusted proxy, since most pass on what callers send. A route's rules may set it.
 */
export function isMountName(name: string): boolean {
  return ((MOUNT_LENGTHS[name.charCodeAt(0)]! >>> name.length) & 1) === 1 && MOUNT_NAMES.has(dashed(name))
}

/**
 * Fields with a second path that the service reads or writes: WebDAV's `Destination`, `X-Copy-From` and the like of Swift, `Upload-Concat` of
 * tus, and the sources of copies in S3 and its kin (`x-amz-`, `x-ms-`, `x-goog-`, ...).
 */
const PATH_NAME =
  /^(?:(?:destination|x-copy-from|.+-symlink-target)(?:-account)?|x-object-manifest|upload-concat|.+-(?:copy|move|rename)-source)$/

/** By their last and their sixth last character. */
const MAY_BE_PATH = new Uint8Array(32 * 32)
for (const end of ['nation', 'y-from', 'target', 'ccount', 'nifest', 'concat', 'source']) MAY_BE_PATH[endOf(end)] = 1

function endOf(name: string): number {
  const last = name.length - 1
  return ((name.charCodeAt(last) & 31) << 5) | (name.charCodeAt(last - 5) & 31)
}

/** Whether a service may take a second path from this field, beside the one of the request. */
export function isPathName(name: string): boolean {
  return MAY_BE_PATH[endOf(name)] === 1 && PATH_NAME.test(dashed(name))
}

/** Removes every field of {@link isClaim} and {@link isMountName}, in place. */
export function removeClaims(headers: HeaderList): void {
  removeWhere(headers, name => isClaim(name) || isMountName(name))
}

/** The error for a request whose head breaks the rules. */
export function badHead(what: string): SallyportError {
  return new SallyportError('bad-request', `head not valid: ${what}`)
}

/** The error for a field that no head may have. */
export function unsendable(name: string): SallyportError {
  return new SallyportError('upstream-broken', `field cannot be sent: ${JSON.stringify(name.slice(0, 64))}`)
}

/** As an object, with a list for each name that occurs several times. Names such as `__proto__` cannot harm it. */
export function toRecord(headers: HeaderList): Record<string, string | string[]> {
  const record: Record<string, string | string[]> = Object.create(null)
  for (let i = 0; i < headers.length; i += 2) {
    const known = record[headers[i]!]
    if (known === undefined) record[headers[i]!] = headers[i + 1]!
    else if (Array.isArray(known)) known.push(headers[i + 1]!)
    else record[headers[i]!] = [known, headers[i + 1]!]
  }
  return record
}
